"""Windows from any history of a device: none too long, none twice, none that tells of what nobody saw."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.rightsizing.usage.prometheus_windows import Chunk, GpuRow, HolderRow, PodFacts, windows
from gpuwatch.workloads.workload_key import key_of_pod

STEP, SCRAPE = 300.0, 60.0
FULL = STEP / SCRAPE
DEVICE = ("GPU-1", "")

count = st.one_of(st.none(), st.integers(1, int(FULL)).map(float))
presence = st.lists(count, min_size=3, max_size=14)


def chunk(*holders, gpu=None, busy=0.5):
    """Of one GPU; `holders`: samples by step, with one step before and one after."""
    steps = len(holders[0]) - 2
    rows = [HolderRow(DEVICE, "a", f"pod-{n}", "main", None, None, row) for n, row in enumerate(holders)]
    return Chunk(
        start=0.0,
        step=STEP,
        steps=steps,
        gpus={"GPU-1": GpuRow("node", 0, None, gpu or [FULL] * (steps + 2))},
        holders=rows,
        grids={"busy": {DEVICE: [busy] * steps}, "busy_high": {DEVICE: [busy] * steps}},
        own_memory={},
        own_busy={},
        throttled={},
        pods={("a", row.pod, "main"): PodFacts(key_of_pod("a", row.pod, "main")) for row in rows},
    )


@given(presence, presence)
def test_windows_follow_each_other_and_stay_within_what_was_seen(one, other):
    length = min(len(one), len(other))
    made = chunk(one[:length], other[:length])
    found = list(windows(made))
    for window in found:
        assert 0 <= window.covered <= window.span <= STEP
        assert window.at >= 0
        assert window.at + window.span <= made.steps * STEP + 1e-6
        assert window.covered > 0 or (window.busy, window.memory, window.watts) == (None, None, None)
    for number, row in enumerate((one[:length], other[:length])):
        mine = [window for window in found if window.pod == f"pod-{number}"]
        assert all(a.at + a.span <= b.at + 1e-6 for a, b in pairwise(mine))
        assert sum(w.covered for w in mine) <= sum(n or 0 for n in row[1:-1]) * SCRAPE + 1e-6
        assert sum(w.covered > 0 for w in mine) == sum(n is not None for n in row[1:-1])


def test_time_that_nobody_saw_is_reported_while_the_pod_was_there_before_and_after():
    found = list(windows(chunk([None, FULL, None, None, FULL, None])))
    assert [(w.covered, w.busy) for w in found] == [(STEP, 0.5), (0, None), (0, None), (STEP, 0.5)]


def test_a_pod_that_comes_and_one_that_goes_hold_as_long_as_they_were_seen():
    coming = next(windows(chunk([None, 2.0, FULL])))
    assert (coming.at, coming.span, coming.covered) == (STEP - 120, 120, 120)
    going = next(windows(chunk([FULL, 2.0, None])))
    assert (going.at, going.span, going.covered) == (0, 120, 120)


def test_a_scrape_that_was_missed_is_no_end_of_a_pod():
    missed = next(windows(chunk([FULL, 3.0, FULL])))
    assert (missed.span, missed.covered) == (STEP, 180)


def test_a_gpu_that_does_nothing_does_nothing_for_each_of_its_holders():
    still = list(windows(chunk([None, FULL, None], [None, FULL, None], busy=0.004)))
    assert [(w.holders, w.busy) for w in still] == [(2, 0.004)] * 2
    working = list(windows(chunk([None, FULL, None], [None, FULL, None], busy=0.4)))
    assert [(w.holders, w.busy) for w in working] == [(2, None)] * 2
