"""The tuner's cycle where a small difference matters: whose order it is, why it is given, and what is left alone."""

import pytest
from msgspec.structs import replace

from gpuwatch.config import TuningConfig
from gpuwatch.model.consent import AUTOTUNE
from gpuwatch.tuning.cycle.cycle import budgeted
from gpuwatch.tuning.cycle.gang import ladder_of
from gpuwatch.tuning.gates.cooldowns import RateLimit, failed_orders
from gpuwatch.tuning.model.setting import (
    KNOBS,
    ApplyResult,
    GpuCapabilities,
    OrderOutcome,
    OrderRefused,
    Setting,
    SettingOrder,
    watts_to_set,
)
from gpuwatch.tuning.model.status import Obstacle, ObstacleReason, TuningState
from gpuwatch.tuning.power_budget.loop import BudgetCondition, BudgetMemory
from tests.tuning.cycle.tuning_world import Work, World

BOARD = GpuCapabilities(uuid="GPU-0", limit=700.0, limit_default=700.0, limit_min=200.0, limit_max=700.0)


@pytest.fixture(scope="module")
def found() -> World:
    world = World()
    world.until(TuningState.HOLDING, 0)
    world.until(TuningState.HOLDING, 2)
    return world


@pytest.fixture
def held(found: World) -> World:
    return found.copy()


def test_clocks_that_another_program_has_reset_are_yielded_for_that_gpu_alone_and_the_order_says_why(
    held: World,
) -> None:
    held.clocks["GPU-2"] = None
    while not any(order.uuid == "GPU-2" for order in held.tick().orders):
        assert held.now < 10_000
    assert [(each.action, each.uuid) for each in held.step.reports] == [("yield", "GPU-2")]
    (order,) = held.step.orders
    assert order.why == held.step.reports[0].why
    assert held.gpu(2).reason is ObstacleReason.CONFLICT


def test_the_actions_of_one_gpu_hold_up_the_search_of_all_that_do_the_same_work() -> None:
    world = World(max_actions_per_hour=2)
    world.memory = replace(world.memory, rate_limits={"GPU-1": RateLimit(acts=(world.now - 60, world.now - 30))})
    world.until(TuningState.REFUSED, seconds=120)
    assert {world.gpu(index).reason for index in (0, 1)} == {ObstacleReason.RATE_LIMIT}
    assert not any(order.uuid in ("GPU-0", "GPU-1") for _, order in world.orders)


def test_who_stops_it_is_the_reason_of_every_order_and_nothing_is_yielded(held: World) -> None:
    held.stopped = "a person"
    held.tick()
    assert {order.why for order in held.step.orders} == {"a person"}
    assert {each.action for each in held.step.reports} == {"restore"}


def test_what_has_been_restored_is_not_ordered_back_again_when_the_record_cannot_be_read(held: World) -> None:
    held.works["GPU-2"] = None
    held.run(3)
    held.readable = False
    assert {order.uuid for order in held.tick().orders} == {"GPU-0", "GPU-1"}


def test_what_was_saved_of_an_owner_is_used_once(held: World) -> None:
    held.saved = dict(held.step.kept)
    held.run(2)
    held.works["GPU-2"] = Work("c", (30,))
    held.run(5)
    held.works["GPU-2"] = Work("b", (12,))
    held.run(10)
    assert held.gpu(2).state is TuningState.OBSERVING


def test_a_pod_that_only_observes_is_never_searched_where_others_are() -> None:
    world = World()
    world.annotations["b"] = {**world.annotations["b"], AUTOTUNE: "observe"}
    world.until(TuningState.HOLDING, 0)
    world.run(60)
    assert world.gpu(2).reason is ObstacleReason.NOT_OPTED_IN
    assert {order.uuid for _, order in world.orders} == {"GPU-0", "GPU-1"}


