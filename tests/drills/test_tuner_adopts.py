"""A tuner that is killed while it keeps a power budget, and the next one: real processes on a fake driver.

The driver's log has every call of a setter, so that no instant above the budget can be missed.
"""

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.tuning.service.state_dir import TunerStatus
from tests.drills.tuner_children import BUDGET
from tests.drills.tuner_rig import GPUS, LIMIT, Rig
from tests.waiting import until


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A budget is in force, and the tuner that keeps it is about to die."""
    rig = Rig(tmp_path, guard=4.0)  # it is silent for seconds: the next tuner comes before
    rig.reset()
    rig.start_guard()
    rig.start_tuner()
    until(rig.is_limited, "power limits are in force")
    yield rig
    rig.end()


def totals(rig: Rig) -> list[float]:
    """Watts of all limits together after each call that took effect."""
    calls = [call for call in rig.driver.sets() if call.knob == "power_limit" and call.result == 0]
    start = dict.fromkeys(range(GPUS), LIMIT)
    each = accumulate(calls, lambda limits, call: {**limits, call.gpu: call.value}, initial=start)
    return [sum(limits.values()) / 1e3 for limits in each]


def wait_for(rig: Rig, how: str) -> None:
    """Wait until the tuner that lives says so of the budget."""
    status = TunerStatus(rig.place.state)

    def is_reported() -> Any:
        state = status.read()
        return state is not None and state.budget is not None and state.budget.how == how

    until(is_reported, f"the budget is {how}", step=0.005)


@pytest.mark.parametrize("deaths", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_the_budget_is_kept_while_one_tuner_dies_after_the_other(rig: Rig, deaths: int) -> None:
    for _ in range(deaths):
        rig.kill(rig.tuner)
        TunerStatus(rig.place.state).path.unlink(missing_ok=True)
        rig.start_tuner()
        wait_for(rig, "learning")
        wait_for(rig, "roomy")
    found = totals(rig)
    kept = next(number for number, total in enumerate(found) if total <= BUDGET)
    assert max(found[kept:]) <= BUDGET
    assert max(rig.limits()) < LIMIT
    assert {each.original for each in rig.record.read().settings if each.knob == "power_limit"} == {LIMIT / 1e3}
    rig.terminate()
    assert rig.is_original()
    assert rig.is_forgotten()


def test_a_tuner_whose_budget_was_removed_restores_what_it_finds(rig: Rig) -> None:
    rig.kill(rig.tuner)
    rig.place = replace(rig.place, budget=None)
    rig.start_tuner()
    until(lambda: rig.limits() == [LIMIT] * GPUS, "the limits are as they were")
    until(lambda: "start" in rig.record.read().restores, "it is told who gave them back")
