"""The sliding window counts what happened lately, whatever the interval, and keeps little."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.metrics.dcgm_profile import SLOT_SECONDS, WINDOW_SECONDS, SlidingWindow


@given(st.lists(st.floats(min_value=0, max_value=60), max_size=60))
def test_the_window_is_right_to_within_a_slot(gaps: list[float]) -> None:
    window, now, times = SlidingWindow(), 1000.0, []
    for gap in gaps:
        now += gap
        window.expire(now)
        window.add(now, "GPU-1", "79")
        times.append(now)
    window.expire(now)
    certain = sum(now - at <= WINDOW_SECONDS for at in times)
    possible = sum(now - at <= WINDOW_SECONDS + SLOT_SECONDS for at in times)
    [(_, count)] = window.of("GPU-1")
    assert certain <= count <= possible


def test_nothing_is_left_when_all_is_old() -> None:
    window = SlidingWindow()
    window.add(0, "GPU-1", "79", 3)
    window.expire(WINDOW_SECONDS)
    assert window.of("GPU-1") == [("79", 3)]
    window.expire(WINDOW_SECONDS + 0.1)
    assert window.of("GPU-1") == [(None, 0)]


def test_a_short_interval_costs_no_more_memory() -> None:
    def kept(interval: float) -> int:
        tracemalloc.start()
        window = SlidingWindow()
        for step in range(int(WINDOW_SECONDS / interval)):
            window.add(step * interval, "GPU-1", "sw_power_cap")
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return size

    kept(SLOT_SECONDS)  # what is made once is made now
    assert kept(0.1) < 1.5 * kept(SLOT_SECONDS)
