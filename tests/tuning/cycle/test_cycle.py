"""The tuner's cycle, second by second: a search that ends in a cap, and all that takes the cap away again."""

from itertools import groupby

import msgspec
import pytest

from gpuwatch.model.consent import AUTOTUNE, CLASS, MAX_SLOWDOWN
from gpuwatch.tuning.model.setting import OrderOutcome, Setting, setting_text
from gpuwatch.tuning.model.status import ObstacleReason, TuningState
from tests.tuning.cycle.tuning_world import TOP, Work, World

KEYS = [(f"GPU-{index}", "locked_clocks") for index in range(3)]


@pytest.fixture(scope="module")
def found() -> World:
    """A world in which all three GPUs at work are held at a cap."""
    world = World()
    world.until(TuningState.HOLDING, 0)
    world.until(TuningState.HOLDING, 2)
    return world


@pytest.fixture
def held(found: World) -> World:
    return found.copy()


def lifted(world: World, *indices: int) -> bool:
    """Whether in this very second these GPUs, and no others, were ordered back for good."""
    orders = {(order.uuid, order.value, order.keep) for order in world.step.orders}
    return orders == {(f"GPU-{index}", None, False) for index in indices}


def test_a_cap_is_found_within_the_bound_and_what_it_saves_is_reported(held: World) -> None:
    held.run(60)
    gpu = held.gpu(0)
    assert gpu.clock_cap == held.clocks["GPU-0"] == held.clocks["GPU-1"]
    assert gpu.clock_cap is not None
    true = 1 - 1 / (0.8 + 0.2 * TOP / gpu.clock_cap)
    assert 0.03 < true <= 0.05
    assert gpu.slowdown == pytest.approx(true, abs=1e-3)
    assert gpu.bound == 0.05
    work = held.works["GPU-0"]
    assert work is not None
    full, capped = 500.0, held._watts("GPU-0", work)
    assert gpu.saved == pytest.approx(1 - capped / full / (1 - true), abs=0.01)
    assert gpu.joules_saved > 60 * capped * gpu.saved / (1 - gpu.saved) * 0.99
    assert held.gpu(3).state is TuningState.IDLE
    assert held.clocks["GPU-3"] is None


def test_gpus_of_one_pod_have_one_cap_at_every_instant() -> None:
    world = World()
    for _ in range(600):
        world.tick()
        assert world.clocks["GPU-0"] == world.clocks["GPU-1"]
    assert any(order.value for _, order in world.orders)


def test_while_windows_alternate_what_is_set_stays_recorded() -> None:
    world = World()
    world.until(TuningState.SEARCHING)
    begun = next(at for at in range(10_000) if world.tick().orders)
    assert begun < 60
    while world.gpu(0).state is TuningState.SEARCHING:
        world.tick()
        assert KEYS[0] in world.record
    assert any(order.keep for _, order in world.orders)


@pytest.mark.parametrize("change", ["pod", "processes", "both GPUs to one", "nobody"])
def test_s7_another_owner_never_runs_under_the_cap_of_the_one_before(held: World, change: str) -> None:
    if change == "pod":
        held.works["GPU-2"] = Work("c", (30,))
    elif change == "processes":
        held.works["GPU-2"] = Work("b", (30,))
    elif change == "both GPUs to one":
        held.works["GPU-2"] = Work("a", (12,))
    else:
        held.works["GPU-2"] = None
    held.tick()
    assert lifted(held, *([0, 1, 2] if change == "both GPUs to one" else [2]))
    assert held.clocks["GPU-2"] is None
    held.run(30)
    assert held.gpu(2).state is (TuningState.IDLE if change == "nobody" else TuningState.OBSERVING)
    assert KEYS[2] not in held.record


def test_s7_what_was_saved_of_a_pod_is_not_used_for_other_processes_of_it(held: World) -> None:
    held.saved = dict(held.step.kept)
    held.works["GPU-2"] = Work("b", (30,))
    held.run(30)
    assert held.gpu(2).state is TuningState.OBSERVING


def test_s8_a_fault_lifts_its_gpu_and_those_of_the_same_work_and_rests(held: World) -> None:
    held.sick = {"GPU-1"}
    held.tick()
    assert lifted(held, 0, 1)
    assert held.gpu(1).reason is ObstacleReason.FAULT
    assert held.gpu(0).reason is ObstacleReason.GANG
    held.sick = set()
    held.run(590)
    assert held.gpu(0).state is TuningState.REFUSED
    assert held.clocks["GPU-2"] is not None
    assert held.clocks["GPU-0"] is None
    held.run(30)
    assert held.gpu(0).reason is ObstacleReason.RELEASED  # what was measured before a fault is not believed after it


