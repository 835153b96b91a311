"""The page of the checks of diagnose is the table's."""

from pathlib import Path

from gpuwatch.diagnose.checks.table import CHECKS
from gpuwatch.diagnose.model import CheckStage
from tests.diagnose.page import PURPOSES, markdown


def test_the_page_is_what_make_generate_writes() -> None:
    page = Path(__file__).parents[2] / "docs" / "diagnose-checks.md"
    assert page.read_text() == markdown(), "run make generate"


def test_every_check_is_on_it_with_its_remedy() -> None:
    page = markdown()
    assert all(f"| **{check.id}**" in page for check in CHECKS)
    assert page.count("\n| **") == len(CHECKS)


def test_every_stage_says_what_it_is_for() -> None:
    assert set(PURPOSES) == set(CheckStage)
