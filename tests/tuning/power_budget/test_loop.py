"""The power budget in a loop: when it shares, what it learns, what it asks again, and what it tells."""

import math

import pytest
from msgspec.structs import replace

from gpuwatch.tuning.energy.model import Probe, TrialPhase, TrialState, WindowPair
from gpuwatch.tuning.gates.conflict import YIELD_SECONDS
from gpuwatch.tuning.model.setting import ApplyResult, OrderOutcome
from gpuwatch.tuning.power_budget.allocation import ShareMethod
from gpuwatch.tuning.power_budget.demand import ENOUGH_SECONDS
from gpuwatch.tuning.power_budget.limits import GRACE_SECONDS, RETRY_SECONDS
from gpuwatch.tuning.power_budget.loop import LEARN_SECONDS, SHARE_SECONDS, BudgetCondition, BudgetMemory
from tests.tuning.power_budget.budget_node import DEFAULT, FLOOR, Luck, Node

LEARNT = LEARN_SECONDS + 1


def a_node(budget: float | None, *draws: float) -> Node:
    node = Node(budget)
    for watts in draws:
        node.come(draws=watts)
    return node


def settled(budget: float, *draws: float) -> Node:
    node = a_node(budget, *draws)
    node.run(LEARNT + SHARE_SECONDS)
    return node


def ordered(node: Node) -> dict[str, float | None]:
    return {order.uuid: order.value for order in node.orders}


def test_it_measures_the_draw_before_it_limits_any_gpu() -> None:
    node = a_node(600.0, 280.0, 120.0, 120.0)
    early = node.run(LEARN_SECONDS - 5).state
    assert early is not None
    assert (early.how, early.limits, early.draw) == (BudgetCondition.LEARNING, 900.0, 520.0)
    assert set(node.limits.values()) == {DEFAULT}
    state = node.run(20).state
    assert state is not None
    assert state.how == ShareMethod.ROOMY
    assert node.limits["GPU-1"] >= 290.0
    assert node.total <= 600.0 == state.budget


def test_limits_that_all_fit_are_left_alone() -> None:
    node = a_node(900.0, 280.0, 280.0, 280.0)
    assert {state.how for _ in range(100) if (state := node.run(1).state)} == {ShareMethod.UNLIMITED}
    assert (node.writes, node.record) == (0, {})


def test_more_drawn_than_the_budget_for_3_s_caps_all_at_once() -> None:
    node = a_node(600.0, 290.0, 290.0, 100.0)
    node.run(3)
    assert node.writes == 0
    state = node.run(1).state
    assert state is not None
    assert state.how == BudgetCondition.EMERGENCY
    assert list(node.limits.values()) == pytest.approx([200.0] * 3)


def test_what_was_seen_before_an_emergency_is_not_forgotten() -> None:
    node = a_node(600.0, 290.0, 290.0, 100.0)
    node.run(70)
    assert node.result.state is not None
    assert node.result.state.how == ShareMethod.SHARED
    assert node.limits["GPU-1"] > 220.0 > 140.0 > node.limits["GPU-3"]


def test_noise_writes_nothing() -> None:
    node = settled(600.0, 270.0, 270.0, 60.0)
    node.noise = 0.02
    node.run(120)
    before = node.writes
    node.run(1_800, each=2.0)
    assert node.writes == before


def test_a_gpu_that_is_seen_to_be_held_gets_what_the_others_no_longer_draw() -> None:
    node = settled(600.0, 290.0, 100.0, 100.0)
    node.boards["GPU-1"].draws, node.boards["GPU-3"].draws = (node.boards[name].draws for name in ("GPU-3", "GPU-1"))
    node.run(150)
    assert node.limits["GPU-3"] > 250.0 > node.limits["GPU-1"]


def test_a_new_owner_is_answered_at_once() -> None:
    node = settled(600.0, 290.0, 60.0, 100.0)
    assert node.limits["GPU-2"] < 170.0
    node.boards["GPU-2"].owner = "somebody else"
    node.run(2)  # decreases, then increases
    assert node.limits["GPU-2"] >= 199.0
    assert node.total <= 600.0


def test_a_new_gpu_is_answered_at_once_with_decreases() -> None:
    node = settled(600.0, 290.0, 60.0, 100.0)
    node.come(draws=290.0)
    node.run(1)
    assert node.total <= 600.0


