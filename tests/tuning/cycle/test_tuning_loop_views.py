"""What a cycle of the tuner makes of no View, of the same one once more, and what it writes down for the next tuner."""

import pytest
from msgspec.structs import replace

from gpuwatch.tuning.cycle.cycle import cycle
from gpuwatch.tuning.cycle.state import CycleMemory
from gpuwatch.tuning.energy.model import TrialState
from gpuwatch.tuning.model.setting import Setting
from gpuwatch.tuning.model.status import TuningState
from tests.tuning.cycle.tuning_world import World

LEFT = Setting(uuid="GPU-3", knob="power_limit", original=700.0, applied=(500.0,), at=1.0, boot_id="b", driver="580")


@pytest.fixture(scope="module")
def searched() -> World:
    """A search of GPU-0 has begun."""
    world = World()
    world.until(TuningState.SEARCHING, 0)
    return world


def test_a_tuner_that_has_no_view_yet_orders_back_what_is_recorded_and_says_nothing_of_gpus() -> None:
    world = World()
    world.record["GPU-3", "power_limit"] = LEFT
    step = cycle(CycleMemory(), replace(world.inputs(), view=None, fresh=False))
    assert [(order.uuid, order.knob, order.value, order.keep) for order in step.orders] == [
        ("GPU-3", "power_limit", None, False)
    ]
    assert (step.gpus, step.reports, step.kept) == ((), (), {})
    assert step.memory.held == {("GPU-3", "power_limit")}


def test_a_view_that_goes_missing_lifts_caps_and_keeps_what_was_counted(searched: World) -> None:
    world = searched.copy()
    while not world.record:
        world.tick()
    step = cycle(world.memory, replace(world.inputs(), view=None, fresh=False))
    assert {(order.uuid, order.knob) for order in step.orders} == world.record.keys()
    assert all(order.value is None for order in step.orders)
    assert step.memory.accounts == world.memory.accounts
    assert step.memory.rate_limits == world.memory.rate_limits
    assert not step.memory.tuned


def test_the_same_view_once_more_is_no_news(searched: World) -> None:
    world, seen = searched.copy(), 0
    for _ in range(40):
        world.tick()
        before, after = world.memory, cycle(world.memory, replace(world.inputs(), results=())).memory
        assert after.tuned == before.tuned
        assert after.accounts == before.accounts
        assert after.watches == before.watches
        seen += bool(before.tuned)
    assert seen == 40


def test_a_search_that_has_found_nothing_yet_is_not_written_down(searched: World) -> None:
    assert searched.gpu(0).state is TuningState.SEARCHING
    assert searched.step.kept == {}


def test_what_was_found_is_written_down_without_its_windows(searched: World) -> None:
    world = searched.copy()
    world.until(TuningState.HOLDING, 0)
    key = next(key for key, gang in world.memory.gangs.items() if "GPU-0" in gang.uuids)
    kept, state = world.step.kept[key], world.memory.tuned[key].state
    assert kept.held == state.held == world.clocks["GPU-0"]
    fresh = TrialState()
    assert (kept.watched, kept.full, kept.before, kept.newest) == (fresh.watched, fresh.full, None, None)
