"""Right-sizing where a small difference matters: what is past, what is exactly at a bound, and what the words say."""

from itertools import permutations

import pytest
from msgspec.structs import replace

from gpuwatch.config import RightsizingConfig
from gpuwatch.rightsizing.findings.advice import allocation_text, savings
from gpuwatch.rightsizing.findings.workload import PREALLOCATED
from gpuwatch.rightsizing.model.recommendation import FindingKind, Level, RecommendedAction
from gpuwatch.rightsizing.model.usage import DeviceAllocation, FleetFacts, GpuFacts
from tests.rightsizing.findings.rightsizing_cases import (
    DAY,
    GIB,
    HOUR,
    NOW,
    a_hold,
    a_namespace,
    a_small_one,
    a_workload,
    advised,
    an_idle_hold,
    found,
    peaks,
    slow,
)
from tests.rightsizing.findings.test_idle import untouched
from tests.rightsizing.findings.test_namespace import whole
from tests.rightsizing.findings.test_rightsizing_size import (
    A10,
    a_gang,
    classed,
    preallocating,
    seldom_busy,
    training,
    waiting,
)


def test_who_waits_is_reported_with_how_often_it_swings() -> None:
    assert "in 80 % of it, it swings" in found(waiting())[FindingKind.CPU_BOUND].why


@pytest.mark.parametrize(("throttled", "is_held_back"), [(0.1, False), (0.11, True)])
def test_a_limit_that_holds_back_one_period_in_ten_is_none(throttled: float, is_held_back: bool) -> None:
    assert (FindingKind.CPU_BOUND in found(waiting(cpu_throttled=throttled))) is is_held_back


@pytest.mark.parametrize(
    "past",
    [
        {"device": "MIG-0", "profile": "2g.20gb", "resource": "nvidia.com/mig-2g.20gb"},
        {"resource": "nvidia.com/GRID_A100-10C"},
    ],
)
def test_what_it_has_now_counts_not_what_it_had(past: dict[str, str]) -> None:
    now = a_hold(busy=0.05)
    before = a_hold(pod="chat-old", present=False, busy=0.05, **past)
    assert FindingKind.MIG_FIT in found(a_small_one(holds=(now, before)))


def test_outside_kubernetes_there_is_no_annotation_to_tune_by() -> None:
    work = training()
    assert FindingKind.ENERGY in found(work)
    assert FindingKind.ENERGY not in found(replace(work, key=replace(work.key, namespace="")))


def test_a_gang_of_instances_is_not_advised_to_take_fewer() -> None:
    gang = a_gang(0.8, 0.0)
    cut = {"profile": "1g.10gb", "resource": "nvidia.com/mig-1g.10gb"}
    holds = tuple(replace(hold, device=f"MIG-{at}", **cut) for at, hold in enumerate(gang.holds))
    assert FindingKind.GANG_OVERSIZED in found(gang)
    assert FindingKind.GANG_OVERSIZED not in found(replace(gang, holds=holds))


def test_never_used_says_how_long_the_one_that_was_held_longest_was() -> None:
    long, short = (untouched(days, pod=f"chat-{days}", gpu=f"GPU-{days}") for days in (144, 120))
    assert "Held for 6 days" in found(a_workload(long, short))[FindingKind.NEVER_USED].why


def test_what_was_taken_at_once_is_the_most_that_any_of_its_pods_took() -> None:
    summary = preallocating()
    other = a_hold(pod="chat-1", gpu="GPU-1", busy=0.05, memory_at_start=5 * GIB)
    item = found(replace(summary, holds=(*summary.holds, other)))[FindingKind.PREALLOCATED]
    assert "Took 72.0 GiB" in item.why
    assert item.current == "2 x nvidia.com/gpu"


def test_between_its_jobs_what_a_cronjob_had_is_what_it_has() -> None:
    small = a_small_one(holds=(a_hold(present=False),), held=7 * DAY, covered=7 * DAY)
    cron = replace(small, key=replace(small.key, kind="CronJob"))
    assert found(cron)[FindingKind.MIG_FIT].current == "nvidia.com/gpu"