def test_another_budget_is_answered_at_once() -> None:
    node = settled(600.0, 290.0, 60.0, 100.0)
    node.budget = 450.0
    node.run(1)
    assert node.total <= 450.0
    node.budget = 900.0
    node.run(2)
    assert (node.total, node.record) == (900.0, {})


def test_a_higher_priority_is_served_first() -> None:
    node = a_node(450.0, 200.0, 200.0, 45.0)
    node.boards["GPU-2"].priority = 1
    node.run(150)
    assert node.limits["GPU-2"] > node.limits["GPU-1"] + 50.0


def test_an_infeasible_budget_is_reported_and_all_are_at_the_floor() -> None:
    state = settled(200.0, 50.0, 50.0, 50.0).result.state
    assert state is not None
    assert state.how == ShareMethod.INFEASIBLE
    assert state.limits == 3 * FLOOR


def test_a_gpu_that_cannot_be_read_counts_with_the_most_it_could_have_after_a_while() -> None:
    node = settled(600.0, 180.0, 60.0, 60.0)
    before = node.writes
    node.boards["GPU-1"].is_lost = True
    node.run(GRACE_SECONDS - 1)
    assert node.writes == before
    state = node.run(3).state
    assert state is not None
    assert node.limits["GPU-2"] + node.limits["GPU-3"] <= 600.0 - DEFAULT
    assert (state.limits, state.draw) == (None, None)
    assert "GPU-1 counts for 300 W: it cannot be read" in state.message


def test_gpus_that_only_the_bus_knows_or_that_do_not_answer_count_too() -> None:
    for bus, unanswered in (
        (("0000:01:00.0", "0000:02:00.0", "0000:77:00.0"), {}),
        (None, {2: "registration hangs"}),
        (("0000:01:00.0", "0000:02:00.0", "0000:77:00.0"), {2: "registration hangs"}),
    ):
        node = a_node(600.0, 100.0, 100.0)
        node.bus, node.unanswered = bus, unanswered
        node.run(60)
        assert 290.0 <= node.total <= 300.0


def test_a_gpu_that_left_the_view_is_counted_until_it_is_surely_gone() -> None:
    node = settled(700.0, 60.0, 60.0, 60.0)
    node.run(60)
    node.go("GPU-1")
    node.run(300)
    assert node.total <= 700.0 - DEFAULT
    node.run(400)
    assert node.total == 600.0


@pytest.mark.parametrize("blind", ["fresh", "readable"])
def test_a_view_or_a_record_that_shows_nothing_changes_no_limit(blind: str) -> None:
    node = settled(600.0, 290.0, 60.0, 100.0)
    setattr(node, blind, False)
    node.budget = 400.0
    state = node.run(60).state
    assert state is not None
    assert (state.how, node.orders) == (BudgetCondition.WAITING, ())
    setattr(node, blind, True)
    node.run(1)
    assert node.total <= 400.0


@pytest.mark.parametrize("budget", [None, math.nan, math.inf])
def test_without_a_budget_everything_is_restored(budget: float | None) -> None:
    node = settled(600.0, 290.0, 60.0, 100.0)
    assert len(node.record) == 2
    node.budget, node.fresh = budget, budget is not None  # nor does it take a View
    state = node.run(1).state
    assert (node.limits, node.record) == (dict.fromkeys(node.boards, DEFAULT), {})
    assert state is None if budget is None else state is not None and state.how == BudgetCondition.INVALID
    before = node.writes
    node.run(60)
    assert node.writes == before


def test_what_could_not_be_restored_is_tried_again() -> None:
    node = settled(600.0, 290.0, 60.0, 100.0)
    node.budget, node.luck = None, Luck(fails=1.0)
    node.run(5)
    assert len(node.record) == 2
    node.luck = Luck()
    node.run(RETRY_SECONDS)
    assert node.record == {}


@pytest.mark.parametrize("luck", [Luck(fails=1.0), Luck(silent=1.0)])
def test_a_write_that_did_not_show_counts_and_is_asked_again_later(luck: Luck) -> None:
    node = settled(600.0, 290.0, 60.0, 100.0)
    calm = dict(node.limits)
    node.luck, node.budget = luck, 700.0
    state = node.run(3).state
    assert node.limits == calm
    assert state is not None
    assert "may still get" in state.message
    node.luck = Luck()
    asked = node.orders
    node.run(RETRY_SECONDS - 5)
    assert not asked
    node.run(150)
    assert 690.0 <= node.total <= 700.0