@pytest.mark.parametrize("reason", ["hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown"])
def test_s8_a_gpu_that_slows_itself_is_not_held_down_by_us_too(held: World, reason: str) -> None:
    held.reasons = {"GPU-2": reason}
    held.tick()
    assert lifted(held, 2)
    assert held.gpu(2).reason is ObstacleReason.SLOWDOWN


def test_s9_clocks_that_another_program_has_reset_are_theirs_for_an_hour(held: World) -> None:
    held.clocks["GPU-2"] = None  # behind our back
    for _ in range(5):
        held.tick()
        if held.gpu(2).reason is ObstacleReason.CONFLICT:
            break
    assert lifted(held, 2)
    assert any(each.action == "yield" for each in held.step.reports)
    for _ in range(35):
        held.now += 99.0
        held.tick()
        assert held.gpu(2).reason is ObstacleReason.CONFLICT
    held.run(200)
    assert held.gpu(2).reason is not ObstacleReason.CONFLICT


def test_s9_a_knob_that_the_actuator_finds_turned_by_others_is_left_alone(held: World) -> None:
    held.fate["GPU-2"] = OrderOutcome.FOREIGN
    held.stopped = "a person"
    held.tick()
    held.stopped = ""
    held.fate = {}
    held.run(2)
    assert held.gpu(2).reason is ObstacleReason.CONFLICT


@pytest.mark.slow  # quick: test_s10 of tests/tuning/gates/test_rate_limit.py
def test_s10_no_more_than_the_allowed_actions_in_any_hour_however_often_work_changes() -> None:
    world, acts, limited = World(max_actions_per_hour=3), [], False
    world.works["GPU-0"] = world.works["GPU-1"] = None
    for change in range(12):
        world.works["GPU-2"] = Work("b", (100 + change,))
        for _ in range(400):
            reports = world.tick().reports
            acts += [world.now for each in reports if each.uuid == "GPU-2" and each.after not in ("", each.before)]
            if world.gpu(2).reason is ObstacleReason.RATE_LIMIT:
                limited = True
                assert world.clocks["GPU-2"] is None
    assert limited
    assert len(acts) > 4
    assert all(later - earlier >= 3600 for earlier, later in zip(acts, acts[3:], strict=False))


def test_s13_each_decision_is_reported_with_before_and_after_and_alternation_is_none() -> None:
    world, reports = World(), []
    for _ in range(700):
        reports += world.tick().reports
    mine = [each for each in reports if each.uuid == "GPU-2"]
    caps = [order.value for _, order in world.orders if order.uuid == "GPU-2" and order.value is not None]
    assert len(caps) > 2 * len(mine)
    assert [each.after for each in mine if each.after != each.before] == [
        f"{value / 1e6:.0f} MHz" for value, _ in groupby(caps)
    ]
    assert "less energy" in mine[-1].why
    world.stopped = "a person"
    gone = world.tick().reports
    assert [(each.action, each.before, each.after, each.why) for each in gone if each.uuid == "GPU-2"] == [
        ("restore", mine[-1].after, "", "a person")
    ]


ENDS = {
    "stopped": ObstacleReason.STOPPED,
    "node annotation": ObstacleReason.STOPPED,
    "no guard": ObstacleReason.NO_GUARD,
    "stale": ObstacleReason.STALE_VIEW,
    "slow": ObstacleReason.SLOW_VIEW,
    "record": ObstacleReason.NOT_SET,
    "no consents": ObstacleReason.NO_CONSENT,
    "health": ObstacleReason.UNKNOWN,
    "kubelet": ObstacleReason.OWNERS_UNKNOWN,
}


def close(world: World, what: str) -> None:
    """Something that stands against all GPUs, or what was before."""
    world.stopped = "a person" if what == "stopped" else ""
    world.node = {AUTOTUNE: "off"} if what == "node annotation" else {}
    world.guarded, world.readable, world.consented = what != "no guard", what != "record", what != "no consents"
    world.judged, world.kubelet = what != "health", what != "kubelet"
    world.frozen, world.interval = what == "stale", 2.0 if what == "slow" else 1.0


