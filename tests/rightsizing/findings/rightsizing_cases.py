"""Workloads for tests of right-sizing: each is plain, and a test changes what it is about."""

from typing import Any

from msgspec.structs import replace

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.work import DayPeak, Distribution, WorkClass, WorkloadKey
from gpuwatch.rightsizing.findings.judge import recommend
from gpuwatch.rightsizing.model.recommendation import FindingKind, Recommendation, Recommendations
from gpuwatch.rightsizing.model.usage import DeviceAllocation, FleetFacts, NamespaceUsage, Slowdown, WorkloadSummary

HOUR, DAY, GIB = 3600.0, 86400.0, 2**30
NOW = 1_790_000_000.0
H100 = "NVIDIA H100 80GB HBM3"
TOTAL = 80 * GIB

KINDS: dict[WorkClass | None, str] = {
    "batch": "Job",
    "notebook": "Notebook",
    "serving": "InferenceService",
    None: "Deployment",
}


def spread(mean: float, p95: float | None = None) -> Distribution:
    """A distribution with these."""
    high = mean if p95 is None else p95
    return Distribution(mean=mean, p50=mean, p95=high, max=high)


def a_hold(**changes: Any) -> DeviceAllocation:
    """A whole H100 that one pod has worked on for ten days."""
    hold = DeviceAllocation(
        pod="chat-0",
        gpu="GPU-0",
        node="node-a",
        index=0,
        model=H100,
        resource="nvidia.com/gpu",
        since=NOW - 10 * DAY,
        last=NOW,
        present=True,
        covered=10 * DAY,
        worked=True,
        processes=1,
        busy=0.5,
        watts=400.0,
        loaded_idle_watts=110.0,
        pcie=0.0,
        memory=30 * GIB,
        memory_at_start=5 * GIB,
        memory_later=30.0 * GIB,
        memory_spread=0.3,
        power_limit=700.0,
    )
    return replace(hold, **changes)


def an_idle_hold(seconds: float = 5 * DAY, /, **changes: Any) -> DeviceAllocation:
    """One that has done nothing for so many seconds, up to now."""
    return a_hold(**{"idle_since": NOW - seconds, "watts": 112.0} | changes)


def a_workload(*holds: DeviceAllocation, work_class: WorkClass | None = "batch", **changes: Any) -> WorkloadSummary:
    """Busy, large and well known: nothing is to be said of it, unless a test changes that."""
    summary = WorkloadSummary(
        key=WorkloadKey(namespace="nlp", name="chat", container="main", kind=KINDS[work_class], image="nlp/chat:1"),
        work_class=work_class,
        first=NOW - 14 * DAY,
        last=NOW,
        held=14 * DAY,
        covered=14 * DAY,
        days=14.0,
        holds=holds or (a_hold(),),
        models=(H100,),
        memory_total=TOTAL,
        busy=spread(0.45, 0.99),
        peaks=peaks(*[30] * 8),
    )
    known = {"first": NOW - changes["days"] * DAY} if "days" in changes else {}
    return replace(summary, **known | changes)


def peaks(*sizes: float) -> tuple[DayPeak, ...]:
    """GiB of one day after the other."""
    return tuple(DayPeak(day=20_700 + day, bytes=int(size * GIB)) for day, size in enumerate(sizes))


def slow(**high: float) -> tuple[Slowdown, ...]:
    """Slowdowns by profile, with `_` for the dot: `slow(p1g_10gb=0.1)`."""
    return tuple(Slowdown(profile=name[1:].replace("_", "."), low=0.0, high=value) for name, value in high.items())


def a_small_one(**changes: Any) -> WorkloadSummary:
    """It would fit the smallest instance."""
    small = a_workload(
        a_hold(busy=0.05), busy=spread(0.1, 0.3), peaks=peaks(*[5] * 8), slowdowns=slow(p1g_10gb=0.1, p1g_20gb=0.05)
    )
    return replace(small, **changes)


def advised(
    *summaries: WorkloadSummary,
    fleet: FleetFacts = FleetFacts(),  # noqa: B008
    now: float = NOW,
    **settings: Any,
) -> Recommendations:
    """The judgement, with some settings changed."""
    return recommend(summaries, fleet, RightsizingConfig(**settings), now)


def found(*summaries: WorkloadSummary, **more: Any) -> dict[FindingKind, Recommendation]:
    """What is found, by finding."""
    return {item.kind: item for item in advised(*summaries, **more).items}


def a_namespace(**changes: Any) -> NamespaceUsage:
    """Sixteen GPUs promised, at most eight at work."""
    use = NamespaceUsage(
        namespace="nlp", quota="gpus", hard=16, used=8, held=8, active=(6.0, 7.0, 8.0) * 4, days=14.0, steady=0
    )
    return replace(use, **changes)