def test_an_answer_that_never_came_counts_as_silence() -> None:
    node = settled(600.0, 290.0, 60.0, 100.0)
    node.budget = 700.0
    node.run(1)
    node.results = ()
    state = node.run(1).state
    assert state is not None
    assert "may still get" in state.message


def test_a_limit_of_another_program_is_theirs_for_an_hour() -> None:
    node = settled(600.0, 290.0, 60.0, 100.0)
    capabilities = node.boards["GPU-2"]
    capabilities.limit, capabilities.draws = 210.0, node.boards["GPU-1"].draws
    node.run(YIELD_SECONDS / 2, each=5.0)
    assert capabilities.limit == 210.0
    assert 380.0 <= node.limits["GPU-1"] + node.limits["GPU-3"] <= 390.0


def test_who_is_fixed_is_not_written_and_counts_with_what_it_has() -> None:
    node = a_node(600.0, 290.0, 60.0, 100.0)
    node.fixed = {"GPU-2"}
    node.run(120)
    assert node.limits["GPU-2"] == DEFAULT
    assert node.total <= 600.0


def test_after_a_restart_what_is_recorded_may_be_in_force_and_the_original_is_known() -> None:
    node = settled(600.0, 290.0, 60.0, 100.0)
    before = {uuid: node.limits[uuid] for uuid in node.record}
    uuid, setting = next(iter(node.record.items()))
    node.record[uuid] = replace(setting, applied=(*setting.applied, 270.0))
    node.crash()
    first = node.run(1).state
    assert first is not None
    assert f"{uuid} may still get 270 W" in first.message
    assert before.items() <= ordered(node).items()
    node.run(120)
    assert node.total <= 600.0
    node.budget = 900.0
    node.run(60)
    assert (node.total, node.record) == (900.0, {})


def test_after_a_restart_limits_stay_until_it_is_known_what_is_drawn() -> None:
    node = settled(480.0, 280.0, 150.0, 150.0)
    before = dict(node.limits)
    node.crash()
    for _ in range(round(ENOUGH_SECONDS)):
        state = node.run(1).state
        assert state is not None
        assert (state.how, node.limits) == (BudgetCondition.LEARNING, before)


def test_after_a_restart_limits_that_exceed_the_budget_are_answered_at_once() -> None:
    node = settled(600.0, 290.0, 60.0, 100.0)
    node.crash()
    node.budget = 450.0
    node.run(2)
    assert node.total <= 450.0


def test_after_a_restart_with_a_budget_that_cannot_be_shared_everything_is_restored() -> None:
    node = settled(600.0, 290.0, 60.0, 100.0)
    node.crash()
    node.budget = math.nan
    node.run(2)
    assert (node.total, node.record) == (900.0, {})


def test_after_a_restart_the_least_of_what_may_be_in_force_is_asked_for() -> None:
    node = settled(600.0, 290.0, 60.0, 100.0)
    setting = node.record["GPU-2"]
    node.record["GPU-2"] = replace(setting, applied=(node.limits["GPU-2"], 130.0))
    node.crash()
    node.run(1)
    assert ordered(node)["GPU-2"] == 130.0


def test_when_one_cannot_be_lowered_the_others_are() -> None:
    node = settled(600.0, 200.0, 200.0, 200.0)
    node.boards["GPU-1"].is_busy, before = True, node.limits["GPU-1"]
    node.budget = 480.0
    node.run(4)
    assert node.limits["GPU-1"] == before
    assert 470.0 <= node.total <= 480.0


@pytest.mark.parametrize("is_told", [True, False])
def test_who_is_slowed_down_by_its_limit_is_held_though_it_draws_less(is_told: bool) -> None:
    node = settled(480.0, 280.0, 150.0, 150.0)
    capabilities, before = node.boards["GPU-1"], node.limits["GPU-1"]
    capabilities.draws, capabilities.is_capped = lambda limit: 0.8 * limit, lambda limit: is_told and limit < 280.0
    node.run(600, each=2.0)
    assert (capabilities.limit >= before - 5.0) is is_told


def test_a_sample_of_before_a_write_is_not_trusted() -> None:
    node = settled(600.0, 290.0, 60.0, 100.0)
    node.run(10)
    node.budget = 450.0
    node.run(1)
    after = dict(node.limits)
    for _ in range(6):
        node.run(1)
        assert {uuid: limit.watts for uuid, limit in node.memory.limits.known.items()} == after


