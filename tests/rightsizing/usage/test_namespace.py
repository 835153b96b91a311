"""GPUs at work in a namespace: day by day, at a time, and in nearly all of it."""

from collections.abc import Iterable

import pytest

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.work import WorkloadKey
from gpuwatch.rightsizing.model.usage import NamespaceUsage, UsageWindow
from gpuwatch.rightsizing.usage.ledger import UsageLedger
from gpuwatch.rightsizing.usage.namespace import MAX_DAYS
from tests.rightsizing.usage.usage_spans import BEGIN, DAY, HOUR, MINUTE, at_rest, at_work, unobserved


def uses(*parts: Iterable[UsageWindow]) -> dict[tuple[str, str], NamespaceUsage]:
    windows = sorted((each for part in parts for each in part), key=lambda each: each.at)
    ledger = UsageLedger(RightsizingConfig())
    for each in windows:
        ledger.add(each)
    now = max(each.at + each.span for each in windows)
    return {(use.namespace, use.resource): use for use in ledger.namespaces(now)}


def use(*parts: Iterable[UsageWindow]) -> NamespaceUsage:
    (only,) = uses(*parts).values()
    return only


def gpus(count: int, begin: float, seconds: float, first: int = 0, **members: object) -> list[UsageWindow]:
    """That many pods at work, each on a GPU of its own."""
    return [
        each
        for number in range(first, first + count)
        for each in at_work(begin, seconds, pod=f"pod-{number}", gpu=f"GPU-{number}", **members)
    ]


@pytest.mark.parametrize("span", [MINUTE, 5 * MINUTE, HOUR])
def test_the_most_at_a_time_of_each_day_whatever_the_windows_are(span: float):
    found = use(
        gpus(2, BEGIN, 6 * HOUR, span=span),
        gpus(3, BEGIN + 2 * HOUR, HOUR, first=2, span=span),
        gpus(1, BEGIN + DAY, HOUR, span=span),
    )

    assert (found.active, found.held) == ((5.0, 1.0), 1)


def test_pods_that_follow_each_other_are_one_gpu_at_a_time():
    found = use(*(gpus(1, BEGIN + number * HOUR, HOUR, first=number) for number in range(5)))

    assert found.active == (1.0,)


def test_who_holds_and_rests_is_not_at_work_who_is_unseen_may_be():
    assert use(at_rest(BEGIN, HOUR)).active == (0.0,)
    assert use(unobserved(BEGIN, HOUR)).active == (1.0,)
    assert use(unobserved(BEGIN, HOUR)).steady == 0
    assert use(at_rest(BEGIN, HOUR)).held == 1


def test_steady_is_what_works_nearly_always():
    found = use(gpus(2, BEGIN, DAY, span=5 * MINUTE), gpus(4, BEGIN + HOUR, 22 * HOUR, first=2, span=5 * MINUTE))

    assert found.active == (6.0,)
    assert found.steady == 2


def test_time_without_any_pod_is_no_steady_load():
    other = WorkloadKey(namespace="team-b", name="other")
    watched = at_work(BEGIN, DAY, span=5 * MINUTE, pod="other", gpu="GPU-9", key=other)

    found = uses(gpus(2, BEGIN, 20 * HOUR, span=5 * MINUTE), gpus(1, BEGIN + 23.5 * HOUR, HOUR / 2), watched)

    assert found["team-a", "nvidia.com/gpu"].steady == 0
    assert found["team-b", "nvidia.com/gpu"].steady == 1


def test_time_in_which_nobody_was_seen_does_not_count():
    found = use(gpus(2, BEGIN, 4 * HOUR), gpus(2, BEGIN + 20 * HOUR, 4 * HOUR))

    assert found.steady == 2


def test_shared_gpus_count_by_slot_and_instances_by_their_resource():
    found = uses(
        at_work(BEGIN, HOUR, pod="a", resource="nvidia.com/gpu.shared", replicas=2),
        at_work(BEGIN, HOUR, pod="b", resource="nvidia.com/gpu.shared"),
        at_work(BEGIN, HOUR, pod="c", device="MIG-1", profile="1g.10gb+me"),
    )

    assert {resource: each.active for (_, resource), each in found.items()} == {
        "nvidia.com/gpu.shared": (3.0,),
        "nvidia.com/mig-1g.10gb.me": (1.0,),
    }


def test_two_weeks_are_remembered():
    found = use(*(gpus(1, BEGIN + day * DAY, HOUR, span=HOUR) for day in range(3 * MAX_DAYS)))

    assert found.active == (1.0,) * MAX_DAYS


def test_looking_in_between_changes_nothing():
    ledger, once = UsageLedger(RightsizingConfig()), UsageLedger(RightsizingConfig())
    for each in sorted(gpus(3, BEGIN + 130, 2 * HOUR, span=7 * MINUTE), key=lambda each: each.at):
        ledger.add(each)
        once.add(each)
        ledger.namespaces(each.at + each.span)

    assert ledger.namespaces(BEGIN + 3 * HOUR) == once.namespaces(BEGIN + 3 * HOUR)
    assert ledger.state() == once.state()


def test_what_is_reported_late_counts_no_bin_twice():
    late = [
        each
        for pair in zip(gpus(1, BEGIN, HOUR), gpus(1, BEGIN + MINUTE, HOUR, first=1), strict=True)
        for each in pair[::-1]
    ]
    found = UsageLedger(RightsizingConfig())
    for each in late:
        found.add(each)

    (use,) = found.namespaces(BEGIN + HOUR)
    assert (use.active, use.steady) == ((2.0,), 2)
