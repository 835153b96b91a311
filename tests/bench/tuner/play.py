"""A GPU that does a workload, as the tuner sees it: windows of 5 s with noise, and the true account of what it did."""

import math
import random
from collections.abc import Callable
from typing import NamedTuple

from gpuwatch.tuning.energy.hold import SavingEstimate, saving_estimate
from gpuwatch.tuning.energy.model import GangWindow, Ladder, Terms, TrialPhase, TrialState, TrialWindow
from gpuwatch.tuning.energy.tuner import step, target_cap, window_seconds
from tests.bench.tuner.curves import Curve

TICK, SETTLE = 5.0, 1.0

LIMITED_HERTZ = 1500e6
"""The clock without a limit, of boards of which only limits were measured."""


class Noise(NamedTuple):
    """`sigma`: standard deviation of a window's rate of work; `rho`: what is left of it in the next window.

    `counter`: share of sigma that each counter has of its own. `skew`: standard deviation of what a counter tells wrong
    of the speed at 70 % of the clock, the same all the time.
    """

    sigma: float = 0.01
    rho: float = 0.0
    counter: float = 0.2
    skew: float = 0.0

    def __str__(self) -> str:
        kind = f"AR(1) {self.rho:g}" if self.rho else "white"
        return f"{kind} {100 * self.sigma:g} %" + (f", skew {100 * self.skew:g} %" if self.skew else "")


class Gpu:
    """One GPU at work. `curve` may be exchanged at any time: another phase."""

    def __init__(self, curve: Curve, noise: Noise, seed: str) -> None:
        self.curve, self.noise, self.seed, self.chance = curve, noise, seed, random.Random(seed)
        self.dram, self.pipe = self.chance.uniform(0.1, 0.8), self.chance.uniform(0.1, 0.6)
        self.skews = [self.chance.gauss(0, noise.skew) for _ in range(2)]
        self.wave = self.chance.gauss(0, noise.sigma)
        self.cap: float | None = None

    def truth(self, cap: float | None) -> tuple[float, float]:
        """Speed and energy for a unit of work, relative to no cap."""
        return self.curve.at(cap)

    def tick(self, cap: float | None, seconds: float = TICK) -> list[TrialWindow]:
        """Work for so long at a cap; two windows where it is a new one."""
        noise, chance = self.noise, self.chance
        self.wave = noise.rho * self.wave + math.sqrt(1 - noise.rho**2) * chance.gauss(0, noise.sigma)
        switched, self.cap = cap != self.cap, cap
        windows = [self._window(SETTLE, settled=False)] if switched else []
        return [*windows, self._window(seconds - SETTLE if switched else seconds, settled=True)]

    def gang(self, window: TrialWindow) -> GangWindow:
        """The windows of all GPUs that are moved with this one, in the same seconds."""
        return (window,)

    def _window(self, seconds: float, *, settled: bool) -> TrialWindow:
        curve, own = self.curve, self.noise.counter * self.noise.sigma
        speed, energy = curve.at(self.cap)
        reach = self.cap or curve.top
        clock = LIMITED_HERTZ * (reach / curve.top) ** 0.4 if curve.knob == "power_limit" else reach
        top = LIMITED_HERTZ if curve.knob == "power_limit" else curve.top
        depth = (1 - (self.cap or curve.top) / curve.top) / 0.3
        rate = speed * math.exp(self.wave)
        dram, pipe = (rate * math.exp(self.chance.gauss(0, own) + skew * depth) for skew in self.skews)
        watts = curve.watts * energy * speed * math.exp(0.5 * self.wave + self.chance.gauss(0, own))
        return TrialWindow(
            cap=self.cap,
            seconds=seconds,
            dram=self.dram * dram,
            pipe=self.pipe * pipe * top / clock,
            engine=0.98,
            joules=watts * seconds,
            clock=clock,
            settled=settled,
        )


class Account(NamedTuple):
    """What really happened in `seconds`. `held`: the last cap held.

    `off`: seconds of looking, or at another cap than the one held.
    `over`: seconds more than a percentage point above the promised slowdown. `told`: what is said of the held cap.
    """

    held: float | None
    refusal: str
    seconds: float
    work: float
    energy: float  # without a cap it is the same as work
    probes: int
    hold_at: float | None
    off: float
    over: float
    told: SavingEstimate | None = None

    @property
    def saving(self) -> float:
        """Share of the energy for the work done."""
        return 1 - self.energy / self.work


def play(
    gpu: Gpu,
    ladder: Ladder,
    terms: Terms,
    seconds: float,
    change: Callable[[float, float], None] | None = None,
    known: float | None = None,
) -> Account:
    """Let the tuner have a GPU for so long, or with 0 until it holds a cap or refuses.

    `change`: called with the seconds played and those over the bound, before each tick. `known`: a cap that held for
    such work before.
    """
    state, now, work, energy, off, over, probes = TrialState(known=known), 0.0, 0.0, 0.0, 0.0, 0.0, 0
    hold_at, tried = None, None
    cap: float | None = None
    while now < (seconds or 7200.0):
        if change is not None:
            change(now, over)
        for window in gpu.tick(cap, window_seconds(state, gpu.seed)):
            speed, joules = gpu.truth(window.cap)
            now += window.seconds
            work += speed * window.seconds
            energy += speed * joules * window.seconds
            over += window.seconds * (speed < 1 - terms.slowdown - 0.01)
            off += window.seconds * (state.phase in (TrialPhase.OBSERVE, TrialPhase.SEARCH) or window.cap != state.held)
            state = step(state, gpu.gang(window), ladder, terms)
            cap = target_cap(state)
            tried, before = state.probe.cap if state.probe and state.phase is TrialPhase.SEARCH else None, tried
            probes += tried not in (None, before)
        if state.phase is TrialPhase.HOLD and hold_at is None:
            hold_at = now
        if not seconds and state.phase in (TrialPhase.HOLD, TrialPhase.REFUSED):
            break
    refusal, told = str(state.refusal or ""), saving_estimate(state)
    return Account(state.held, refusal, now, work, energy, probes, hold_at, off, over, told)
