"""GPUs at work with a tuner, window by window, for the tests of the energy search."""

from collections.abc import Callable

import msgspec

from gpuwatch.tuning.energy.model import Ladder, Terms, TrialPhase, TrialState, TrialWindow
from gpuwatch.tuning.energy.tuner import step, target_cap
from tests.bench.tuner.curves import Curve, model
from tests.bench.tuner.play import Gpu, Noise

MIXED = model("H100", "mixed", 1410e6, 0.3, 0.4, 2.75)
STEEP = model("H100", "clock-bound", 1410e6, 0.9, 0.4, 2.75)
GENTLE = model("H100", "memory-bound", 1410e6, 0.1, 0.4, 2.75)
LADDER = MIXED.ladder()
TERMS = Terms(slowdown=0.05)
QUIET = Noise(0.005)

Change = Callable[[TrialWindow], TrialWindow]


class Bench:
    """GPUs at work, a tuner, and all it asked for."""

    def __init__(self, *curves: Curve, terms: Terms = TERMS, ladder: Ladder = LADDER, noise: Noise = QUIET) -> None:
        self.gpus = [Gpu(curve, noise, f"gpu {number}") for number, curve in enumerate(curves)]
        self.state, self.terms, self.ladder = TrialState(), terms, ladder
        self.asked: list[float | None] = []
        self.change: Change = lambda window: window

    def tick(self) -> None:
        """Five seconds."""
        cap = target_cap(self.state)
        for gang in zip(*(gpu.tick(cap) for gpu in self.gpus), strict=True):
            self.state = step(self.state, tuple(map(self.change, gang)), self.ladder, self.terms)
            self.asked.append(target_cap(self.state))

    def until(self, phase: TrialPhase, seconds: float = 7200.0) -> None:
        """Go on until a phase is reached."""
        for _ in range(int(seconds / 5)):
            self.tick()
            if self.state.phase is phase:
                return
        raise AssertionError(f"no {phase} in {seconds} s: {self.state.phase} {self.state.refusal}")

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds / 5)):
            self.tick()


def having(**fields: object) -> Change:
    return lambda window: msgspec.structs.replace(window, **fields)