def test_the_risk_of_an_instance_is_higher_where_users_wait_for_its_work() -> None:
    batch, serving = a_small_one(), classed(a_small_one(), "serving")
    assert found(batch)[FindingKind.MIG_FIT].risk is Level.LOW
    assert found(serving)[FindingKind.MIG_FIT].risk is Level.MEDIUM


@pytest.mark.parametrize(("gib", "profile", "is_estimated"), [(15, "1g_23gb", False), (60, "3g_90gb", True)])
def test_the_risk_of_an_instance_that_nobody_has_measured_reports_it(
    gib: int, profile: str, is_estimated: bool
) -> None:
    model = "NVIDIA B200"
    summary = a_small_one(
        holds=(a_hold(model=model, busy=0.05),),
        models=(model,),
        memory_total=180 * GIB,
        peaks=peaks(*[gib] * 8),
        slowdowns=slow(**{f"p{profile}": 0.1}),
    )
    item = found(summary)[FindingKind.MIG_FIT]
    assert ("estimated" in item.risk_text) is is_estimated
    assert item.risk is (Level.MEDIUM if is_estimated else Level.LOW)


@pytest.mark.parametrize(("days", "is_known"), [(6.9, False), (7.0, True)])
def test_a_namespace_is_known_after_a_whole_week(days: float, is_known: bool) -> None:
    use = a_namespace(days=days, active=(6.0,) * 7)
    assert (FindingKind.QUOTA_SLACK in found(fleet=whole(use))) is is_known


@pytest.mark.parametrize(("hours", "is_idle"), [(2, True), (4, False)])
def test_who_was_seen_last_three_hours_ago_may_have_worked_since(hours: float, is_idle: bool) -> None:
    hold = an_idle_hold(5 * DAY, last=NOW - hours * HOUR)
    assert (FindingKind.IDLE_HOLDER in found(a_workload(hold))) is is_idle


def test_less_draw_saves_money_also_where_the_price_of_the_gpu_is_not_known() -> None:
    saved = savings(RightsizingConfig(electricity_price=0.25), None, 0.0, 1000.0)
    assert saved.money_per_day == pytest.approx(6.0)
    assert savings(RightsizingConfig(electricity_price=0.25), None, 1.0, 1000.0).money_per_day is None


def test_who_took_most_of_it_at_once_is_not_advised_to_share() -> None:
    hold = a_hold(model=A10, busy=0.05, memory_at_start=72 * GIB, memory_later=72.0 * GIB, memory_spread=0.001)
    assert FindingKind.DUTY_CYCLED not in found(seldom_busy(holds=(hold,)))


def test_an_instance_that_is_seldom_busy_is_not_advised_to_share_a_gpu_that_it_has_not() -> None:
    cut = {"device": "MIG-0", "profile": "1g.10gb", "resource": "nvidia.com/mig-1g.10gb"}
    assert FindingKind.DUTY_CYCLED not in found(seldom_busy(holds=(a_hold(model=A10, busy=0.05, **cut),)))


def test_sharing_is_a_higher_risk_where_users_wait_for_its_work() -> None:
    assert found(seldom_busy())[FindingKind.DUTY_CYCLED].risk is Level.MEDIUM
    assert found(classed(seldom_busy(), "serving"))[FindingKind.DUTY_CYCLED].risk is Level.HIGH


@pytest.mark.parametrize(
    ("minutes", "action"), [(20, RecommendedAction.ASK_OWNER), (300, RecommendedAction.SCALE_DOWN)]
)
def test_a_pod_may_go_when_all_its_containers_have_been_idle_for_long_enough(
    minutes: float, action: RecommendedAction
) -> None:
    idle = a_workload(an_idle_hold())
    other = a_workload(an_idle_hold(minutes * 60, gpu="GPU-1"), key=replace(idle.key, container="sidecar"))
    told = [item for item in advised(idle, other).items if item.kind is FindingKind.IDLE_HOLDER]
    assert [item.action for item in told if item.target.gpus == ("GPU-0",)] == [action]


