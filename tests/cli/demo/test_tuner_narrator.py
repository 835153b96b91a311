"""What the demo's tuner does is told once, in words for people, and of GPUs alike together."""

from msgspec.structs import replace

from gpuwatch.cli.demo.tuner import TunerNarrator
from gpuwatch.tuning.model.status import BudgetState, GpuTuning, Obstacle, ObstacleReason, TunerState, TuningState

POD = "ml/train-0"


def gpu(index: int, state: TuningState, **members: object) -> GpuTuning:
    return GpuTuning(index=index, uuid=f"GPU-{index}", state=state, owners=(POD,), **members)  # type: ignore[arg-type]


def narrated(
    narrator: TunerNarrator, *gpus: GpuTuning, budget: BudgetState | None = None, mode: str = "enforce"
) -> list[str]:
    return [what for _, what in narrator.sentences(TunerState(mode=mode, gpus=gpus, budget=budget))]


def refused(index: int, reason: ObstacleReason, words: str) -> GpuTuning:
    return gpu(index, TuningState.REFUSED, obstacles=(Obstacle(reason=reason, message=words),))


def test_a_search_is_reported_by_its_caps_and_not_by_its_turns() -> None:
    narrator = TunerNarrator()
    reduced = [gpu(index, TuningState.SEARCHING, clock_cap=1.59e9) for index in (0, 1)]
    full = [gpu(index, TuningState.SEARCHING) for index in (0, 1)]
    assert narrated(narrator, *reduced) == ["tries 1590 MHz on GPUs 0, 1, in turns with full speed"]
    assert [narrated(narrator, *each) for each in (full, reduced, full, reduced)] == [[], [], [], []]
    assert narrated(narrator, *(replace(each, clock_cap=1.5e9) for each in reduced)) == [
        "tries 1500 MHz on GPUs 0, 1, in turns with full speed"
    ]


def test_a_hold_says_what_it_costs_and_saves() -> None:
    held = [
        gpu(i, TuningState.HOLDING, clock_cap=1.7e9, slowdown=0.041, slowdown_upper=0.0465, saved=0.118)
        for i in range(4)
    ]
    assert narrated(TunerNarrator(), *held) == [
        "holds GPUs 0 to 3 at 1700 MHz: 4.1 % slower (4.7 % at most), 11.8 % less energy for the same work"
    ]


def test_a_reason_is_reported_once_however_its_seconds_count_down() -> None:
    narrator = TunerNarrator()
    assert narrated(narrator, refused(2, ObstacleReason.FAULT, "fault 0 s ago; x")) == [
        "leaves GPU 2 alone: fault 0 s ago"
    ]
    assert narrated(narrator, refused(2, ObstacleReason.FAULT, "fault 9 s ago; x")) == []
    assert narrated(narrator, refused(2, ObstacleReason.LOST, "gone")) == ["leaves GPU 2 alone: gone"]


def test_what_only_passes_is_not_reported() -> None:
    narrator = TunerNarrator()
    assert narrated(narrator, refused(0, ObstacleReason.NO_GUARD, "x"), gpu(1, TuningState.IDLE)) == []
    assert narrated(narrator, gpu(0, TuningState.OBSERVING), mode="observe") == []


def test_a_budget_is_reported_with_its_limits_and_their_return() -> None:
    narrator, free = TunerNarrator(), [gpu(index, TuningState.IDLE) for index in range(3)]
    budget = BudgetState(budget=900.0, how="emergency", message="too much")
    held = [replace(each, power_limit=300.0 if each.index else 200.0) for each in free]
    assert narrated(narrator, *held, budget=budget) == [
        "shares 900 W among the GPUs: too much",
        "limits GPUs 1, 2 to 300 W each",
        "limits GPU 0 to 200 W",
    ]
    assert narrated(narrator, *held, budget=budget) == []
    assert narrated(narrator, *free) == ["restores the power limit of GPUs 0 to 2"]
