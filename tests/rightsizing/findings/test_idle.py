"""Idle and never used GPUs: found where they are, and each reason for which one is left alone."""

from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.model.work import WorkClass
from gpuwatch.rightsizing.model.recommendation import FindingKind, Level, RecommendedAction
from gpuwatch.rightsizing.model.usage import DeviceAllocation, FleetFacts, GpuFacts
from tests.rightsizing.findings.rightsizing_cases import DAY, GIB, HOUR, NOW, a_hold, a_workload, an_idle_hold, found

IDLE = {FindingKind.IDLE_HOLDER, FindingKind.NEVER_USED}


def untouched(hours: float = 2.0, **changes: Any) -> DeviceAllocation:
    """Held for some hours, without any process."""
    since = NOW - hours * HOUR
    values = {"worked": False, "processes": 0, "busy": 0.0, "memory": 0, "idle_since": since, "watts": 70.0}
    return a_hold(**values | {"since": since, "covered": hours * HOUR} | changes)


def test_a_job_that_stopped_working_is_to_give_its_gpu_back() -> None:
    item = found(a_workload(an_idle_hold(HOUR)))[FindingKind.IDLE_HOLDER]

    assert item.action is RecommendedAction.SCALE_DOWN
    assert item.savings.gpu_hours_per_day == 24
    assert item.evidence.idle_seconds == HOUR
    assert item.target.pods == ("chat-0",)
    assert "60 minutes" in item.why
    assert item.expires == NOW + DAY


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"idle_since": None}, id="it works"),
        pytest.param({"idle_since": NOW - 1700}, id="not for long enough"),
        pytest.param({"busy": None}, id="nobody can tell how busy it is"),
        pytest.param({"pcie": 2.0**21}, id="it copies"),
        pytest.param({"watts": 300.0}, id="it draws as if it worked"),
        pytest.param({"present": False}, id="it is gone"),
        pytest.param({"longest_gap": 3 * HOUR}, id="it has paused so long before"),
        pytest.param({"since": NOW - 2000, "idle_since": NOW - 2000}, id="it has only begun"),
        pytest.param({"last": NOW - DAY, "idle_since": NOW - 2 * DAY}, id="nobody has seen it for a day"),
    ],
)
def test_a_gpu_is_not_idle_when(change: dict[str, Any]) -> None:
    assert not IDLE & found(a_workload(an_idle_hold(HOUR, **change))).keys()


def test_a_draw_below_any_work_is_rest_whatever_the_lowest_was_before_a_context() -> None:
    hold = an_idle_hold(HOUR, watts=120.0, loaded_idle_watts=35.0, power_limit=700.0)

    assert FindingKind.IDLE_HOLDER in found(a_workload(hold))
    assert FindingKind.IDLE_HOLDER not in found(a_workload(replace(hold, power_limit=None)))


def test_what_is_not_known_of_draw_and_copies_prevents_nothing() -> None:
    hold = an_idle_hold(HOUR, pcie=None, watts=None, loaded_idle_watts=None, power_limit=None)

    assert FindingKind.IDLE_HOLDER in found(a_workload(hold))


@pytest.mark.parametrize("work_class", ["serving", None])
def test_of_what_may_serve_the_owner_is_asked(work_class: WorkClass | None) -> None:
    item = found(a_workload(an_idle_hold(), work_class=work_class))[FindingKind.IDLE_HOLDER]

    assert item.action is RecommendedAction.ASK_OWNER
    assert item.change.to_count is None
    assert not [each for each in item.apply if each.command]


def test_a_job_that_runs_a_server_is_asked_for_too() -> None:
    item = found(a_workload(an_idle_hold(), programs=("/usr/bin/vllm",)))[FindingKind.IDLE_HOLDER]

    assert item.action is RecommendedAction.ASK_OWNER


