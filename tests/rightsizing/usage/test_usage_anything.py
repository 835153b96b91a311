"""Whatever a source says, in whatever order: the ledger does not fail, and what it says of it can be."""

import math

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.work import WorkloadKey
from gpuwatch.rightsizing.model.usage import UsageWindow, WorkloadSummary
from gpuwatch.rightsizing.usage.ledger import LedgerState, UsageLedger
from tests.rightsizing.usage.usage_spans import BEGIN, DAY, H100, HOUR, MINUTE
from tests.seeds import examples

CONFIG = RightsizingConfig(max_workloads=3)
NUMBERS = st.none() | st.sampled_from((0.0, 0.005, 0.5, 1.0, 7e9, -1.0, math.nan, math.inf))
BYTES = st.none() | st.sampled_from((0, 1 << 30, 80 << 30))
WINDOWS = st.builds(
    UsageWindow,
    at=st.sampled_from((0.0, BEGIN, BEGIN + 30, BEGIN + HOUR, BEGIN + DAY, BEGIN + 400 * DAY))
    | st.floats(BEGIN, BEGIN + DAY),
    span=st.sampled_from((MINUTE, 5 * MINUTE, HOUR, 2 * DAY, 0.0, math.inf)),
    covered=st.sampled_from((0.0, 30.0, MINUTE, HOUR, -1.0, math.nan)),
    key=st.builds(WorkloadKey, namespace=st.sampled_from(("", "a")), name=st.sampled_from("vwxyz")),
    pod=st.sampled_from(("p", "q")),
    gpu=st.sampled_from(("GPU-0", "GPU-1")),
    node=st.sampled_from(("", "n0")),
    device=st.sampled_from(("", "MIG-0")),
    profile=st.sampled_from((None, "1g.10gb")),
    model=st.sampled_from((None, H100, "NVIDIA L4")),
    held_since=st.none() | st.sampled_from((BEGIN - DAY, BEGIN, BEGIN + 2 * DAY)),
    declared_class=st.sampled_from((None, "batch", "serving")),
    busy=NUMBERS,
    busy_high=NUMBERS,
    busy_low=NUMBERS,
    sm=NUMBERS,
    dram=NUMBERS,
    pipe=NUMBERS,
    memory=BYTES,
    memory_low=BYTES,
    pcie=NUMBERS,
    watts=NUMBERS,
    cpu_throttled=NUMBERS,
)


def is_possible(summary: WorkloadSummary) -> bool:
    ratios = [each for each in (summary.busy, summary.sm, summary.dram, summary.pipe) if each is not None]
    sawtooth = summary.sawtooth
    holds = all(hold.since <= hold.last and (hold.idle_since or 0) <= hold.last for hold in summary.holds)
    slow = all(0 <= each.low <= each.high + 0.2 * each.high for each in summary.slowdowns)
    return (
        summary.first <= summary.last
        and 0 <= summary.covered <= summary.held + 1e-6
        and all(0 <= each.p50 <= each.p95 <= each.max < math.inf for each in ratios)
        and (sawtooth is None or -1e-9 <= sawtooth <= 1 + 1e-9)
        and holds
        and slow
    )


@settings(max_examples=examples(120))
@given(windows=st.lists(WINDOWS, max_size=25), look=st.integers(1, 25))
def test_whatever_comes_it_continues_and_says_what_can_be(windows: list[UsageWindow], look: int):
    ledger, now = UsageLedger(CONFIG), BEGIN + DAY
    for number, window in enumerate(windows):
        ledger.add(window)
        if number % look == 0:
            ledger = UsageLedger.restored(
                msgspec.json.decode(msgspec.json.encode(ledger.state()), type=LedgerState), CONFIG
            )
            list(ledger.summaries(now))

    assert all(is_possible(summary) for summary in ledger.summaries(now))
    assert all(use.steady <= max(use.active, default=0) and use.held >= 0 for use in ledger.namespaces(now))
    assert len(ledger) <= CONFIG.max_workloads