def test_a_limit_that_rises_right_after_a_write_is_seen_in_the_next_sample() -> None:
    node = settled(600.0, 290.0, 60.0, 100.0)
    node.budget = 450.0
    node.run(1)
    (uuid, *_) = ordered(node)
    node.boards[uuid].limit = DEFAULT
    node.run(1)
    assert node.memory.limits.known[uuid].watts == DEFAULT


def test_after_a_restart_a_gpu_that_was_never_read_counts_for_what_others_may_have() -> None:
    node = settled(600.0, 290.0, 60.0, 100.0)
    node.record["GPU-2"] = replace(node.record["GPU-2"], original=150.0)
    node.boards["GPU-2"].is_lost = True
    node.crash()
    state = node.run(1).state
    assert state is not None
    assert "GPU-2 counts for 300 W: it cannot be read" in state.message


def test_a_clock_that_is_set_back_hides_no_rise_for_long() -> None:
    node = settled(600.0, 290.0, 60.0, 100.0)
    inputs = replace(node.inputs(), at=node.inputs().at - 86_400)
    known = node.memory.limits.known["GPU-1"]
    assert inputs.at < (known.at or 0.0)
    node.budget = 500.0
    node.run(20)
    node.boards["GPU-2"].limit = DEFAULT
    node.run(1)
    assert node.memory.limits.known["GPU-2"].watts == DEFAULT


def probed(*ratios: tuple[float, float]) -> TrialState:
    """A state whose probes say (draw, speed), each a share of that without a cap."""
    probes = []
    for number, (draw, speed) in enumerate(ratios):
        pair = WindowPair(speed=(math.log(speed), None), energy=math.log(draw / speed))
        probes.append(Probe(cap=1.5e9 - number * 1e8, pairs=(pair, pair), good=True))
    return TrialState(phase=TrialPhase.SEARCH, probes=tuple(probes))


TIMID = probed((0.9, 0.91), (0.7, 0.72))
CALM = probed((0.9, 0.999), (0.7, 0.99))


def test_probes_show_who_loses_most() -> None:
    node = a_node(400.0, 195.0, 195.0)
    node.boards["GPU-1"].state, node.boards["GPU-2"].state = TIMID, CALM
    node.run(150)
    assert node.limits["GPU-1"] > node.limits["GPU-2"] + 20.0


def test_probes_made_while_a_power_limit_held_the_gpu_show_nothing() -> None:
    node = a_node(330.0, 280.0, 280.0)
    node.run(150)
    before = dict(node.limits)
    node.boards["GPU-1"].state, node.boards["GPU-2"].state = TIMID, CALM
    node.run(150)
    assert node.limits == before


def test_a_search_that_starts_over_as_the_limit_has_changed_takes_nothing_away() -> None:
    node = a_node(400.0, 195.0, 195.0)
    node.boards["GPU-1"].state, node.boards["GPU-2"].state = TIMID, CALM
    node.run(150)
    before = dict(node.limits)
    for capabilities in node.boards.values():
        capabilities.state = TrialState()
    node.run(150)
    assert node.limits == before
    node.boards["GPU-2"].state = TIMID  # as it draws all that it may, it was held meanwhile
    node.run(150)
    assert node.limits == before


def test_a_cap_of_the_energy_tuner_does_not_make_a_gpu_look_modest() -> None:
    node = a_node(900.0, 200.0, 200.0)
    held = replace(TIMID, phase=TrialPhase.HOLD, held=TIMID.probes[1].cap)
    node.boards["GPU-1"].state = held
    node.boards["GPU-1"].draws = lambda limit: min(limit, 140.0)
    node.run(60)
    assert node.memory.draws["GPU-1"].natural == pytest.approx(200.0, rel=0.02)
    assert node.memory.draws["GPU-2"].natural == pytest.approx(200.0, rel=0.02)


def test_turned_of_another_knob_is_no_answer() -> None:
    node = settled(600.0, 290.0, 60.0, 100.0)
    node.budget = 500.0
    node.run(1)
    wrong = tuple(replace(each, order=replace(each.order, knob="locked_clocks")) for each in node.results)
    assert all(isinstance(each, ApplyResult) and each.outcome is OrderOutcome.DONE for each in wrong)
    node.results = wrong
    node.run(1)
    assert set(node.memory.limits.failed) == {each.order.uuid for each in wrong}


def test_a_memory_can_be_compared_and_starts_empty() -> None:
    assert BudgetMemory() == BudgetMemory()
    assert a_node(None).run(3).orders == ()