@pytest.mark.parametrize("work_class", ["notebook", "serving", None])
def test_a_weekend_is_no_idleness(work_class: WorkClass | None) -> None:
    """Who has nights has weekends, and holidays next to them."""
    weekend = an_idle_hold(62 * HOUR, longest_gap=14 * HOUR)

    assert not found(a_workload(weekend, work_class=work_class, days=14.0))
    assert found(a_workload(replace(weekend, idle_since=NOW - 5 * DAY), work_class=work_class, days=14.0))


def test_who_never_paused_for_a_week_is_idle_at_once() -> None:
    quiet = an_idle_hold(HOUR, longest_gap=600.0)

    assert FindingKind.IDLE_HOLDER in found(a_workload(quiet, work_class=None, days=8.0))
    assert FindingKind.IDLE_HOLDER not in found(a_workload(quiet, work_class=None, days=5.0))
    assert FindingKind.IDLE_HOLDER in found(
        a_workload(replace(quiet, idle_since=NOW - 13 * HOUR), work_class=None, days=5.0)
    )


def test_a_pause_of_a_pod_that_is_gone_counts() -> None:
    gone = a_hold(pod="chat-old", present=False, longest_gap=10 * HOUR)

    assert not found(a_workload(an_idle_hold(11 * HOUR), gone))
    assert found(a_workload(an_idle_hold(13 * HOUR), gone))


def test_a_new_image_has_the_pauses_of_the_old_one() -> None:
    new = a_workload(untouched(40, processes=1, memory=9 * GIB), work_class=None, days=40 / 24)
    pausing = a_hold(pod="chat-old", present=False, longest_gap=62 * HOUR)
    old = a_workload(pausing, key=replace(new.key, image="nlp/chat:0"), work_class=None)
    other = replace(old, key=replace(old.key, container="side"))

    assert not found(new, old)
    assert FindingKind.IDLE_HOLDER in found(new, other)


def test_a_new_image_that_does_nothing_is_idle_at_once_where_the_old_one_never_paused() -> None:
    new = a_workload(untouched(2, processes=1, memory=9 * GIB), work_class=None, days=2 / 24)
    old = a_workload(a_hold(pod="chat-old", present=False), key=replace(new.key, image="nlp/chat:0"), work_class=None)

    assert not found(new)
    assert FindingKind.IDLE_HOLDER in found(new, old)


def test_what_is_asked_now_and_then_is_not_idle() -> None:
    assert not IDLE & found(a_workload(an_idle_hold(has_requests=True))).keys()
    assert not IDLE & found(a_workload(an_idle_hold(has_requests=True, device="MIG-0", profile="1g.10gb"))).keys()


def test_a_gpu_that_was_not_seen_for_a_while_was_still_seen_from_its_begin() -> None:
    late = untouched(5, idle_since=NOW - 3 * HOUR)

    assert FindingKind.NEVER_USED not in found(a_workload(late))
    assert FindingKind.NEVER_USED in found(a_workload(replace(late, unobserved=2 * HOUR)))


def test_a_pod_with_one_gpu_at_work_is_not_idle() -> None:
    assert not IDLE & found(a_workload(an_idle_hold(), a_hold(gpu="GPU-1"), gpus_per_pod=2)).keys()


def test_where_other_pods_work_the_owner_is_asked_of_those_that_rest() -> None:
    item = found(a_workload(an_idle_hold(), a_hold(pod="chat-1", gpu="GPU-1")))[FindingKind.IDLE_HOLDER]

    assert item.action is RecommendedAction.ASK_OWNER
    assert item.target.pods == ("chat-0",)
    assert item.savings.gpu_hours_per_day == 24


def test_where_another_container_of_the_pod_works_the_owner_is_asked() -> None:
    resting = a_workload(an_idle_hold())
    other = a_workload(a_hold(gpu="GPU-1"), key=replace(resting.key, container="side"))

    assert found(resting, other)[FindingKind.IDLE_HOLDER].action is RecommendedAction.ASK_OWNER
    assert found(resting)[FindingKind.IDLE_HOLDER].action is RecommendedAction.SCALE_DOWN


