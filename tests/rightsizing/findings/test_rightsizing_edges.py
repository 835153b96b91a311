"""Right-sizing where a small difference matters: what is past, what is exactly at a bound, and what the words say."""

import pytest
from msgspec.structs import replace

from gpuwatch.config import RightsizingConfig
from gpuwatch.rightsizing.findings.advice import savings
from gpuwatch.rightsizing.model.recommendation import FindingKind, Level, RecommendedAction
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


def test_who_waits_is_told_how_often_it_swings() -> None:
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


def test_a_gang_of_instances_is_not_told_to_take_fewer() -> None:
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


def test_the_risk_of_an_instance_is_higher_where_somebody_waits_for_its_work() -> None:
    batch, serving = a_small_one(), classed(a_small_one(), "serving")
    assert found(batch)[FindingKind.MIG_FIT].risk is Level.LOW
    assert found(serving)[FindingKind.MIG_FIT].risk is Level.MEDIUM


@pytest.mark.parametrize(("gib", "profile", "is_estimated"), [(15, "1g_23gb", False), (60, "3g_90gb", True)])
def test_the_risk_of_an_instance_that_nobody_has_measured_says_so(gib: int, profile: str, is_estimated: bool) -> None:
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


def test_who_took_most_of_it_at_once_is_not_told_to_share() -> None:
    hold = a_hold(model=A10, busy=0.05, memory_at_start=72 * GIB, memory_spread=0.001)
    assert FindingKind.DUTY_CYCLED not in found(seldom_busy(holds=(hold,)))


def test_sharing_is_a_higher_risk_where_somebody_waits_for_its_work() -> None:
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
