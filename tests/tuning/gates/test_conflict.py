"""Somebody else who turns a GPU's clocks is seen, and a GPU that limits itself is not taken for somebody."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.health.check import WORKING_STATE
from gpuwatch.model.snapshot import Activity, ClockEvents, Gpu
from gpuwatch.tuning.gates.conflict import (
    ABOVE_HERTZ,
    ABOVE_SAMPLES,
    BELOW_SAMPLES,
    BUSY,
    MAX_VIEW_AGE_SECONDS,
    SETTING,
    SETTING_SAMPLES,
    SETTLE_SECONDS,
    STILL_HERTZ,
    ConflictWatch,
    check,
)
from gpuwatch.tuning.gates.eligibility import SLOWDOWNS
from tests.tuning.energy.tuning_samples import START, TOP, sample

CAP = 1500e6
LOW = 1200e6
STEP = 15e6
LONG = 40


def watched(gpus: Iterable[Gpu], cap: float | None = None, switched: float | None = None) -> list[str]:
    """What is said of each sample."""
    watch, told = ConflictWatch(), []
    at = None if switched is None else START + switched
    for gpu in gpus:
        watch, message = check(watch, gpu, cap, TOP, at)
        told.append(message)
    return told


def second(number: int, **more: Any) -> Gpu:
    return sample(number, work={"graphics": 0.9}, **more)


def at_clock(clock: float | None, **more: Any) -> list[Gpu]:
    return [second(number, clock=clock, **more) for number in range(LONG)]


def first(told: list[str]) -> int:
    """How many samples it took."""
    return next(number for number, message in enumerate(told, 1) if message)


def test_s9_a_clock_above_our_cap_belongs_to_another_program() -> None:
    told = watched(at_clock(CAP + ABOVE_HERTZ + STEP), CAP)
    assert first(told) == ABOVE_SAMPLES
    assert "1500 MHz" in told[-1]


def test_a_step_or_two_above_the_cap_is_nobody() -> None:
    assert not any(watched(at_clock(CAP + ABOVE_HERTZ), CAP))


@pytest.mark.parametrize(("cap", "clock"), [(None, LOW), (CAP, LOW), (None, 0.94 * TOP), (CAP, 0.94 * CAP)])
def test_s9_a_busy_gpu_that_is_held_lower_for_no_reason_is_locked(cap: float | None, clock: float) -> None:
    told = watched(at_clock(clock), cap)
    assert first(told) == BELOW_SAMPLES
    assert "nvidia-smi -lgc" in told[-1]


def test_s9_a_lock_is_seen_in_every_state_in_which_work_is_done() -> None:
    assert first(watched(at_clock(LOW, state=WORKING_STATE))) == BELOW_SAMPLES


def test_words_say_what_it_should_be() -> None:
    assert "its highest 1980 MHz" in watched(at_clock(LOW))[-1]
    assert "our cap 1500 MHz" in watched(at_clock(LOW), CAP)[-1]


def test_s9_a_lower_lock_is_seen_also_where_the_driver_names_a_setting() -> None:
    assert first(watched(at_clock(LOW, reasons={SETTING: True}), CAP)) == BELOW_SAMPLES


def test_s9_a_setting_that_is_not_ours_belongs_to_another_program() -> None:
    told = watched(at_clock(TOP, reasons={SETTING: True}))
    assert first(told) == SETTING_SAMPLES
    assert "DCGM" in told[-1]


def test_a_setting_of_ours_is_nobody() -> None:
    assert not any(watched(at_clock(CAP, reasons={SETTING: True}), CAP))


HEALTHY: Mapping[str, list[Gpu]] = {
    "full clock": at_clock(TOP),
    "boost of its own": [second(number, clock=(0.9 + 0.01 * (number % 3)) * TOP) for number in range(LONG)],
    "a boost step": at_clock(0.96 * TOP),
    "a power cap": at_clock(LOW, reasons={"sw_power_cap": True}),
    "sync boost": at_clock(LOW, reasons={"sync_boost": True}),
    "a display": at_clock(LOW, reasons={"display_clock_setting": True}),
    "idle when looked at": at_clock(300e6, reasons={"gpu_idle": True}),
    "half idle": [sample(number, clock=LOW, work={"graphics": BUSY}) for number in range(LONG)],
    "idle": [sample(number, clock=300e6, work={"graphics": 0.0}) for number in range(LONG)],
    "a low state": at_clock(LOW, state=8),
    "activity unknown": [replace(each, activity=Activity()) for each in at_clock(LOW)],
    "reasons unknown": [replace(each, clock_events=ClockEvents()) for each in at_clock(LOW)],
    "clock unknown": at_clock(None),
    "a cap that comes and goes": [
        second(number, clock=LOW, reasons={"sw_power_cap": number % BELOW_SAMPLES == 0}) for number in range(LONG)
    ],
    **{reason: at_clock(LOW, reasons={reason: True}) for reason in SLOWDOWNS},
}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_gpu_that_limits_itself_is_nobody(name: str) -> None:
    assert not any(watched(HEALTHY[name]))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_gpu_that_limits_itself_below_our_cap_is_nobody(name: str) -> None:
    lower = [
        replace(gpu, clocks=replace(gpu.clocks, sm=gpu.clocks.sm and gpu.clocks.sm * CAP / TOP))
        for gpu in HEALTHY[name]
    ]
    assert not any(watched(lower, CAP))


def counted(reason: str, step: float) -> list[Gpu]:
    """Held by what has a counter and no bit."""
    return [
        replace(gpu, clock_events=replace(gpu.clock_events, seconds={reason: 50 + step * number}))
        for number, gpu in enumerate(at_clock(LOW))
    ]


@pytest.mark.parametrize("reason", ["reliability", "board_limit", "low_utilization", "sw_power_cap", "thermal"])
def test_what_the_driver_only_counts_is_a_reason_too(reason: str) -> None:
    assert not any(watched(counted(reason, 0.01)))
    assert any(watched(counted(reason, 0.0)))


def test_time_spent_idle_is_no_reason_for_a_busy_gpu() -> None:
    assert any(watched(counted("gpu_idle", 0.1)))


def test_work_that_begins_is_nobody() -> None:
    ramp = [second(number, clock=min(TOP, 300e6 + number * 400e6)) for number in range(LONG)]
    assert not any(watched(ramp))


def test_until_a_switch_has_settled_nothing_is_reported() -> None:
    settling = [second(number / 10, clock=TOP) for number in range(int(SETTLE_SECONDS * 10))]
    assert not any(watched(settling, CAP, switched=0.0))
    assert any(watched(at_clock(TOP), CAP, switched=0.0))


def test_a_sample_from_before_the_switch_is_not_used_against_any_gpu() -> None:
    before = [second(number, clock=TOP) for number in range(int(MAX_VIEW_AGE_SECONDS))]
    assert not any(watched(before, CAP, switched=MAX_VIEW_AGE_SECONDS))


def test_a_clock_that_was_set_back_makes_nobody_blind() -> None:
    assert any(watched(at_clock(TOP), CAP, switched=4000.0))


def test_the_same_sample_again_counts_once() -> None:
    gpu = second(0, clock=TOP)
    assert not any(watched([gpu] * LONG, CAP))


def test_where_the_highest_clock_is_not_known_only_a_setting_shows() -> None:
    watch, told = ConflictWatch(), []
    for gpu in at_clock(LOW):
        watch, message = check(watch, gpu, None, None, None)
        told.append(message)
    assert not any(told)


@given(st.lists(st.floats(0.96, 1.0), min_size=1, max_size=60), st.booleans())
def test_a_gpu_near_its_highest_clock_is_never_a_conflict(shares: list[float], capped: bool) -> None:
    cap = CAP if capped else None
    clocks = [(cap or TOP) * share for share in shares]
    assert not any(watched((second(number, clock=clock) for number, clock in enumerate(clocks)), cap))


@given(st.floats(0.3, 0.94), st.integers(0, 3), st.integers(0, 100))
def test_s9_a_lock_is_found_wherever_it_is(share: float, jitter: int, seed: int) -> None:
    clock = share * TOP
    gpus = [second(number, clock=clock - (number + seed) % (jitter + 1) * STILL_HERTZ / 3) for number in range(LONG)]
    assert any(watched(gpus))
