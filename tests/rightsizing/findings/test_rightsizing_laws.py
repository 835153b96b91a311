"""What advice never does, whatever was measured or could not be: laws over arbitrary workloads."""

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.work import Distribution, WorkClass
from gpuwatch.rightsizing.findings.judge import recommend
from gpuwatch.rightsizing.model.recommendation import FindingKind, RecommendedAction
from gpuwatch.rightsizing.model.usage import FleetFacts, WorkloadSummary
from tests.rightsizing.findings.rightsizing_cases import (
    DAY,
    GIB,
    H100,
    NOW,
    a_hold,
    a_small_one,
    a_workload,
    advised,
    an_idle_hold,
    peaks,
    slow,
    spread,
)
from tests.seeds import examples

MODELS = (H100, "NVIDIA A100-SXM4-40GB", "NVIDIA H200", "Tesla T4", "NVIDIA A10")
TAKES_AWAY = re.compile(r"\b(scale|delete|scancel|suspend)\b")

ratios = st.floats(0, 1)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Or unknown."""
    return st.none() | values


distributions = st.builds(
    lambda values: Distribution(mean=values[1], p50=values[0], p95=values[2], max=values[3]),
    st.lists(ratios, min_size=4, max_size=4).map(sorted),
)


HOLDS = st.fixed_dictionaries(
    {},
    optional={
        "pod": st.sampled_from(("chat-0", "chat-1")),
        "gpu": st.sampled_from(("GPU-0", "GPU-1", "GPU-2")),
        "device": st.just("MIG-0"),
        "model": maybe(st.sampled_from(MODELS)),
        "profile": st.sampled_from(("1g.10gb", "3g.40gb", "9g.odd")),
        "resource": st.sampled_from((None, "nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared")),
        "holders": st.integers(1, 3),
        "present": st.booleans(),
        "idle_since": maybe(st.floats(NOW - 10 * DAY, NOW)),
        "longest_gap": st.sampled_from((0.0, 3600.0, 3 * DAY)),
        "worked": st.booleans(),
        "processes": maybe(st.integers(0, 2)),
        "busy": maybe(ratios),
        "watts": maybe(st.floats(20, 700)),
        "loaded_idle_watts": maybe(st.floats(20, 200)),
        "pcie": maybe(st.floats(0, 1e10)),
        "memory": maybe(st.integers(0, 80 * GIB)),
        "memory_at_start": maybe(st.integers(0, 80 * GIB)),
        "memory_later": maybe(st.floats(0, 80 * GIB)),
        "memory_spread": maybe(ratios),
    },
)
"""What may differ of a hold."""

CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "days": st.floats(0, 20),
        "covered": st.floats(10 * DAY, 14 * DAY),
        "models": st.lists(st.sampled_from(MODELS), max_size=2, unique=True).map(tuple),
        "memory_total": maybe(st.sampled_from((6 * GIB, 40 * GIB, 80 * GIB))),
        "busy": maybe(distributions),
        "dram": maybe(distributions),
        "pcie": maybe(distributions),
        "watts": maybe(distributions),
        "peaks": st.lists(st.floats(0, 80), max_size=8).map(lambda sizes: peaks(*sizes)),
        "slowdowns": st.dictionaries(
            st.sampled_from(("p1g_10gb", "p1g_5gb", "p2g_20gb", "p3g_40gb", "p7g_80gb", "p1g_18gb")), st.floats(0, 0.5)
        ).map(lambda high: slow(**high)),
        "sawtooth": maybe(ratios),
        "cpu_throttled": maybe(ratios),
        "gpus_per_pod": st.integers(1, 2),
        "programs": st.sampled_from((("python",), ("vllm",))),
    },
)
"""What may differ of a workload."""


@st.composite
def workloads(draw: st.DrawFn) -> WorkloadSummary:
    """One of which something is to be said, but for some changes to it."""
    hold = draw(
        st.sampled_from(
            (
                a_hold(),
                a_hold(),
                an_idle_hold(),
                a_hold(memory_at_start=70 * GIB, memory_later=70.0 * GIB, memory_spread=0.0),
            )
        )
    )
    several = [replace(hold, **draw(few(HOLDS))) for _ in range(draw(st.sampled_from((1, 1, 1, 2, 3))))]
    base = draw(
        st.sampled_from(
            (
                a_small_one(),
                a_small_one(slowdowns=()),
                a_small_one(sawtooth=0.9, cpu_throttled=0.5),
                a_workload(busy=spread(0.8)),
            )
        )
    )
    kind, work_class = draw(st.sampled_from(CLASSES))
    key = replace(base.key, kind=kind, namespace=draw(st.sampled_from(("nlp", "nlp", "nlp", ""))))
    return replace(base, holds=tuple(several), key=key, work_class=work_class, **draw(few(CHANGES)))


def few(changes: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """At most three of them, mostly."""
    return changes.map(lambda found: dict(list(found.items())[:3]))


CLASSES: tuple[tuple[str | None, WorkClass | None], ...] = (
    ("Job", "batch"),
    ("CronJob", "batch"),
    ("Notebook", "notebook"),
    ("Deployment", None),
    ("Deployment", "batch"),
    ("Job", "serving"),
    ("InferenceService", "serving"),
    (None, None),
)


@settings(max_examples=examples(150))
@given(workloads())
def test_what_may_serve_is_never_removed(work: WorkloadSummary) -> None:
    batch = work.work_class in ("batch", "notebook") and "vllm" not in work.programs
    for item in advised(work).items:
        assert batch or item.action is not RecommendedAction.SCALE_DOWN
        assert batch or not any(TAKES_AWAY.search(each.command or "") for each in item.apply)


@settings(max_examples=examples(150))
@given(workloads())
def test_what_works_is_never_idle(work: WorkloadSummary) -> None:
    for item in advised(work).items:
        if item.kind in (FindingKind.IDLE_HOLDER, FindingKind.NEVER_USED):
            quiet = {hold.pod for hold in work.holds if hold.present}
            quiet -= {
                hold.pod for hold in work.holds if hold.present and (hold.idle_since is None or hold.busy is None)
            }
            assert set(item.target.pods) <= quiet
            assert item.evidence.idle_seconds is not None
            assert item.evidence.idle_seconds >= RightsizingConfig().idle_after


@settings(max_examples=examples(150))
@given(workloads())
def test_memory_is_never_advised_below_the_largest_peak_and_its_margin(work: WorkloadSummary) -> None:
    most = max((peak.bytes for peak in work.peaks), default=None)
    for item in advised(work).items:
        if item.action in (RecommendedAction.RESIZE, RecommendedAction.SHARE):
            assert most is not None
            assert item.predicted is not None
            assert item.predicted.memory_needed is not None
            assert item.predicted.memory_offered is not None
            assert (
                most + max(0.05 * most - 1, 512 * 2**20)
                <= item.predicted.memory_needed
                <= item.predicted.memory_offered
            )


@settings(max_examples=examples(150))
@given(workloads())
def test_nobody_is_slowed_beyond_the_bound(work: WorkloadSummary) -> None:
    for item in advised(work).items:
        if item.kind is FindingKind.MIG_FIT:
            assert item.predicted is not None
            assert item.predicted.slowdown_high is not None
            assert item.predicted.slowdown_high <= RightsizingConfig().max_mig_slowdown


BLIND: dict[str, None] = dict.fromkeys(
    ("memory_total", "busy", "sm", "dram", "pipe", "pcie", "watts", "sawtooth", "cpu_throttled")
)
BLIND_HOLD: dict[str, None] = dict.fromkeys(
    ("busy", "idle_since", "watts", "pcie", "memory", "memory_at_start", "memory_later", "memory_spread", "processes")
)


@settings(max_examples=examples(150))
@given(workloads())
def test_of_what_nobody_measured_nothing_is_reported(work: WorkloadSummary) -> None:
    blind = tuple(replace(hold, **BLIND_HOLD) for hold in work.holds)

    assert not advised(replace(work, holds=blind, peaks=(), slowdowns=(), **BLIND)).items


@settings(max_examples=examples(150))
@given(workloads(), st.sampled_from(sorted(BLIND)))
def test_not_to_know_something_finds_no_gpu_to_remove(work: WorkloadSummary, name: str) -> None:
    """Only what speaks for an advice can be missed: what idles does so by what is known of its holds."""
    before = {item.id for item in advised(work).items if item.kind in (FindingKind.IDLE_HOLDER, FindingKind.NEVER_USED)}
    after = {
        item.id
        for item in advised(replace(work, **{name: None})).items
        if item.kind in (FindingKind.IDLE_HOLDER, FindingKind.NEVER_USED)
    }

    assert after == before


@settings(max_examples=examples(150))
@given(workloads())
def test_one_advice_on_size_at_most(work: WorkloadSummary) -> None:
    kinds = [item.kind for item in advised(work).items]
    besides = {FindingKind.ENERGY, FindingKind.IDLE_HOLDER, FindingKind.NEVER_USED, FindingKind.MIG_LAYOUT}

    assert len(kinds) == len(set(kinds))
    assert len(set(kinds) - besides) <= 1


@settings(max_examples=examples(150))
@given(st.lists(workloads(), max_size=3))
def test_savings_are_never_more_than_what_is_held(works: list[WorkloadSummary]) -> None:
    for work in works:
        now = 24.0 * sum(hold.present for hold in work.holds)
        a_day = work.held / 3600 / max(1.0, work.days)
        for item in advised(work).items:
            most = now if item.kind in (FindingKind.IDLE_HOLDER, FindingKind.NEVER_USED) else a_day
            assert 0 <= item.savings.gpu_hours_per_day <= most + 1e-9
    total = recommend(works, FleetFacts(), RightsizingConfig(), NOW)
    assert total.workloads == len(works) >= total.learning
