"""What advice never does, whatever was measured or could not be: laws over arbitrary workloads."""

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.recommendation import Action, Finding
from gpuwatch.model.usage import Distribution, Fleet, Hold, Slowdown, Summary, WorkloadKey
from gpuwatch.rules.rightsizing import recommend
from gpuwatch.rules.work_class import KINDS
from tests.rules.rightsizing_cases import DAY, GIB, H100, NOW, advised, peaks

MODELS = (H100, "NVIDIA A100-SXM4-40GB", "NVIDIA H200", "Tesla T4", "NVIDIA A10")
TAKES_AWAY = re.compile(r"\b(scale|delete|scancel|suspend)\b")

ratios = st.floats(0, 1)
spans = st.floats(0, 20 * DAY)


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Or unknown."""
    return st.none() | values


distributions = st.builds(
    lambda values: Distribution(mean=values[1], p50=values[0], p95=values[2], max=values[3]),
    st.lists(ratios, min_size=4, max_size=4).map(sorted),
)


@st.composite
def holds(draw: st.DrawFn) -> Hold:
    """Any hold, half of them quiet."""
    held, quiet = draw(spans), draw(maybe(spans))
    return Hold(
        pod=draw(st.sampled_from(("a-0", "a-1"))),
        gpu=draw(st.sampled_from(("GPU-0", "GPU-1", "GPU-2"))),
        node="node-a",
        device=draw(st.sampled_from(("", "", "MIG-0"))),
        model=draw(maybe(st.sampled_from(MODELS))),
        profile=draw(st.sampled_from((None, None, "1g.10gb", "3g.40gb", "9g.odd"))),
        resource=draw(st.sampled_from((None, "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared"))),
        holders=draw(st.integers(1, 3)),
        since=NOW - held,
        last=NOW,
        present=draw(st.booleans()),
        covered=held,
        idle_since=None if quiet is None else NOW - min(quiet, held),
        longest_gap=draw(st.sampled_from((0.0, 3600.0, 3 * DAY))),
        worked=draw(st.booleans()),
        processes=draw(maybe(st.integers(0, 2))),
        busy=draw(maybe(ratios)),
        watts=draw(maybe(st.floats(20, 700))),
        loaded_idle_watts=draw(maybe(st.floats(20, 200))),
        pcie=draw(maybe(st.floats(0, 1e10))),
        memory=draw(maybe(st.integers(0, 80 * GIB))),
        memory_at_start=draw(maybe(st.integers(0, 80 * GIB))),
        memory_spread=draw(maybe(st.floats(0, 1))),
    )


@st.composite
def workloads(draw: st.DrawFn) -> Summary:
    """Any workload, mostly one on a single whole GPU that was seen for long."""
    days = draw(st.floats(0, 20))
    kind = draw(st.sampled_from(("Job", "Deployment", "Notebook", "CronJob", "InferenceService", None)))
    told = next((name for name, kinds in KINDS.items() if kind in kinds), None)
    profiles = st.sampled_from(("1g.10gb", "1g.5gb", "2g.20gb", "3g.40gb", "7g.80gb", "1g.18gb"))
    return Summary(
        key=WorkloadKey(namespace=draw(st.sampled_from(("nlp", "nlp", ""))), name="a", container="main", kind=kind),
        work_class=draw(st.sampled_from((told, told, "serving"))),
        first=NOW - days * DAY,
        last=NOW,
        held=days * DAY,
        covered=days * DAY * draw(st.sampled_from((1.0, 1.0, 0.5))),
        days=days,
        holds=tuple(draw(st.lists(holds(), min_size=0, max_size=3))),
        models=tuple(draw(st.lists(st.sampled_from(MODELS), min_size=0, max_size=2, unique=True))),
        memory_total=draw(maybe(st.sampled_from((40 * GIB, 80 * GIB)))),
        busy=draw(maybe(distributions)),
        dram=draw(maybe(distributions)),
        pcie=draw(maybe(distributions)),
        watts=draw(maybe(distributions)),
        peaks=peaks(*draw(st.lists(st.floats(0, 80), max_size=8))),
        slowdowns=tuple(
            Slowdown(profile=name, low=0.0, high=draw(st.floats(0, 0.5)))
            for name in draw(st.lists(profiles, max_size=4, unique=True))
        ),
        sawtooth=draw(maybe(ratios)),
        cpu_throttled=draw(maybe(ratios)),
        gpus_per_pod=draw(st.sampled_from((1, 1, 1, 2))),
        programs=draw(st.sampled_from(((), ("python",), ("vllm",)))),
    )


@given(workloads())
def test_what_may_serve_is_never_taken_away(work: Summary) -> None:
    batch = work.work_class in ("batch", "notebook") and "vllm" not in work.programs
    for item in advised(work).items:
        assert batch or item.action is not Action.SCALE_DOWN
        assert batch or not any(TAKES_AWAY.search(each.command or "") for each in item.apply)


@given(workloads())
def test_what_works_is_never_idle(work: Summary) -> None:
    for item in advised(work).items:
        if item.kind in (Finding.IDLE_HOLDER, Finding.NEVER_USED):
            quiet = {hold.pod for hold in work.holds if hold.present}
            quiet -= {
                hold.pod for hold in work.holds if hold.present and (hold.idle_since is None or hold.busy is None)
            }
            assert set(item.target.pods) <= quiet
            assert item.evidence.idle_seconds is not None
            assert item.evidence.idle_seconds >= RightsizingConfig().idle_after


@given(workloads())
def test_memory_is_never_advised_below_the_largest_peak_and_its_margin(work: Summary) -> None:
    most = max((peak.bytes for peak in work.peaks), default=None)
    for item in advised(work).items:
        if item.action in (Action.RESIZE, Action.SHARE):
            assert most is not None
            assert item.predicted is not None
            assert item.predicted.memory_needed is not None
            assert item.predicted.memory_offered is not None
            assert (
                most + max(0.05 * most - 1, 512 * 2**20)
                <= item.predicted.memory_needed
                <= item.predicted.memory_offered
            )


@given(workloads())
def test_nobody_is_slowed_beyond_the_bound(work: Summary) -> None:
    for item in advised(work).items:
        if item.kind is Finding.MIG_FIT:
            assert item.predicted is not None
            assert item.predicted.slowdown_high is not None
            assert item.predicted.slowdown_high <= RightsizingConfig().max_mig_slowdown


BLIND: dict[str, None] = dict.fromkeys(
    ("memory_total", "busy", "sm", "dram", "pipe", "pcie", "watts", "sawtooth", "cpu_throttled")
)
BLIND_HOLD: dict[str, None] = dict.fromkeys(
    ("busy", "idle_since", "watts", "pcie", "memory", "memory_at_start", "memory_spread", "processes")
)


@given(workloads())
def test_of_what_nobody_measured_nothing_is_said(work: Summary) -> None:
    blind = tuple(replace(hold, **BLIND_HOLD) for hold in work.holds)

    assert not advised(replace(work, holds=blind, peaks=(), slowdowns=(), **BLIND)).items


@given(workloads(), st.sampled_from(sorted(BLIND)))
def test_not_to_know_something_finds_no_gpu_to_take_away(work: Summary, name: str) -> None:
    """Only what speaks for an advice can be missed: what idles does so by what is known of its holds."""
    before = {item.id for item in advised(work).items if item.kind in (Finding.IDLE_HOLDER, Finding.NEVER_USED)}
    after = {
        item.id
        for item in advised(replace(work, **{name: None})).items
        if item.kind in (Finding.IDLE_HOLDER, Finding.NEVER_USED)
    }

    assert after == before


@given(workloads())
def test_one_advice_on_size_at_most(work: Summary) -> None:
    kinds = [item.kind for item in advised(work).items]
    besides = {Finding.ENERGY, Finding.IDLE_HOLDER, Finding.NEVER_USED, Finding.MIG_LAYOUT}

    assert len(kinds) == len(set(kinds))
    assert len(set(kinds) - besides) <= 1


@given(st.lists(workloads(), max_size=3))
def test_savings_are_never_more_than_what_is_held(works: list[Summary]) -> None:
    for work in works:
        held = 24.0 * sum(hold.present for hold in work.holds)
        for item in advised(work).items:
            most = held if item.kind in (Finding.IDLE_HOLDER, Finding.NEVER_USED) else 24 * max(1.0, work.days)
            assert 0 <= item.savings.gpu_hours_per_day <= most + 1e-9
    total = recommend(works, Fleet(), RightsizingConfig(), NOW)
    assert total.workloads == len(works) >= total.learning
