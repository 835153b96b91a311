"""GPUs that are held and do nothing get the lowest clock after ten minutes, and lose it with the first work seen."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.model.snapshot import Activity, Gpu, Utilization
from gpuwatch.tuning.energy.meter import (
    BASELINE_SECONDS,
    IDLE,
    IDLE_GAP_SECONDS,
    IDLE_SECONDS,
    IdleCap,
    idle_step,
    is_idle_gang,
)
from tests.tuning.energy.tuning_samples import sample

NOTHING = {"graphics": 0.0, "dram": 0.0}
LOADED, CAPPED = 120.0, 90.0  # watts


def idle(index: int = 0, **more: Any) -> Gpu:
    return sample(0, index, work=NOTHING, **more)


def rested(
    rest: IdleCap, seconds: Iterable[int], watts: float = LOADED, start: float = 0.0
) -> tuple[IdleCap, list[bool]]:
    told = []
    for at in seconds:
        rest, resting = idle_step(rest, (idle(energy=start + watts * at),), float(at))
        told.append(resting)
    return rest, told


def test_after_ten_minutes_of_nothing_it_rests() -> None:
    _, told = rested(IdleCap(), range(int(IDLE_SECONDS) + 2))
    assert told.index(True) == IDLE_SECONDS
    assert told[-1]


WORK: dict[str, Gpu] = {
    "a little of the engine": sample(0, work={"graphics": IDLE}),
    "copies": sample(0, work=NOTHING | {"dram": 0.02}),
    "what the driver calls busy": replace(idle(), utilization=Utilization(gpu=0.01)),
    "what the driver called busy in between": replace(idle(), utilization=Utilization(gpu=0.0, gpu_max=0.3)),
    "video": replace(idle(), utilization=Utilization(decoder=0.2)),
    "nobody knows": replace(idle(), activity=Activity()),
    "nobody holds it": idle(pids=()),
    "processes unknown": replace(idle(), processes=None),
}


@pytest.mark.parametrize("name", WORK)
def test_what_is_work_or_not_known_ends_the_rest_at_once(name: str) -> None:
    rest, told = rested(IdleCap(), range(int(IDLE_SECONDS) + 1))
    assert told[-1]
    assert idle_step(rest, (WORK[name],), IDLE_SECONDS + 1) == (IdleCap(), False)


def test_one_gpu_that_works_keeps_its_gang_awake() -> None:
    assert is_idle_gang((idle(0), idle(1)))
    assert is_idle_gang((idle(0), idle(1, pids=())))
    assert not is_idle_gang((idle(0), sample(0, 1)))
    assert not is_idle_gang(())


def test_a_gap_starts_the_ten_minutes_over() -> None:
    rest, _ = rested(IdleCap(), range(int(IDLE_SECONDS)))
    _, told = rested(rest, range(int(IDLE_SECONDS + IDLE_GAP_SECONDS), int(2 * IDLE_SECONDS)))
    assert not any(told)


def test_time_that_goes_back_starts_the_ten_minutes_over() -> None:
    rest, _ = rested(IdleCap(), range(1000))
    assert not idle_step(rest, (idle(),), 5.0)[1]


def test_what_is_saved_is_reported_against_the_draw_just_before() -> None:
    end = int(IDLE_SECONDS)
    rest, told = rested(IdleCap(), range(end + 1))
    assert told[-1]
    assert rest.joules_saved == 0
    joules, seconds = rest.baseline
    assert joules / seconds == pytest.approx(LOADED)
    assert seconds == pytest.approx(BASELINE_SECONDS, abs=1)
    rest, _ = rested(rest, range(end + 1, end + 101), CAPPED, start=(LOADED - CAPPED) * end)
    assert rest.joules_saved == pytest.approx(100 * (LOADED - CAPPED))


def test_a_gpu_that_has_cooled_down_is_measured_at_the_end() -> None:
    warm, end = 200.0, int(IDLE_SECONDS - BASELINE_SECONDS)
    rest, _ = rested(IdleCap(), range(end + 1), warm)
    rest, _ = rested(rest, range(end + 1, int(IDLE_SECONDS) + 1), LOADED, start=(warm - LOADED) * end)
    joules, seconds = rest.baseline
    assert joules / seconds == pytest.approx(LOADED)


@pytest.mark.parametrize("energy", [None, 0.0])
def test_a_counter_that_fails_or_is_set_back_saves_nothing(energy: float | None) -> None:
    end = int(IDLE_SECONDS)
    rest, _ = rested(IdleCap(), range(end + 1))
    rest, resting = idle_step(rest, (idle(energy=energy),), end + 1.0)
    assert resting
    assert rest.joules_saved == 0


def test_of_a_gang_the_sum_is_saved_unless_one_counter_was_set_back() -> None:
    rest = IdleCap()
    for at in range(0, int(IDLE_SECONDS) + 2, 2):
        rest, _ = idle_step(rest, (idle(0, energy=LOADED * at), idle(1, energy=LOADED * at)), float(at))
    base, after = LOADED * IDLE_SECONDS, IDLE_SECONDS + 2
    lower = (idle(0, energy=base + 2 * CAPPED), idle(1, energy=base + 2 * CAPPED))
    assert idle_step(rest, lower, after)[0].joules_saved == pytest.approx(2 * 2 * (LOADED - CAPPED))
    one_reset = (idle(0, energy=base + 2 * CAPPED), idle(1, energy=5.0))
    assert idle_step(rest, one_reset, after)[0].joules_saved == 0


def test_without_counters_it_rests_and_saves_nothing() -> None:
    rest = IdleCap()
    for at in range(int(IDLE_SECONDS) + 60):
        rest, resting = idle_step(rest, (idle(energy=None),), float(at))
    assert resting
    assert (rest.joules_saved, rest.baseline) == (0.0, (0.0, 0.0))


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 1.0, 1.0, 1.0, 5.0, 11.0, -3.0, 300.0]), st.integers(0, 30)), max_size=300)
)
def test_it_never_rests_before_ten_minutes_without_work_and_gaps(life: list[tuple[float, int]]) -> None:
    rest, now, since = IdleCap(), 0.0, None
    for ahead, work in life:
        now += ahead
        if not 0 <= ahead <= IDLE_GAP_SECONDS or since is None:
            since = now
        gpu = idle() if work else sample(0)
        rest, resting = idle_step(rest, (gpu,), now)
        since = since if work else None
        assert not resting or (since is not None and now - since >= IDLE_SECONDS)