@pytest.mark.parametrize("what", ENDS)
def test_what_stands_against_all_lifts_all_at_once_and_a_held_cap_is_verified_afterwards(
    held: World, what: str
) -> None:
    close(held, what)
    held.run(4 if what == "stale" else 1)
    assert lifted(held, 0, 1, 2)
    assert {held.gpu(index).reason for index in range(3)} == {ENDS[what]}
    close(held, "")
    held.run(8)
    assert {held.gpu(index).state for index in range(3)} == {TuningState.VERIFYING}


def test_a_record_that_cannot_be_read_is_no_reason_to_forget_what_was_set(held: World) -> None:
    close(held, "record")
    held.fate = dict.fromkeys(held.clocks, OrderOutcome.REFUSED)
    for _ in range(5):
        held.tick()
        assert lifted(held, 0, 1, 2)


def test_a_lift_that_fails_is_ordered_again_until_it_is_done(held: World) -> None:
    held.fate = {"GPU-2": OrderOutcome.TIMEOUT}
    held.stopped = "a person"
    held.tick()
    held.tick()
    assert lifted(held, 2)
    held.stopped = ""
    for _ in range(3):  # the windows of the others may have four seconds
        held.tick()
        assert lifted(held, 2)
    assert held.gpu(2).reason is ObstacleReason.NOT_SET
    held.fate = {}
    held.run(2)
    assert KEYS[2] not in held.record
    assert held.gpu(2).reason is ObstacleReason.NOT_SET


@pytest.mark.parametrize("fate", [OrderOutcome.FAILED, OrderOutcome.TIMEOUT, OrderOutcome.REFUSED])
def test_a_cap_that_was_not_set_is_restored_and_not_tried_again_soon(fate: OrderOutcome) -> None:
    world = World()
    world.fate = {"GPU-0": fate}
    world.until(TuningState.SEARCHING)
    while not world.tick().orders:
        pass
    world.tick()
    assert world.gpu(0).reason is ObstacleReason.NOT_SET
    assert world.gpu(1).reason is ObstacleReason.GANG
    assert world.clocks["GPU-1"] is None
    world.fate, before = {}, len([order for _, order in world.orders if order.uuid == "GPU-0" and order.value])
    world.run(500)
    assert len([order for _, order in world.orders if order.uuid == "GPU-0" and order.value]) == before


def test_s4_what_another_program_has_restored_is_not_set_again_soon(held: World) -> None:
    del held.record[KEYS[0]]
    held.clocks["GPU-0"] = None
    held.tick()
    assert lifted(held, 1)
    assert held.gpu(0).reason is ObstacleReason.RELEASED
    held.run(500)
    assert held.gpu(0).reason is ObstacleReason.RELEASED


def test_s4_what_another_program_has_restored_of_a_gpu_at_rest_is_not_set_again_before_ten_idle_minutes(
    held: World,
) -> None:
    work = held.works["GPU-2"]
    assert work is not None
    work.engine = 0.0
    held.until(TuningState.RESTING, 2, 700)
    del held.record[KEYS[2]]
    held.clocks["GPU-2"] = None
    for _ in range(590):
        held.tick()
        assert held.clocks["GPU-2"] is None
    held.until(TuningState.RESTING, 2, 30)


def test_what_an_earlier_tuner_left_recorded_is_ordered_back() -> None:
    world = World()
    left = Setting(
        uuid="GPU-3", knob="power_limit", original=700.0, applied=(500.0,), at=1.0, boot_id="boot", driver="580"
    )
    world.record["GPU-3", "power_limit"] = left
    world.tick()
    assert lifted(world, 3)


@pytest.mark.parametrize("mode", ["off", "observe"])
def test_s12_without_enforce_nothing_is_ordered_whatever_is_recorded(held: World, mode: str) -> None:
    held.config = msgspec.structs.replace(held.config, mode=mode)
    held.orders.clear()
    held.run(30)
    assert not held.orders


def test_who_observes_says_where_a_search_would_begin() -> None:
    world = World(mode="observe")
    world.until(TuningState.ELIGIBLE)
    assert world.gpu(0).note == "would search from 1590 MHz; steady, DRAM 46 %"
    world.run(600)
    assert world.gpu(0).state is TuningState.ELIGIBLE
    assert not world.orders


