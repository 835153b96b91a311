"""The page of checks is the table's."""

from pathlib import Path

from gpuwatch.health.checks import CHECKS
from tests.health.checks_page import markdown


def test_the_page_is_what_make_generate_writes() -> None:
    assert (Path(__file__).parents[2] / "docs" / "checks.md").read_text() == markdown()


def test_every_check_is_on_it() -> None:
    assert all(f"\n| `{check.name}` " in markdown() for check in CHECKS)