def test_a_node_that_only_observes_searches_for_nobody() -> None:
    world = World(mode="observe")
    world.until(TuningState.ELIGIBLE, 2)
    world.run(60)
    assert world.gpu(2).state is TuningState.ELIGIBLE


def test_a_search_says_which_cap_it_tries_also_while_none_is_in_force() -> None:
    world = World()
    world.until(TuningState.SEARCHING, 2)
    notes = set()
    for _ in range(15):
        world.tick()
        notes.add((world.clocks["GPU-2"], world.gpu(2).note))
    assert {note for _, note in notes} == {"1590 MHz in turns, pair 1"}
    assert {clock for clock, _ in notes} == {None, 1590e6}


def test_a_recorded_power_limit_is_shown_for_its_own_gpu(held: World) -> None:
    held.record["GPU-3", "power_limit"] = Setting(
        uuid="GPU-3", knob="power_limit", original=700.0, applied=(500.0,), at=1.0, boot_id="b", driver="580"
    )
    step = held.tick()
    assert [gpu.power_limit for gpu in step.gpus] == [None, None, None, 500.0]


def test_while_the_guard_is_awaited_the_budget_leaves_limits_as_they_are() -> None:
    world = World(node_budget_watts=2000.0)
    step = budgeted(BudgetMemory(), replace(world.inputs(), guarded=False, guard_awaited=True), {}, ())
    assert step.state is not None
    assert (step.state.how, step.orders) == (BudgetCondition.WAITING, ())


def test_the_ladder_of_a_power_limit_ends_at_the_least_that_can_be_set() -> None:
    ladder = ladder_of([replace(BOARD, limit_min=400.0)], TuningConfig(knob="power_limit"))
    assert not isinstance(ladder, Obstacle)
    assert ladder.top == 700.0
    assert (min(ladder.caps), max(ladder.caps), ladder.floor) == (400.0, 695.0, 400.0)


@pytest.mark.parametrize("missing", ["limit", "limit_min"])
def test_a_board_without_clocks_or_a_whole_limit_has_no_knob(missing: str) -> None:
    found = ladder_of([replace(BOARD, **{missing: None})], TuningConfig())
    assert isinstance(found, Obstacle)
    assert (found.reason, found.message) == (
        ObstacleReason.NO_KNOB,
        "neither its clocks nor its power limit can be set",
    )


@pytest.mark.parametrize(
    ("value", "outcome", "message", "expected"),
    [
        (1e9, OrderOutcome.REFUSED, "no", "setting locked_clocks: refused, no"),
        (None, OrderOutcome.REFUSED, "", "restoring locked_clocks: refused"),
        (1e9, OrderOutcome.FOREIGN, "", "another program has changed locked_clocks"),
        (1e9, OrderOutcome.FOREIGN, "not ours", "not ours"),
    ],
)
def test_an_order_that_was_not_carried_out_is_reported_as_what_it_was(
    value: float | None, outcome: OrderOutcome, message: str, expected: str
) -> None:
    order = SettingOrder(uuid="GPU-0", knob="locked_clocks", value=value)
    ((uuid, pause),) = failed_orders([ApplyResult(order=order, outcome=outcome, message=message)], 100.0, KNOBS)
    assert (uuid, pause.message) == ("GPU-0", expected)
    assert pause.reason is (ObstacleReason.CONFLICT if outcome is OrderOutcome.FOREIGN else ObstacleReason.NOT_SET)


def test_a_board_that_does_not_show_its_least_limit_takes_any_up_to_the_original() -> None:
    capabilities = replace(BOARD, limit_min=None)
    assert watts_to_set(100.0, capabilities, 700.0) == 100.0
    with pytest.raises(OrderRefused):
        watts_to_set(710.0, capabilities, 700.0)


def test_gpus_that_move_together_need_a_driver_that_answers_for_each() -> None:
    found = ladder_of([BOARD, None], TuningConfig())
    assert isinstance(found, Obstacle)
    assert found.message == "the driver does not report what may be set"
