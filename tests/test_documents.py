"""Documents lead somewhere: every link and heading exists, the index names every page, the README stays short."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")] + sorted(
    (ROOT / "docs").rglob("*.md")
)
LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")


def prose(page: Path) -> str:
    """Without code, in which brackets mean something else."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = sum(each == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", each) is not None for each in found)
        found.add(f"{slug}-{number}" if number else slug)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path):
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        if "://" in link or link.startswith("mailto:"):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


def test_the_index_names_every_page():
    linked = {path.partition("#")[0] for path in LINK.findall(prose(ROOT / "docs/index.md"))}
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - linked == {"index.md"}


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 180
