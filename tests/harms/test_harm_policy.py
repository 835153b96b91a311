"""Harms by a typo: what is not understood is refused by name, at start and at reload, and changes nothing."""

from pathlib import Path

import pytest

from gpuwatch.config import load
from gpuwatch.model.errors import UsageError
from gpuwatch.process.signals import ConfigWatch
from gpuwatch.remediation.service.remediator import checked
from tests.remediation.planning.remediating import policy

GOOD = "remediation:\n  mode: enforce\n  checks: {gpu_lost: observe}\n"

TYPOS = {
    "remediaton:\n  mode: enforce\n": "remediaton",
    "remediation:\n  effct: NoExecute\n": "remediation.effct",
    "remediation:\n  budget: {max_unavailble: 1}\n": "remediation.budget.max_unavailble",
}


@pytest.mark.parametrize("text", TYPOS)
def test_a_typo_changes_nothing_and_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(GOOD)
    watch = ConfigWatch(checked(load(path)), path, lambda: checked(load(path)), live=("remediation",))
    before = watch.config
    path.write_text(text)
    assert watch.reload() is None
    assert watch.config == before
    assert TYPOS[text] in (watch.error or "")
    assert "did you mean" in (watch.error or "")


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("remediation:\n  checks: {gpu_lots: observe}\n", "gpu_lost"),
        ("remediation:\n  checks: {gpu_lost: tain}\n", "taint"),
        ("remediation:\n  held_checks: [row_remap_failures]\n", "row_remap_failure"),
    ],
)
def test_an_unknown_word_is_refused_at_start(tmp_path: Path, text: str, near: str) -> None:
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=near):
        checked(load(path))


def test_a_policy_about_a_check_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean row_remap_failure"):
        policy(held_checks=("row_remap_failures",))
