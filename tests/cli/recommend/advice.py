"""Recommendations of our making, one of every finding, with what is hard to show: long names, HTML, formulas."""

from msgspec.structs import replace

from gpuwatch.model.work import DayPeak, Distribution
from gpuwatch.rightsizing.model.recommendation import (
    Apply,
    Evidence,
    FindingKind,
    Layout,
    Level,
    Placement,
    Predicted,
    Recommendation,
    Recommendations,
    RecommendationTarget,
    RecommendedAction,
    RecommendedChange,
    Savings,
)
from tests.model import views

GIB = 1 << 30
DAY = 86400.0
MODEL = "NVIDIA A100-SXM4-80GB"
HOSTILE = '<script>document.title="broken"</script><img src=http://example.com/x onerror=alert(1)>'
TODAY = int(views.AT // DAY)


def spread(mean: float, p50: float, p95: float, highest: float) -> Distribution:
    return Distribution(mean=mean, p50=p50, p95=p95, max=highest)


def peaks(*gib: float) -> tuple[DayPeak, ...]:
    return tuple(DayPeak(day=TODAY - len(gib) + n, bytes=int(size * GIB)) for n, size in enumerate(gib, 1))


def evidence(**changes) -> Evidence:
    return replace(
        Evidence(
            days=9.4,
            coverage=0.991,
            held_seconds=9.4 * DAY,
            busy=spread(0.12, 0.08, 0.31, 0.44),
            sm=spread(0.07, 0.05, 0.2, 0.3),
            dram=spread(0.04, 0.03, 0.11, 0.2),
            watts=spread(104.0, 98.0, 140.0, 171.0),
            memory_peak=int(13.2 * GIB),
            memory_total=80 * GIB,
            peaks=peaks(11.0, 11.4, 12.0, 11.8, 12.9, 13.2, 12.2, 12.6),
        ),
        **changes,
    )


def one(kind: FindingKind, action: RecommendedAction, **changes) -> Recommendation:
    """An advice about a Deployment, changed as one likes."""
    target = RecommendationTarget(
        namespace="nlp",
        kind="Deployment",
        name="sentence-embeddings",
        container="server",
        image="registry.example/nlp/embeddings:4.2",
        work_class="serving",
        pods=("sentence-embeddings-6d5f9c7b8-x2x4q",),
        nodes=("gpu-node-07",),
        gpus=(views.uuid(0),),
        model=MODEL,
    )
    return replace(
        Recommendation(
            id=f"{kind.replace('_', '-')}-1f3a9c",
            kind=kind,
            action=action,
            target=target,
            current="1 x nvidia.com/gpu",
            recommended="1 x nvidia.com/mig-2g.20gb",
            why="in 9 days never more than 13.2 GiB of 80, and 31% busy",
            evidence=evidence(),
            confidence=Level.MEDIUM,
            risk=Level.LOW,
            risk_text="more memory than before ends it with out of memory",
            savings=Savings(gpu_hours_per_day=17.1, watts=60.0, money_per_day=30.8, currency="USD"),
            at=views.AT,
            expires=views.AT + 7 * DAY,
        ),
        **changes,
    )


PATCH = {"spec": {"template": {"spec": {"containers": [{"name": "server"}]}}}}


def mig() -> Recommendation:
    return one(
        FindingKind.MIG_FIT,
        RecommendedAction.RESIZE,
        predicted=Predicted(
            slowdown_low=0.0, slowdown_high=0.12, memory_needed=int(14.1 * GIB), memory_offered=int(19.5 * GIB)
        ),
        change=RecommendedChange(resource="nvidia.com/gpu", count=1, to_resource="nvidia.com/mig-2g.20gb", to_count=1),
        apply=(
            Apply(
                what="pod_patch",
                note="new pods ask for the instance; the old ones end one by one",
                command="kubectl -n nlp patch deployment sentence-embeddings --patch-file pod_patch.yaml",
                manifest=PATCH,
            ),
        ),
    )


def idle() -> Recommendation:
    """Its pod has a name that no API server would take, but a file of views may."""
    notebook = RecommendationTarget(
        namespace="vision",
        name=HOSTILE,
        work_class="notebook",
        pods=(HOSTILE,),
        nodes=("gpu-node-03",),
        gpus=(views.uuid(1),),
        model=MODEL,
    )
    return one(
        FindingKind.IDLE_HOLDER,
        RecommendedAction.SCALE_DOWN,
        target=notebook,
        recommended="none",
        why="without any work for 2 days 4 hours",
        evidence=evidence(
            idle_seconds=52 * 3600.0,
            busy=spread(0.002, 0.0, 0.0, 0.21),
            sm=spread(0.001, 0.0, 0.0, 0.12),
            dram=spread(0.001, 0.0, 0.0, 0.06),
        ),
        confidence=Level.HIGH,
        risk_text="what is only in the GPU's memory is lost",
        savings=Savings(gpu_hours_per_day=24.0, watts=110.0, money_per_day=43.2, currency="USD"),
        apply=(Apply(what="scale", note="ends the pod", command="kubectl -n vision delete pod notebook-0"),),
    )


def layout() -> Recommendation:
    cut = Layout(
        node="gpu-node-09",
        gpu=views.uuid(2),
        index=2,
        model=MODEL,
        placements=tuple(Placement(profile="2g.20gb", start=start, size=2) for start in (0, 2, 4)),
    )
    return one(
        FindingKind.MIG_LAYOUT,
        RecommendedAction.REPARTITION,
        target=RecommendationTarget(nodes=("gpu-node-09",), gpus=(views.uuid(2),), model=MODEL),
        current="1 whole GPU, free",
        recommended="3 x 2g.20gb",
        why="3 workloads fit 2g.20gb, and nobody holds the GPU",
        evidence=Evidence(days=9.4, coverage=0.99),
        savings=Savings(gpu_hours_per_day=48.0),
        change=RecommendedChange(layouts=(cut,)),
        apply=(
            Apply(
                what="mig_parted",
                note="configuration of mig-parted",
                manifest={"version": "v1", "mig-configs": {"gpuwatch": [{"devices": [2], "mig-enabled": True}]}},
            ),
        ),
    )


def quota() -> Recommendation:
    return one(
        FindingKind.QUOTA_SLACK,
        RecommendedAction.CHANGE_QUOTA,
        target=RecommendationTarget(namespace="speech"),
        current="32 x nvidia.com/gpu",
        recommended="14 x nvidia.com/gpu",
        why="never more than 12 GPUs at work at a time, on 14 days",
        evidence=Evidence(days=14.0, coverage=1.0, active=spread(7.2, 7.0, 11.0, 12.0)),
        savings=Savings(gpu_hours_per_day=0.0),
    )


def others() -> tuple[Recommendation, ...]:
    """The findings that change no size."""
    server = RecommendationTarget(
        namespace="chat", kind="StatefulSet", name="llama-3-70b-instruct-frontend-canary-eu-west", pods=()
    )
    train = RecommendationTarget(namespace="ml-research", kind="Job", name="llama-pretrain-30", work_class="batch")
    free = Savings(gpu_hours_per_day=0.0)
    return (
        one(
            FindingKind.GANG_OVERSIZED,
            RecommendedAction.REDUCE,
            target=replace(train, name="=HYPERLINK(1)", namespace="@cmd"),
            current="8 x nvidia.com/gpu",
            recommended="7 x nvidia.com/gpu",
            why="one of 8 GPUs never works while the others do",
            savings=Savings(gpu_hours_per_day=24.0, money_per_day=43.2, currency="USD"),
        ),
        one(
            FindingKind.PREALLOCATED,
            RecommendedAction.CHANGE_SETTING,
            target=server,
            recommended="--gpu-memory-utilization below 0.9",
            why="takes 90% of the memory when it starts, whatever it needs",
            savings=free,
            confidence=Level.LOW,
        ),
        one(
            FindingKind.ENERGY,
            RecommendedAction.TUNE,
            target=train,
            current="not tuned",
            recommended="gpuwatch.io/autotune: enforce",
            why="busy 92% of the time, and nobody waits for it",
            savings=Savings(gpu_hours_per_day=0.0, watts=340.0),
            change=RecommendedChange(annotations={"gpuwatch.io/autotune": "enforce"}),
        ),
    )


def body(*items: Recommendation, **changes) -> Recommendations:
    """What an agent says."""
    return replace(
        Recommendations(
            at=views.AT, since=views.AT - 9.4 * DAY, node="gpu-node-07", workloads=31, learning=7, items=items
        ),
        **changes,
    )


def everything() -> Recommendations:
    """Dearest first."""
    gang, *rest = others()
    return body(layout(), idle(), gang, mig(), *rest, quota())


def unpriced() -> Recommendations:
    """The same without a price table."""
    bare = (
        replace(each, savings=replace(each.savings, money_per_day=None, currency=None)) for each in everything().items
    )
    return body(*bare)


def usual() -> Recommendations:
    """Such as a fleet has, for a picture."""
    notebook = replace(idle(), target=replace(idle().target, kind="Notebook", name="ada-experiments", pods=("ada-0",)))
    gang, preallocated, energy = others()
    gang = replace(gang, target=replace(energy.target, name="resnet-sweep"))
    dear = Savings(gpu_hours_per_day=96.0, watts=440.0, money_per_day=172.8, currency="USD")
    several = replace(notebook, current="4 x nvidia.com/gpu", savings=dear)
    return body(several, mig(), gang, quota(), preallocated, energy, workloads=212, learning=9)


def nothing() -> Recommendations:
    """Everybody needs what they have."""
    return body()