def test_the_longer_the_surer() -> None:
    spans = (HOUR, 3 * HOUR, 2 * DAY)
    sure = [found(a_workload(an_idle_hold(span)))[FindingKind.IDLE_HOLDER].confidence for span in spans]

    assert sure == [Level.LOW, Level.MEDIUM, Level.HIGH]


def test_an_instance_frees_its_slices_whatever_its_neighbours_draw() -> None:
    hold = an_idle_hold(HOUR, device="MIG-0", profile="1g.10gb", watts=600.0, pcie=1e9)
    item = found(a_workload(hold))[FindingKind.IDLE_HOLDER]

    assert item.savings.gpu_hours_per_day == pytest.approx(24 / 7)
    assert item.savings.watts is None


def test_a_shared_gpu_frees_a_part() -> None:
    item = found(a_workload(an_idle_hold(HOUR, holders=4)))[FindingKind.IDLE_HOLDER]

    assert item.savings.gpu_hours_per_day == 6


def test_watts_are_those_above_rest_and_money_needs_prices() -> None:
    fleet = FleetFacts(gpus=(GpuFacts(node="node-a", uuid="GPU-0", idle_watts=72.0),))
    work = a_workload(an_idle_hold(HOUR))
    free = found(work, fleet=fleet)[FindingKind.IDLE_HOLDER].savings
    priced = found(work, fleet=fleet, prices={"*H100*": 2.0}, electricity_price=0.5)[FindingKind.IDLE_HOLDER].savings

    assert (free.watts, free.money_per_day, free.currency) == (40.0, None, None)
    assert priced.money_per_day == pytest.approx(24 * 2 + 40 * 24 / 1000 * 0.5)
    assert priced.currency == "USD"
    assert found(work, prices={"*A100*": 2.0})[FindingKind.IDLE_HOLDER].savings.money_per_day is None


def test_a_gpu_without_a_process_was_never_used() -> None:
    item = found(a_workload(untouched(), work_class=None, days=0.1))[FindingKind.NEVER_USED]

    assert item.action is RecommendedAction.ASK_OWNER
    assert "2 hours" in item.why
    assert found(a_workload(untouched(), days=0.1))[FindingKind.NEVER_USED].action is RecommendedAction.SCALE_DOWN


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"processes": 2}, id="a process is there"),
        pytest.param({"processes": None, "memory": None}, id="neither processes nor memory are known"),
        pytest.param({"processes": None, "memory": GIB // 2}, id="memory as of a context"),
        pytest.param({"memory": 2 * GIB}, id="memory was taken once"),
        pytest.param({"worked": True}, id="it worked once"),
        pytest.param({"busy": None}, id="nobody can tell whether it works"),
        pytest.param({"since": NOW - DAY}, id="it was not seen from its begin"),
    ],
)
def test_a_gpu_counts_as_used_when(change: dict[str, Any]) -> None:
    assert FindingKind.NEVER_USED not in found(a_workload(untouched(**change)))


def test_little_memory_shows_that_no_context_is_there() -> None:
    assert FindingKind.NEVER_USED in found(a_workload(untouched(processes=None, memory=1 << 20)))


def test_a_new_pod_has_its_grace() -> None:
    assert FindingKind.NEVER_USED not in found(a_workload(untouched(0.6)))
    assert FindingKind.NEVER_USED in found(a_workload(untouched(0.7)))


def test_a_server_that_waits_for_its_first_request_has_a_day() -> None:
    waiting = untouched(20, processes=1, memory=9 * GIB)
    longer = untouched(25, processes=1, memory=9 * GIB)

    assert not found(a_workload(waiting, work_class=None, days=20 / 24))
    assert FindingKind.IDLE_HOLDER in found(a_workload(longer, work_class=None, days=25 / 24))


def test_work_outside_kubernetes_is_seen_too() -> None:
    work = a_workload(an_idle_hold(), work_class=None)
    item = found(replace(work, key=replace(work.key, namespace="", kind="User", name="ann", container="")))

    assert item[FindingKind.IDLE_HOLDER].target.namespace is None
    assert item[FindingKind.IDLE_HOLDER].action is RecommendedAction.ASK_OWNER