def test_work_that_shows_too_little_is_refused_with_words() -> None:
    world = World(mode="observe")
    work = world.works["GPU-2"]
    assert work is not None
    work.dram = work.pipe = 0.01
    world.run(120)
    assert world.gpu(2).reason is ObstacleReason.WEAK_SIGNAL
    assert "too little" in world.gpu(2).message


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [
        ({AUTOTUNE: "off", CLASS: "batch"}, ObstacleReason.OPTED_OUT),
        ({AUTOTUNE: "observe", CLASS: "batch"}, ObstacleReason.NOT_OPTED_IN),
        ({AUTOTUNE: "enforce"}, ObstacleReason.NO_CLASS),
        ({AUTOTUNE: "enforce", CLASS: "batch", MAX_SLOWDOWN: "a lot"}, ObstacleReason.OPTED_OUT),
    ],
)
def test_a_pod_that_changes_its_consent_counts_at_once(
    held: World, annotations: dict[str, str], reason: ObstacleReason
) -> None:
    held.annotations["a"] = annotations
    held.tick()
    assert lifted(held, 0, 1)
    assert {held.gpu(0).reason, held.gpu(1).reason} == {reason}


def test_a_lower_bound_is_kept_from_now_on(held: World) -> None:
    held.annotations["a"] = {AUTOTUNE: "enforce", CLASS: "batch", MAX_SLOWDOWN: "2%"}
    before = held.clocks["GPU-0"]
    held.tick()
    assert held.clocks["GPU-0"] is None
    held.until(TuningState.HOLDING)
    assert before is not None
    assert held.clocks["GPU-0"] is not None
    assert held.clocks["GPU-0"] > before
    assert 1 - 1 / (0.8 + 0.2 * TOP / held.clocks["GPU-0"]) <= 0.02


def test_a_burst_of_a_serving_pod_lifts_its_cap_within_a_sample() -> None:
    world = World()
    world.annotations["b"] = {AUTOTUNE: "enforce", CLASS: "serving"}
    work = world.works["GPU-2"]
    assert work is not None
    work.engine = 0.6
    world.until(TuningState.HOLDING, 2)
    work.engine = 0.97
    world.tick()
    assert world.clocks["GPU-2"] is None
    work.engine = 0.6
    world.run(60)
    assert world.clocks["GPU-2"] is not None


def test_work_that_holds_a_gpu_and_does_nothing_rests_at_the_floor_and_wakes_at_once(held: World) -> None:
    work = held.works["GPU-2"]
    assert work is not None
    work.engine = 0.0
    held.until(TuningState.RESTING, 2, 700)
    assert held.clocks["GPU-2"] == 990e6
    before = held.gpu(2).joules_saved
    held.run(120)
    assert held.gpu(2).joules_saved > before
    work.engine = 0.5
    held.tick()
    assert held.clocks["GPU-2"] is None
    assert held.gpu(2).state is TuningState.VERIFYING


def test_s1_an_idle_gpu_whose_clocks_are_low_by_themselves_or_by_a_lock_of_another_program_is_left_alone(
    held: World,
) -> None:
    work = held.works["GPU-2"]
    assert work is not None
    work.engine = 0.0
    held.locked["GPU-2"] = 1200e6
    held.stopped = "a person"  # what is ours goes
    held.run(5)
    held.stopped = ""
    held.run(900)
    assert "GPU-2" not in {key[0] for key in held.record}
    assert held.gpu(2).state is not TuningState.RESTING


def test_a_serving_pod_that_waits_for_requests_never_rests() -> None:
    world = World()
    world.annotations["b"] = {AUTOTUNE: "enforce", CLASS: "serving"}
    work = world.works["GPU-2"]
    assert work is not None
    work.engine = 0.0
    world.run(900)
    assert world.gpu(2).state is not TuningState.RESTING
    assert world.clocks["GPU-2"] is None


def test_what_a_class_that_was_only_configured_for_others_says_is_enough_to_rest() -> None:
    world = World(work_class="batch")
    world.annotations["b"] = {AUTOTUNE: "enforce"}
    work = world.works["GPU-2"]
    assert work is not None
    work.engine = 0.0
    world.until(TuningState.RESTING, 2, 700)


def test_what_was_saved_is_verified_not_searched(held: World) -> None:
    world = World()
    world.saved = dict(held.step.kept)
    assert len(world.saved) == 2
    world.until(TuningState.VERIFYING, 0, 10)
    world.until(TuningState.HOLDING, 0, 200)
    assert world.clocks["GPU-0"] == held.clocks["GPU-0"]