@pytest.mark.parametrize(
    ("hold", "text"),
    [
        (a_hold(), "1 x nvidia.com/gpu"),
        (a_hold(resource=None), "1 x GPU"),
        (a_hold(resource=None, device="MIG-0", profile="1g.10gb"), "1 x MIG 1g.10gb"),
        (a_hold(resource=None, device="MIG-0"), "1 x MIG instance"),
    ],
)
def test_what_is_held_is_named_as_well_as_it_is_known(hold: DeviceAllocation, text: str) -> None:
    assert allocation_text((hold,)) == text


def test_a_pod_that_used_one_of_its_gpus_has_not_left_all_unused() -> None:
    holds = (an_idle_hold(DAY), untouched(48.0, gpu="GPU-1"))
    assert FindingKind.NEVER_USED not in found(a_workload(*holds))
    assert found(a_workload(*holds))[FindingKind.IDLE_HOLDER].savings.gpu_hours_per_day == 48


def test_who_ends_an_idle_pod_loses_what_it_has_in_memory_and_nobody_else_does() -> None:
    assert found(a_workload(an_idle_hold(HOUR)))[FindingKind.IDLE_HOLDER].risk is Level.MEDIUM
    assert found(a_workload(untouched(48.0)))[FindingKind.NEVER_USED].risk is Level.LOW
    asked = found(a_workload(an_idle_hold(), work_class="serving"))[FindingKind.IDLE_HOLDER]
    assert asked.risk is Level.LOW


def test_only_of_what_may_serve_answers_may_come_later() -> None:
    late = "Answers may come later"
    assert late not in found(a_small_one())[FindingKind.MIG_FIT].risk_text
    assert late in found(classed(a_small_one(), "serving"))[FindingKind.MIG_FIT].risk_text


def test_the_setting_of_who_takes_all_at_once_is_changed_on_one_gpu() -> None:
    assert found(preallocating(programs=("vllm",)))[FindingKind.PREALLOCATED].change.count == 1


def test_what_was_taken_at_once_begins_at_a_share_of_the_gpu() -> None:
    enough = int(PREALLOCATED * 80 * GIB)
    assert enough == PREALLOCATED * 80 * GIB
    assert FindingKind.PREALLOCATED in found(preallocating({"memory_at_start": enough}))
    assert FindingKind.PREALLOCATED not in found(preallocating({"memory_at_start": enough - 1}))


@pytest.mark.parametrize("order", list(permutations("abc")), ids="".join)
def test_of_those_that_hold_as_much_the_one_that_draws_more_comes_first(order: tuple[str, ...]) -> None:
    drawing = zip(order, (112.0, 90.0, 70.0), strict=True)
    work = {name: a_workload(an_idle_hold(pod=name, gpu=f"GPU-{name}", watts=watts)) for name, watts in drawing}
    named = [replace(each, key=replace(each.key, name=name)) for name, each in sorted(work.items())]
    gpus = tuple(GpuFacts(node="node-a", uuid=f"GPU-{name}", idle_watts=50.0) for name in order)
    assert tuple(item.target.name for item in advised(*named, fleet=FleetFacts(gpus=gpus)).items) == order


def test_evidence_of_idleness_is_about_the_holds_that_idle() -> None:
    idle = an_idle_hold(HOUR, since=NOW - 2 * DAY)
    assert found(a_workload(idle))[FindingKind.IDLE_HOLDER].evidence.held_seconds == 2 * DAY


@pytest.mark.parametrize(("covered", "is_known"), [(0.5, True), (0.49, False)])
def test_a_size_is_judged_from_the_least_coverage_on(covered: float, is_known: bool) -> None:
    work = a_small_one(held=14 * DAY, covered=covered * 14 * DAY)
    assert (FindingKind.MIG_FIT in found(work, min_coverage=0.5)) is is_known
