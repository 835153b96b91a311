"""The meter makes windows of samples: whole, of one setting, the same seconds of all GPUs, whatever the samples are."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.model.snapshot import Activity, Gpu
from gpuwatch.tuning.energy.meter import (
    JITTER_SECONDS,
    LONGEST_SECONDS,
    MOST_WATTS,
    SETTLE_SECONDS,
    WINDOW_SECONDS,
    Meter,
    is_counted,
    take,
)
from gpuwatch.tuning.energy.model import WEAK, GangWindow
from tests.seeds import examples
from tests.tuning.energy.tuning_samples import START, TOP, WATTS, WORK, sample

CAP = 1500e6
SLACK = 1e-6


class Metered:
    """A meter that is fed View by View. `cap` and `switched` (seconds after START) are set by `switch`."""

    def __init__(self, meter: Meter | None = None, *, serving: bool = False) -> None:
        self.meter, self.serving = meter or Meter(), serving
        self.cap: float | None = None
        self.switched: float | None = None
        self.windows: list[GangWindow] = []

    def see(self, *gpus: Gpu) -> tuple[GangWindow, ...]:
        switched = None if self.switched is None else START + self.switched
        self.meter, found = take(self.meter, gpus, self.cap, switched, self.serving)
        self.windows += found
        return found

    def switch(self, cap: float | None, at: float) -> None:
        self.cap, self.switched = cap, at


def run(seconds: Iterable[float], *, serving: bool = False, **more: Any) -> list[GangWindow]:
    metered = Metered(serving=serving)
    for at in seconds:
        metered.see(sample(at, **more))
    return metered.windows


def close(value: float | None, expected: float) -> bool:
    return value is not None and math.isclose(value, expected, abs_tol=SLACK)


def test_samples_of_a_second_make_windows_of_five() -> None:
    windows = run(range(16))
    assert [window.seconds for (window,) in windows] == [WINDOW_SECONDS] * 3
    first = windows[0][0]
    assert first.settled
    assert first.is_sound
    assert (first.cap, first.clock) == (None, TOP)
    assert close(first.watts, WATTS)
    assert (first.dram, first.pipe, first.engine) == (WORK["dram"], WORK["tensor"], WORK["graphics"])


def test_a_tick_that_comes_early_does_not_wait_for_another_second() -> None:
    short = (WINDOW_SECONDS - JITTER_SECONDS / 2) / 5
    assert len(run(short * number for number in range(6))) == 1
    much_shorter = (WINDOW_SECONDS - JITTER_SECONDS * 2) / 5
    assert run(much_shorter * number for number in range(6)) == []


@pytest.mark.parametrize("interval", [0.5, 2.0, 3.0, 10.0])
def test_windows_are_of_whole_samples_whatever_the_interval(interval: float) -> None:
    windows = run(interval * number for number in range(30))
    for (window,) in windows:
        assert close(window.seconds % interval, 0)
        assert WINDOW_SECONDS <= window.seconds < WINDOW_SECONDS + interval
    assert windows


def test_activity_is_weighted_by_the_time_it_stands_for() -> None:
    metered = Metered()
    metered.see(sample(0))
    metered.see(sample(4, work=WORK | {"dram": 0.2, "window_seconds": 4.0}))
    metered.see(sample(5, work=WORK | {"dram": 0.7}))
    ((window,),) = metered.windows
    assert close(window.dram, (4 * 0.2 + 0.7) / 5)


def test_activity_from_before_the_sample_weighs_no_more_than_the_sample() -> None:
    metered = Metered()
    metered.see(sample(0))
    metered.see(sample(1, work=WORK | {"dram": 0.2, "window_seconds": 30.0}))
    for at in range(2, 6):
        metered.see(sample(at, work=WORK | {"dram": 0.7}))
    ((window,),) = metered.windows
    assert close(window.dram, (0.2 + 4 * 0.7) / 5)


def test_clocks_and_draw_are_weighted_by_time_too() -> None:
    metered = Metered()
    metered.see(sample(0, energy=0.0))
    metered.see(sample(4, clock=CAP, energy=4 * 0.9 * MOST_WATTS))
    metered.see(sample(5, clock=TOP, energy=4 * 0.9 * MOST_WATTS + WATTS))
    ((window,),) = metered.windows
    assert window.clock == pytest.approx((4 * CAP + TOP) / 5)
    assert window.watts == pytest.approx((4 * 0.9 * MOST_WATTS + WATTS) / 5)


def test_the_pipe_is_the_one_that_is_used_most_over_the_window() -> None:
    metered = Metered()
    for at in range(6):
        metered.see(sample(at, work={"fp16": 0.2, "fp64": 0.9 if at == 3 else 0.0}))
    ((window,),) = metered.windows
    assert close(window.pipe, 0.2)
    assert window.dram is None


@pytest.mark.parametrize(("missing", "known"), [(2, True), (3, False)])
def test_a_signal_that_is_missing_half_of_the_time_is_not_known(missing: int, known: bool) -> None:
    metered = Metered()
    for at in range(6):
        metered.see(sample(at, work=None if 0 < at <= missing else WORK))
    ((window,),) = metered.windows
    assert window.has_signal is known
    assert close(window.watts, WATTS)


def test_a_switch_makes_what_is_under_way_unsettled_and_so_the_second_after_it() -> None:
    metered = Metered()
    for at in range(3):
        metered.see(sample(at))
    metered.switch(CAP, 2.1)
    for at in range(3, 10):
        metered.see(sample(at))
    told = [(window.cap, window.seconds, window.settled) for (window,) in metered.windows]
    assert told == [(CAP, 3.0, False), (CAP, 1.0, False), (CAP, WINDOW_SECONDS, True)]


def test_a_cap_that_changes_without_a_word_of_when_is_a_switch() -> None:
    metered = Metered()
    for at in range(3):
        metered.see(sample(at))
    metered.cap = CAP
    metered.see(sample(3))
    assert [window.settled for (window,) in metered.windows] == [False]


def test_activity_that_reaches_back_to_a_switch_is_unsettled() -> None:
    metered = Metered()
    metered.see(sample(0))
    metered.switch(CAP, 0.5)
    metered.see(sample(1))
    metered.see(sample(2))
    metered.see(sample(3, work=WORK | {"window_seconds": 3.0}))
    assert [window.settled for (window,) in metered.windows] == [False, False, False]


def test_a_clock_that_was_set_back_does_not_make_everything_unsettled_for_hours() -> None:
    metered = Metered()
    metered.see(sample(4000))
    metered.switch(CAP, 4000)
    for at in range(12):
        metered.see(sample(at))
    assert [window.settled for (window,) in metered.windows] == [True, True]


def test_the_same_view_twice_adds_nothing() -> None:
    assert run(at for second in range(12) for at in (second, second)) == run(range(12))


JUMPS = {"a gap": LONGEST_SECONDS + 1, "an hour": 3600.0, "a clock set back": -5.0, "a day back": -86400.0}


@pytest.mark.parametrize("name", JUMPS)
def test_what_happened_in_a_jump_is_unknown(name: str) -> None:
    jump = JUMPS[name]
    metered = Metered()
    for at in range(4):
        metered.see(sample(at))
    for at in range(6):
        metered.see(sample(3 + jump + at))
    assert [window.seconds for (window,) in metered.windows] == [WINDOW_SECONDS]
    assert all(window.is_sound for (window,) in metered.windows)


ENERGY: dict[str, Callable[[float], float | None]] = {
    "jumps back": lambda at: at if at >= 3 else 1e6 + at,
    "jumps ahead": lambda at: 1.5 * MOST_WATTS * at,
    "fails once": lambda at: None if at == 3 else WATTS * at,
    "is not there": lambda at: None,
    "stands still": lambda at: 1e6,
}


@pytest.mark.parametrize("name", ENERGY)
def test_a_counter_that_cannot_be_right_makes_windows_that_are_not_sound(name: str) -> None:
    metered = Metered()
    for at in range(6):
        metered.see(sample(at, energy=ENERGY[name](at)))
    ((window,),) = metered.windows
    assert not window.is_sound


def test_after_a_counter_jumped_the_next_window_is_sound() -> None:
    metered = Metered()
    for at in range(11):
        metered.see(sample(at, energy=WATTS * at + (1e6 if at < 3 else 0)))
    assert [window.is_sound for (window,) in metered.windows] == [False, True]


def test_without_clocks_the_mean_clock_is_not_known() -> None:
    assert [window.clock for (window,) in run(range(6), clock=None)] == [None]


def test_windows_of_a_gang_are_in_the_order_in_which_its_gpus_were_first_reported() -> None:
    metered = Metered()
    metered.see(sample(0, 1), sample(0, 0))
    for at in range(1, 6):
        metered.see(sample(at, 0, work=WORK | {"dram": 0.1}), sample(at, 1))
    (gang,) = metered.windows
    assert [window.dram for window in gang] == [WORK["dram"], 0.1]


def test_a_gpu_that_is_missing_in_a_view_does_not_end_the_window_and_is_waited_for() -> None:
    metered = Metered()
    for at in range(7):
        there = [sample(at, index) for index in (0, 1) if not (index == 1 and at in (2, 5))]
        metered.see(*there)
    (gang,) = metered.windows
    assert [window.seconds for window in gang] == [6.0, 6.0]
    assert all(close(window.watts, WATTS) for window in gang)


def test_a_gpu_that_comes_back_late_starts_over_with_all() -> None:
    metered = Metered()
    for at in range(40):
        metered.see(sample(at, 0), *([] if 2 <= at < 2 + LONGEST_SECONDS else [sample(at, 1)]))
    assert metered.windows
    assert {window.seconds for gang in metered.windows for window in gang} == {WINDOW_SECONDS}


def test_a_gpu_that_joins_makes_another_gang() -> None:
    metered = Metered()
    for at in range(4):
        metered.see(sample(at, 0))
    for at in range(4, 10):
        metered.see(sample(at, 0), sample(at, 1))
    assert [len(gang) for gang in metered.windows] == [2]


def test_a_gang_that_is_named_waits_for_all_its_gpus() -> None:
    metered = Metered(Meter(uuids=("GPU-0", "GPU-1")))
    for at in range(4):
        metered.see(sample(at, 0))
    for at in range(4, 10):
        metered.see(sample(at, 1), sample(at, 0))
    assert [[window.seconds for window in gang] for gang in metered.windows] == [[WINDOW_SECONDS] * 2]


BURST = WORK | {"graphics": 0.95}
HALF = {"graphics": 0.45, "dram": 0.36, "tensor": 0.18}


def test_a_serving_gpu_is_reported_while_it_is_busy() -> None:
    half = {name: value / 2 for name, value in WORK.items()}
    ((busy,),) = run(range(6), serving=True, work=WORK)
    ((less,),) = run(range(6), serving=True, work=half)
    assert less.engine == pytest.approx(busy.engine / 2)
    assert (less.dram, less.pipe) == (pytest.approx(busy.dram), pytest.approx(busy.pipe))
    assert less.joules == pytest.approx(2 * busy.joules)
    ((batch,),) = run(range(6), work=half)
    assert batch.dram == pytest.approx(less.dram * less.engine)


def test_a_burst_of_a_serving_gpu_is_reported_at_once() -> None:
    metered = Metered(serving=True)
    for at in range(3):
        metered.see(sample(at, 0), sample(at, 1))
    before, burst = metered.see(sample(3, 0), sample(3, 1, work=BURST))
    assert [window.settled for window in before] == [False, False]
    assert [window.seconds for window in before] == [2.0, 2.0]
    assert [window.engine for window in burst] == [WORK["graphics"], 0.95]
    assert [window.seconds for window in burst] == [1.0, 1.0]


def test_serving_is_reported_for_the_time_it_is_busy() -> None:
    half, full = (
        run(range(6), serving=True, work=work) for work in (HALF, {"graphics": 0.9, "dram": 0.72, "tensor": 0.36})
    )
    ((a,),), ((b,),) = half, full
    assert (a.dram, a.pipe) == (pytest.approx(0.8), pytest.approx(0.4))
    assert (b.dram, b.pipe) == (pytest.approx(0.8), pytest.approx(0.4))
    assert (a.engine, a.seconds) == (pytest.approx(0.45), WINDOW_SECONDS)
    batch = run(range(6), work=HALF)[0][0]
    assert (batch.dram, batch.pipe) == (pytest.approx(0.36), pytest.approx(0.18))
    assert a.watts / (a.dram or 0) == pytest.approx(batch.watts / (batch.dram or 0))


def test_a_burst_and_what_was_before_it_are_reported_for_the_time_it_is_busy() -> None:
    metered = Metered(serving=True)
    for at in range(3):
        metered.see(sample(at, work=HALF))
    before, burst = metered.see(sample(3, work=HALF | {"graphics": 1.0}))
    assert (before[0].dram, burst[0].dram) == (pytest.approx(0.8), pytest.approx(0.36))


@pytest.mark.parametrize("engine", [None, 0.04])
def test_serving_that_is_hardly_seen_is_reported_as_it_is(engine: float | None) -> None:
    ((window,),) = run(range(6), serving=True, work={"graphics": engine, "dram": 0.03})
    assert window.dram == pytest.approx(0.03)


def test_batch_work_has_no_bursts() -> None:
    assert [window.seconds for (window,) in run(range(6), work=BURST)] == [WINDOW_SECONDS]


def test_every_second_of_a_burst_is_reported() -> None:
    assert [window.seconds for (window,) in run(range(4), serving=True, work=BURST)] == [1.0] * 3


def test_nothing_is_made_of_nothing() -> None:
    metered = Metered()
    assert metered.see() == ()
    assert metered.see() == ()


@pytest.mark.parametrize(
    ("activity", "counted"),
    [
        (Activity(), False),
        (Activity(graphics=0.9, sm=0.5), False),
        (Activity(dram=0.0), True),
        (Activity(fp64=0.1), True),
    ],
)
def test_without_dram_and_pipes_nothing_is_counted(activity: Activity, counted: bool) -> None:
    assert is_counted(replace(sample(0), activity=activity)) is counted


STEPS = st.sampled_from([0.0, 0.97, 1.0, 1.0, 1.0, 1.03, 2.0, 4.0, 14.0, 16.0, 90.0, -1.0, -400.0])


@st.composite
def lives(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Views of two GPUs: seconds since the one before, who is missing, what is wrong."""
    view = st.fixed_dictionaries(
        {
            "step": STEPS,
            "missing": st.sampled_from([(), (), (), (), (0,), (1,), (0, 1)]),
            "skew": st.floats(0, 0.05),
            "blind": st.integers(0, 9).map(lambda number: number == 0),
            "reset": st.integers(0, 9).map(lambda number: number == 0),
            "switch": st.integers(0, 9).map(lambda number: number == 0),
        }
    )
    return draw(st.lists(view, min_size=1, max_size=60))


