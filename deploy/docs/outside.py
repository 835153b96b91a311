"""What the documents' site takes from the repository: the order of docs/index.md, and links to files beside docs/.

MkDocs calls these functions by their names (mkdocs.org/dev-guide/plugins/#events). A document links to code and tests
by a relative path, which is right on a clone and on a code host; the site has no such files, so there the link goes to
the repository that pyproject.toml names.
"""

import os.path
import re
import tomllib
from pathlib import Path
from typing import Any

LINK = re.compile(r"(?<!\\)\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """The sections of docs/index.md, each with the pages it names first; runbooks follow their own index."""
    docs = Path(config.docs_dir)
    nav: list[Any] = ["index.md"]
    for section in (docs / "index.md").read_text().split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        pages: list[Any] = []
        for path, _anchor in LINK.findall(text):
            if path == "runbooks/README.md":
                runbooks = sorted(f"runbooks/{page.name}" for page in (docs / "runbooks").glob("[!R]*.md"))
                pages.append({"Runbooks": [path, *runbooks]})
            elif not path.startswith("../") and path not in pages:
                pages.append(path)
        nav.append({title: pages})
    config.nav = nav
    config.repo_url = tomllib.loads((docs.parent / "pyproject.toml").read_text())["project"]["urls"]["Homepage"]
    config.repo_name = "Repository"
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Links that leave docs/ go to the repository, at the same path."""
    folder = os.path.dirname(page.file.src_uri)

    def outside(link: re.Match[str]) -> str:
        path = os.path.normpath(os.path.join("docs", folder, link[1]))
        return link[0] if path.startswith("docs/") else f"]({config.repo_url}/blob/main/{path}{link[2] or ''})"

    return LINK.sub(outside, markdown)
