"""The energy tuner's own rules on the GPUs of scenario `tuning`: what they find, and what it truly costs the work."""

from pathlib import Path
from typing import NamedTuple

import pytest

from gpuwatch.collect.nvml.gpu import GpuReader, register
from gpuwatch.model.consent import CLASS, MAX_SLOWDOWN
from gpuwatch.sim import directory
from gpuwatch.sim.node.actions import LockClocks, SimWorkload
from gpuwatch.sim.node.physics import Physics
from gpuwatch.sim.node.scenario import load
from gpuwatch.sim.nvml import SimNvml
from gpuwatch.tuning.energy import tuner as energy_tuner
from gpuwatch.tuning.energy.meter import Meter, take
from gpuwatch.tuning.energy.model import Terms, TrialPhase, TrialState, clocks
from tests.sim.node.nodes import FakeClock

SAMPLES = 25 * 60
HELD_SECONDS = 300.0

Account = tuple[float, float, float]
"""Seconds of busy time, the same as they would have been at full clock, joules: true ones, which no tuner sees."""


class Life(NamedTuple):
    """A gang under the tuner: its last state, and what was truly spent before a cap, under the held one, and in all."""

    state: TrialState
    free: Account
    held: Account
    all: Account


def account(node: list[Physics], gpus: tuple[int, ...]) -> Account:
    parts = [(node[gpu].gpu.units[0].totals[0], node[gpu].work, node[gpu].energy) for gpu in gpus]
    return tuple(sum(column) for column in zip(*parts, strict=True))  # type: ignore[return-value]


def plus(a: Account, b: Account, sign: int = 1) -> Account:
    return a[0] + sign * b[0], a[1] + sign * b[1], a[2] + sign * b[2]


def pace(spent: Account) -> float:
    """Share of the full speed."""
    return spent[1] / spent[0]


def tuned(place: Path, name: str) -> Life:
    """Let the rules move the GPUs of one workload, a sample a second, until a cap was held for a while."""
    clock, scenario = FakeClock(), load("tuning")
    workload = next(each for each in scenario.workloads if each.name.endswith(name))
    gpus = tuple(int(gpu) for gpu in workload.gpus)
    directory.create(place, scenario, 1, 1.0, clock).release()
    keeper = directory.attach(place, clock)
    driver = SimNvml(keeper)
    driver.nvmlInit()
    readers = [GpuReader(driver, *register(driver, gpu)) for gpu in gpus]
    supported = driver.nvmlDeviceGetSupportedGraphicsClocks(driver.nvmlDeviceGetHandleByIndex(0), 2619)
    ladder = clocks([megahertz * 1e6 for megahertz in supported], top=supported[0] * 1e6)
    terms = Terms(slowdown=bound_of(workload), latency=workload.annotations[CLASS])  # type: ignore[arg-type]
    meter, state, cap, switched = Meter(), TrialState(), None, None
    spent = dict.fromkeys(TrialPhase, (0.0, 0.0, 0.0))
    for _ in range(SAMPLES):
        clock.advance(1.0)
        before = account(keeper.node.physics, gpus)
        samples = tuple(reader.read(clock.time(), clock.monotonic(), force=False) for reader in readers)
        step = plus(account(keeper.node.physics, gpus), before, -1)
        spent[state.phase] = plus(spent[state.phase], step)
        meter, gangs = take(meter, samples, cap, switched, terms.latency == "serving")
        for gang in gangs:
            state = energy_tuner.step(state, gang, ladder, terms)
        if energy_tuner.target_cap(state) != cap:
            cap, switched = energy_tuner.target_cap(state), clock.time()
            highest = None if cap is None else round(cap / 1e6)
            keeper.act(LockClocks(gpu=gpus, lowest=supported[-1], highest=highest))
        if state.phase is TrialPhase.REFUSED or (state.phase is TrialPhase.HOLD and state.seconds > HELD_SECONDS):
            break
    return Life(state, spent[TrialPhase.OBSERVE], spent[TrialPhase.HOLD], account(keeper.node.physics, gpus))


def bound_of(workload: SimWorkload) -> float:
    return float(workload.annotations.get(MAX_SLOWDOWN, 0.05))


@pytest.mark.parametrize(
    ("name", "saves"),
    [("finetune-0", 0.1), pytest.param("embed-corpus-0", 0.35, marks=pytest.mark.slow)],
)
def test_a_cap_is_held_that_saves_and_costs_no_more_than_was_promised(tmp_path: Path, name: str, saves: float) -> None:
    life = tuned(tmp_path, name)
    assert life.state.phase is TrialPhase.HOLD
    assert pace(life.free) == pytest.approx(1.0, abs=1e-9)
    assert 0.95 <= pace(life.held) < 0.995
    per_work = [spent[2] / spent[1] for spent in (life.free, life.held)]
    assert 1 - per_work[1] / per_work[0] > saves


@pytest.mark.slow  # quick: a serving pod that waits for requests, test_cycle
def test_a_serving_pod_with_bursts_keeps_its_speed(tmp_path: Path) -> None:
    life = tuned(tmp_path, "chat-7b-5d9c7f6b8-x2k4q")
    assert life.state.phase in (TrialPhase.SEARCH, TrialPhase.HOLD), life.state.refusal
    assert 0.97 <= pace(life.all) < 1.0
