"""The page of findings is the tables'."""

from pathlib import Path

from gpuwatch.rightsizing.findings.judge import BESIDES, NOW, OTHERS, SIZE
from gpuwatch.rightsizing.model.recommendation import FindingKind
from tests.rightsizing.findings.page import markdown


def test_the_page_is_what_make_generate_writes() -> None:
    assert (Path(__file__).parents[3] / "docs" / "rightsizing-findings.md").read_text() == markdown()


def test_every_finding_is_on_it_once() -> None:
    assert sorted(row.finding for row in (*NOW, *SIZE, *BESIDES, *OTHERS)) == sorted(FindingKind)
    assert all(markdown().count(f"| `{finding}` |") == 1 for finding in FindingKind)