def played(life: list[dict[str, Any]], metered: Metered) -> Iterator[tuple[float, GangWindow]]:
    """Windows with the time at which they were told."""
    at, counter = 0.0, 1e6
    for number, view in enumerate(life):
        at += view["step"]
        counter = counter / 2 if view["reset"] else counter + WATTS * max(0.0, view["step"])
        work = None if view["blind"] else WORK | {"dram": number % 7 / 10, "window_seconds": max(0.1, view["step"])}
        gpus = [
            sample(at + index * view["skew"], index, energy=counter, work=work)
            for index in (0, 1)
            if index not in view["missing"]
        ]
        for gang in metered.see(*gpus):
            yield at, gang
        if view["switch"]:
            metered.switch(None if metered.cap else CAP, at + 0.05)


@settings(max_examples=examples(150))
@given(lives(), st.booleans())
def test_whatever_is_seen_windows_are_of_all_gpus_short_and_of_the_same_seconds(
    life: list[dict[str, Any]], serving: bool
) -> None:
    metered = Metered(Meter(uuids=("GPU-0", "GPU-1")), serving=serving)
    for _, gang in played(life, metered):
        assert len(gang) == 2
        for window in gang:
            assert 0 < window.seconds < WINDOW_SECONDS + LONGEST_SECONDS + 1
            busy = window.engine if serving and window.engine and window.engine >= WEAK else 1.0
            assert window.dram is None or 0 <= window.dram * busy <= 0.6 + SLACK
            assert window.pipe is None or window.pipe * busy == pytest.approx(WORK["tensor"])
        assert abs(gang[0].seconds - gang[1].seconds) <= 2 * 0.05 + SLACK


