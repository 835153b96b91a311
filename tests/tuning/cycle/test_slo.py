"""Serving by what people wait for: a cap is held while the SLO holds, and lifted within two windows when it fails."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gpuwatch.model.consent import CLASS, SLO, Histogram, ProgressCounter
from gpuwatch.tuning.energy.hold import CALM
from gpuwatch.tuning.energy.model import WINDOW_SECONDS
from gpuwatch.tuning.model.status import ObstacleReason, TuningState
from tests.tuning.cycle.tuning_world import World

NAME = "vllm:e2e_request_latency_seconds"
BOUNDS = (0.5, 1.0, 2.0, 5.0)
TWO_WINDOWS = 2 * WINDOW_SECONDS + 1


class Serving(World):
    """Pod b serves on GPU 2. `late`: of a hundred requests those that take 5 s, by its speed; the others take 1 s."""

    def __init__(self, text: str = f"{NAME} p95 <= 2s", *, rate: float = 40.0, bound: float = 0.1) -> None:
        super().__init__(max_actions_per_hour=1000)
        self.works = {"GPU-0": None, "GPU-1": None, "GPU-2": self.works["GPU-2"], "GPU-3": None}
        work = self.works["GPU-2"]
        assert work is not None
        work.bound, work.pids = bound, (12,)
        self.annotations["b"] = {"gpuwatch.io/autotune": "enforce", SLO: text}
        self.rate, self.late, self.page = rate, self.in_time, self.true
        self.soon, self.slow, self.trouble = 0.0, 0.0, ""
        self.samples: tuple[tuple[float, tuple[float, ...]], ...] = ()

    @staticmethod
    def in_time(speed: float) -> float:
        return 0.0

    @staticmethod
    def true(counts: tuple[float, ...]) -> tuple[float, ...]:
        return counts

    def tick(self):
        late = self.late(self.pace("b")) / 100
        self.soon, self.slow = self.soon + self.rate * (1 - late), self.slow + self.rate * late
        fast = float(int(self.soon))
        counts = self.page((0.0, fast, fast, fast + int(self.slow), fast + int(self.slow)))
        self.samples = (*self.samples, (self.at + 1.0, counts))[-20:]
        read = {} if self.trouble else {NAME: Histogram(bounds=BOUNDS, samples=self.samples)}
        self.counters = {"uid-b": ProgressCounter(histograms=read, trouble=self.trouble)}
        return super().tick()

    @property
    def cap(self) -> float | None:
        return self.caps[2]

    def until_lifted(self, seconds: float) -> float:
        began = self.now
        while self.cap is not None:
            assert self.now - began < seconds, self.gpu(2)
            self.tick()
        return self.now - began


@pytest.fixture(scope="module")
def held() -> Serving:
    world = Serving()
    world.until(TuningState.HOLDING, 2)
    world.run(60)
    return world


def test_a_cap_is_found_and_held_at_the_load_there_is(held: Serving) -> None:
    gpu = held.gpu(2)
    assert (gpu.state, gpu.signal, gpu.slowdown) == (TuningState.HOLDING, "slo", None)
    assert held.cap is not None
    assert f"{NAME} p95 <= 2 s, now 1 s" in gpu.note
    assert gpu.saved is not None
    assert gpu.saved > 0.1


def test_a_cap_is_lifted_within_two_windows_when_the_slo_does_not_hold(held: Serving) -> None:
    world = held.copy()
    world.late = lambda speed: 50.0
    assert world.until_lifted(TWO_WINDOWS) <= TWO_WINDOWS
    for _ in range(120):
        world.tick()
        assert world.cap is None  # it does not hold at full speed either
    world.late = world.in_time
    world.run((CALM + 3) * WINDOW_SECONDS)
    assert world.cap is not None


def test_a_cap_under_which_it_breaks_again_and_again_is_left(held: Serving) -> None:
    world = held.copy()
    cap = world.cap
    world.late = lambda speed: 0.0 if speed >= world.usual else 30.0
    world.usual = world.pace("b") + 0.001
    breaks = 0
    while world.gpu(2).state is TuningState.HOLDING:
        breaks += world.cap is not None and world.tick() is not None and world.cap is None
        world.tick()
        assert breaks <= 3
    world.until(TuningState.HOLDING, 2)
    world.run(60)
    assert world.gpu(2).clock_cap != cap


@pytest.mark.parametrize(("rate", "late"), [(0.02, 0.0), (40.0, 20.0)], ids=["too few requests", "late at full speed"])
def test_without_an_slo_that_holds_at_full_speed_nothing_is_tried(rate: float, late: float) -> None:
    world = Serving(rate=rate)
    world.late = lambda speed: late
    for _ in range(300):
        world.tick()
        assert world.cap is None
    assert world.gpu(2).state is TuningState.OBSERVING


def test_a_cap_at_which_requests_are_late_is_never_held() -> None:
    world = Serving()
    world.late = lambda speed: 0.0 if speed > 0.97 else 25.0
    world.until(TuningState.HOLDING, 2)
    assert world.pace("b") > 0.97


def test_a_page_that_says_all_is_well_is_overruled_where_all_gpu_counters_show_a_slowdown() -> None:
    world = Serving(bound=0.9)
    world.until(TuningState.HOLDING, 2)
    assert 1 - world.speed("GPU-2") < 0.05 + 0.04


LIES: dict[str, Callable[[tuple[float, ...]], tuple[float, ...]]] = {
    "nothing is late and nothing was asked": lambda counts: (0.0,) * 5,
    "set back each second": lambda counts: tuple(1e6 - each for each in counts),
    "not cumulative": lambda counts: counts[::-1],
    "other buckets": lambda counts: counts[:3],
}


@pytest.mark.parametrize("lie", LIES)
def test_a_page_that_cannot_be_true_never_has_a_cap_set(lie: str) -> None:
    world = Serving()
    world.page = LIES[lie]
    for _ in range(300):
        world.tick()
        assert world.cap is None


@pytest.mark.parametrize("lie", [*list(LIES)[1:], "gone"])
def test_a_page_that_begins_to_lie_or_is_gone_lifts_the_cap_within_two_windows(held: Serving, lie: str) -> None:
    world = held.copy()
    if lie == "gone":
        world.page = lambda counts: ()
    else:
        world.page = LIES[lie]
    world.until_lifted(TWO_WINDOWS)
    world.until(TuningState.REFUSED, 2, 300)
    assert world.gpu(2).reason is ObstacleReason.NO_SLO
    assert world.cap is None


def test_a_page_that_stops_counting_while_the_gpu_works_lifts_the_cap(held: Serving) -> None:
    world = held.copy()
    world.rate = 0.0
    assert 60 < world.until_lifted(150) < 150
    world.run(120)
    assert world.cap is None


def test_why_a_histogram_cannot_be_read_is_reported() -> None:
    world = Serving()
    world.trouble = "no counter at port 8000, /metrics; refused"
    world.until(TuningState.REFUSED, 2, 300)
    assert world.gpu(2).reason is ObstacleReason.NO_SLO
    assert f"slo is not used: {world.trouble}" in world.gpu(2).note


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({SLO: "p95 <= 2s"}, "'p95 <= 2s' is no target; write HISTOGRAM pQUANTILE <= BOUND"),
        ({SLO: ""}, "gpuwatch.io/slo is ''"),
        ({SLO: f"{NAME} p95 <= 2s", CLASS: "batch"}, "remove one of them"),
    ],
)
def test_an_annotation_that_cannot_be_kept_is_refused_with_the_reason(said: dict[str, str], why: str) -> None:
    world = Serving()
    world.annotations["b"] = {"gpuwatch.io/autotune": "enforce"} | said
    world.run(200)
    assert (world.gpu(2).state, world.gpu(2).reason) == (TuningState.REFUSED, ObstacleReason.OPTED_OUT)
    assert why in world.gpu(2).message
    assert world.cap is None


def test_who_only_observes_is_shown_what_would_be_tried() -> None:
    world = Serving()
    world.config = replace(world.config, mode="observe")
    world.until(TuningState.ELIGIBLE, 2, 300)
    world.run(120)
    assert not world.orders
    assert "would search from" in world.gpu(2).note


def test_a_restarted_tuner_verifies_under_the_same_slo_and_starts_over_without_it(held: Serving) -> None:
    again, other = Serving(), Serving()
    del other.annotations["b"][SLO]
    other.annotations["b"][CLASS] = "serving"
    for world, state in ((again, TuningState.VERIFYING), (other, TuningState.OBSERVING)):
        world.saved = dict(held.step.kept)
        world.run(20)
        assert world.gpu(2).state is state
    assert again.gpu(2).signal == "slo"
