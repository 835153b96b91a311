"""The documents' site has every page once, in the order of the index; nothing in it leads nowhere."""

import os
import subprocess
import venv
from pathlib import Path
from types import SimpleNamespace

import pytest

from deploy.docs import outside

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
CONFIG = SimpleNamespace(docs_dir=str(DOCS), repo_url="https://code.example/gpuwatch", nav=None)


def pages(nav) -> list[str]:
    """All paths of a navigation, in their order."""
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in pages(part)]


def test_the_navigation_has_every_page_once():
    nav = outside.on_config(SimpleNamespace(docs_dir=str(DOCS))).nav
    assert sorted(pages(nav)) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
    assert [next(iter(part)) for part in nav[1:]] == ["Start", "Operate", "Reference", "Background"]


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_a_link_that_leaves_the_documents_goes_to_the_file_in_the_repository(page: Path):
    text = page.read_text()
    file = SimpleNamespace(src_uri=str(page.relative_to(DOCS)))
    written = outside.on_page_markdown(text, page=SimpleNamespace(file=file), config=CONFIG)
    assert "](../../" not in written
    for part in written.split(f"]({CONFIG.repo_url}/blob/main/")[1:]:
        path = part.partition(")")[0].partition("#")[0]
        assert (ROOT / path).exists(), path


def test_links_within_the_documents_and_to_others_stay():
    text = "[a](metrics.md#gpu) [b](https://nvidia.com/x) [c](#here) [d](../README.md#try-it)"
    page = SimpleNamespace(file=SimpleNamespace(src_uri="alerts.md"))
    assert outside.on_page_markdown(text, page=page, config=CONFIG) == (
        "[a](metrics.md#gpu) [b](https://nvidia.com/x) [c](#here) [d](https://code.example/gpuwatch/blob/main/README.md#try-it)"
    )


@pytest.mark.slow
def test_the_site_is_built_and_every_link_and_heading_in_it_exists(tmp_path):
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--upgrade", "pip"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--group", f"{ROOT}/pyproject.toml:docs"], check=True)
    site = [python, "-m", "mkdocs", "build", "--strict", "--config-file", ROOT / "deploy/docs/mkdocs.yml"]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(
        [*site, "--site-dir", tmp_path / "site"], env=environment, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    assert "Remediation" in (tmp_path / "site/remediation/index.html").read_text()
    pages = {page.relative_to(tmp_path / "site") for page in (tmp_path / "site").rglob("index.html")}
    assert len(pages) == len(list(DOCS.rglob("*.md")))