@settings(max_examples=examples(150))
@given(lives())
def test_whatever_is_seen_no_second_is_reported_twice(life: list[dict[str, Any]]) -> None:
    metered = Metered(Meter(uuids=("GPU-0", "GPU-1")))
    told = sum(gang[0].seconds for _, gang in played(life, metered))
    assert told <= sum(max(0.0, view["step"]) for view in life) + SLACK


@settings(max_examples=examples(150))
@given(lives())
def test_whatever_is_seen_a_settled_window_was_measured_well_after_the_newest_switch(
    life: list[dict[str, Any]],
) -> None:
    forward = [view | {"step": abs(view["step"]), "skew": 0.0} for view in life]
    metered = Metered(Meter(uuids=("GPU-0", "GPU-1")))
    for at, gang in played(forward, metered):
        assert all(window.cap == metered.cap for window in gang)
        if metered.switched is not None and gang[0].settled:
            assert at - gang[0].seconds >= metered.switched + SETTLE_SECONDS - SLACK


@settings(max_examples=examples(150))
@given(lives())
def test_whatever_is_seen_a_sound_window_has_the_true_draw(life: list[dict[str, Any]]) -> None:
    steady = [view | {"skew": 0.0, "step": abs(view["step"])} for view in life]
    metered = Metered(Meter(uuids=("GPU-0", "GPU-1")))
    for _, gang in played(steady, metered):
        assert all(not window.is_sound or math.isclose(window.watts, WATTS, rel_tol=1e-5) for window in gang)
