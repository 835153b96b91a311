"""Plain English: words that readers with English as a second language stumble over, and what to write instead."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_documents import ROOT, prose

NAMES = (
    "active-checks",
    "air-gapped",
    "baseline",
    "collectors",
    "diagnose",
    "index",
    "kubernetes",
    "migrate-from-dcgm-exporter",
    "releases",
    "remediation",
    "repairer",
    "simulator",
)
PAGES = [
    ROOT / "README.md",
    *(ROOT / f"docs/{name}.md" for name in NAMES),
    *sorted((ROOT / "docs/runbooks").glob("*.md")),
]
DASHBOARDS = [ROOT / "dashboards/operations.json"]
INSTEAD = {
    r"simply|just|please|obviously|of course|actually|basically|easily": "nothing",
    r"e\.g\.|i\.e\.|etc\.|via": "for example, that is, and others, through",
    r"nobody|somebody|anybody|everybody|whoever": "the actor, or a passive with the actor named",
    r"told|said|says so": "reports, names, or what it says",
    r"giv(?:e|es|en|ing) (?:it |them |all |everything )?back": "restore, revert, release",
    r"tak(?:e|es|en|ing) (?:it |them |all )?away|took away": "remove",
    r"(?:is|are|been|was|be) (?:well|unwell|ill)": "healthy, sick",
    r"anew|goes on|go on": "again, continues, continue",
    r"hears?|siblings?|wish(?:es)?|smells?|mercy|knobs?|eyes?|believed?": "the field's term; no metaphors",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_document_has_none_of_these(page: Path) -> None:
    text = "\n".join(line for line in prose(page).splitlines() if not line.startswith("    "))
    assert list(found(text)) == []


@pytest.mark.parametrize("board", DASHBOARDS, ids=lambda board: board.stem)
def test_a_dashboard_has_none_of_these(board: Path) -> None:
    assert [each for text in texts(json.loads(board.read_text())) for each in found(text)] == []


def found(text: str) -> Iterator[str]:
    """Each such word with its surroundings and what to write instead."""
    for pattern, instead in INSTEAD.items():
        for match in re.finditer(rf"\b(?:{pattern})(?!\w)", text, re.IGNORECASE):
            yield f"{text[max(0, match.start() - 40) : match.end() + 40]!r}: instead of {match[0]!r}: {instead}"


def texts(value: object) -> Iterator[str]:
    """Titles and descriptions, however deep."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key in {"title", "description"} and isinstance(each, str):
                yield each
            else:
                yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)


def test_it_finds_them() -> None:
    assert [each.rpartition(": ")[2] for each in found("Simply restart it.")] == ["nothing"]
    assert len(list(found("Nobody told the agent, which goes on."))) == 3
    assert list(found("gpuwatch restores every setting. A justified change.")) == []