def test_gpus_without_counters_are_refused_with_words() -> None:
    world = World()
    world.counted = False
    world.run(120)
    assert {world.gpu(index).reason for index in range(3)} == {ObstacleReason.NO_COUNTERS}
    assert "Hopper" in world.gpu(0).message


def test_with_a_budget_clocks_are_the_energy_loops_and_power_limits_the_budgets() -> None:
    world = World(node_budget_watts=1800.0)
    world.until(TuningState.HOLDING, 2)
    knobs = {(order.uuid, order.knob) for _, order in world.orders}
    assert {knob for uuid, knob in knobs if uuid == "GPU-3"} <= {"power_limit"}
    assert world.clocks["GPU-2"] is not None
    assert world.step.budget is not None
    assert world.step.budget.budget == 1800.0
    assert world.gpu(2).power_limit == world.limits["GPU-2"] != 700.0
    world.stopped = "a person"
    world.run(2)
    assert not world.record
    assert set(world.limits.values()) == {700.0}


def test_a_pod_that_is_opted_out_gets_back_first_what_the_budget_took_from_the_one_before() -> None:
    world = World(node_budget_watts=1400.0)
    world.until(TuningState.SEARCHING, 2)
    assert world.limits["GPU-2"] < 480  # it would draw 500
    world.annotations["d"] = {AUTOTUNE: "off"}
    world.works["GPU-2"] = Work("d", (99,))
    world.run(120)
    assert world.gpu(2).reason is ObstacleReason.OPTED_OUT
    assert world.limits["GPU-2"] >= 500
    assert sum(world.limits.values()) <= 1400


def limit(world: World, watts: float) -> None:
    """Another power limit for GPU-2, and nobody's setting."""
    world.limits["GPU-2"] = world.defaults["GPU-2"] = watts


def test_another_power_limit_while_it_is_observed_or_searched_starts_over_and_refuses_nobody() -> None:
    world = World()
    world.run(30)
    limit(world, 350.0)  # as the budget does: its work gets slower
    world.run(10)
    assert world.gpu(2).state is TuningState.OBSERVING
    world.until(TuningState.SEARCHING, 2, 120)
    world.run(60)
    limit(world, 400.0)
    world.tick()
    assert world.gpu(2).state is TuningState.OBSERVING
    assert KEYS[2] not in world.record
    for _ in range(1200):
        assert world.gpu(2).state is not TuningState.REFUSED
        world.tick()
    assert world.gpu(2).state is TuningState.HOLDING


def limited() -> World:
    """A world in which a power limit, not the GPU's highest clock, sets the pace of GPU-2."""
    world = World()
    work = world.works["GPU-2"]
    assert work is not None
    work.bound = 0.7
    limit(world, 350.0)
    return world


def test_under_a_power_limit_a_search_goes_from_the_clock_that_is_reached_and_shows_each_step_once() -> None:
    world, reports = limited(), []
    while world.tick().gpus[2].state is not TuningState.HOLDING and world.now < 1900:
        reports += [(each.before, each.after) for each in world.step.reports if each.uuid == "GPU-2"]
    assert world.gpu(2).state is TuningState.HOLDING
    assert reports[0] == ("", setting_text("locked_clocks", 1260e6))  # four fifths of 1560 MHz, not of 1980
    assert len(reports) == len(set(reports))
    left = world.speed("GPU-2") / world.speed("GPU-2", capped=False)
    assert 0.95 <= left < 0.97


def test_a_cap_found_under_a_power_limit_is_tried_again_when_the_limit_rises() -> None:
    world = limited()
    world.works["GPU-0"] = world.works["GPU-1"] = None
    world.until(TuningState.HOLDING, 2)
    limit(world, 700.0)  # under the cap nothing changes
    over = 0
    for _ in range(1200):
        world.tick()
        over += world.speed("GPU-2") < 0.94 * world.speed("GPU-2", capped=False)
    assert over < 60


def test_a_limit_that_falls_leaves_a_held_cap_alone(held: World) -> None:
    limit(held, 690.0)
    held.run(60)
    assert held.gpu(2).state is TuningState.HOLDING


def test_where_clocks_cannot_be_locked_the_power_limit_is_the_knob_unless_it_is_the_budgets() -> None:
    world = World(knob="power_limit")
    world.until(TuningState.SEARCHING, 2)
    world.run(20)
    assert {order.knob for _, order in world.orders} == {"power_limit"}
    world = World(knob="power_limit", node_budget_watts=2800.0)
    world.run(120)
    assert world.gpu(2).reason is ObstacleReason.NO_KNOB
