"""Every check of the table: it passes on a host that is well, and tells fault and remedy on one that is broken."""

import importlib
import re
from functools import cache
from pathlib import Path

import msgspec
import pytest

from gpuwatch.diagnose.checks.table import CHECKS
from gpuwatch.diagnose.model import CheckStatus, Diagnosis
from tests.diagnose.checks.broken import Broken
from tests.diagnose.hosts import Host
from tests.memory import folder

AREAS = ("machine", "gpus", "fabric", "containers", "cluster", "functional", "baseline")

BROKEN: tuple[Broken, ...] = tuple(
    row for area in AREAS for row in importlib.import_module(f"tests.diagnose.checks.broken_{area}").BROKEN
)

BLAMED = re.compile(r"GPUs? (\d+(?:, \d+)*)(?![\d.]|:\S| \()")
"""How a message names GPUs; checks that need them are left out for these alone."""


def _name(row: Broken) -> str:
    return f"{row.id}-{row.message[:30]}"


NOTHING = Broken._field_defaults["well"]


@cache
def well(node: bytes, active: bool) -> Diagnosis:
    """Of a host to which nothing was done; of most rows it is the same."""
    with folder() as place:
        return Host(Path(place), **msgspec.json.decode(node)).diagnose(active=active)


def test_every_check_is_broken_by_something():
    assert {row.id for row in BROKEN} == {check.id for check in CHECKS}


FIRST = {row.id: row for row in reversed(BROKEN)}
QUICK = [FIRST[name] for name in sorted(FIRST)[::2]]
"""Every other check, by one way to break it; all ways of all are slow."""


@pytest.mark.parametrize(
    "row", [row if row in QUICK else pytest.param(row, marks=pytest.mark.slow) for row in BROKEN], ids=_name
)
def test_a_broken_host(tmp_path, row):
    host = Host(tmp_path, **row.node)
    if row.well is NOTHING:
        before = well(msgspec.json.encode(row.node), row.active).of(row.id)
    else:
        row.well(host)
        before = host.diagnose(active=row.active).of(row.id)
    assert before.result is (CheckStatus.PASS if row.passes else CheckStatus.SKIP), before
    row.breaks(host)
    after = host.diagnose(active=row.active).of(row.id)
    assert (after.result, after.blocked_by) == (row.result, None), after
    assert row.message in after.message
    assert row.remedy in "\n".join((after.remedy, *after.commands))
    blamed = BLAMED.match(after.message)
    assert blamed is None or {int(index) for index in blamed[1].split(", ")} <= set(after.gpus)
    check = next(check for check in CHECKS if check.id == row.id)
    assert check.each or not blamed or "N04" not in check.needs, "one silent GPU would keep it from the others"
