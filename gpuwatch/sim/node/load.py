"""The load of work on a GPU: patterns over time, each a function of the second and of a stream of noise.

Figures are shares of what the GPU can do at full clock; `power` is the share of its dynamic draw.
"""

from collections.abc import Callable
from typing import NamedTuple

from gpuwatch.sim.node.noise import uniform


class Load(NamedTuple):
    """One moment of work. `clock_bound`: part of its time that a lower clock stretches."""

    busy: float = 0.0
    sm: float = 0.0
    tensor: float = 0.0
    dram: float = 0.0
    power: float = 0.0
    nvlink: float = 0.0
    pcie: float = 0.0
    encoder: float = 0.0
    decoder: float = 0.0
    clock_bound: float = 0.0


NOTHING = Load()


def scaled(load: Load, scale: float) -> Load:
    """The same work, more or less of it."""
    return Load(*[x * scale for x in load])._replace(clock_bound=load.clock_bound)


def _noise(stream: int, t: float, seconds: float) -> float:
    """A number that stays the same for `seconds`."""
    return uniform(stream, int(t / seconds))


def training(t: float, stream: int) -> Load:
    """Steps of compute and all-reduce; a checkpoint every 15 minutes."""
    if t % 900 > 880:
        return Load(0.04, 0.03, 0.0, 0.03, 0.1, 0.0, 0.6, clock_bound=0.1)
    wobble = 0.02 * _noise(stream, t, 0.5)
    if t % 6.0 < 5.0:
        return Load(0.99, 0.9 + wobble, 0.52 + wobble, 0.46 + wobble, 1.0 + wobble, 0.35, 0.05, clock_bound=0.64)
    return Load(0.96, 0.4 + wobble, 0.06, 0.22, 0.55 + wobble, 0.9, 0.05, clock_bound=0.2)


def finetuning(t: float, stream: int) -> Load:
    """Steps so short that no sample shows a single one."""
    wobble = 0.01 * _noise(stream, t, 0.5)
    return Load(0.98, 0.8 + wobble, 0.38 + wobble, 0.5 + wobble, 0.82 + wobble, 0.3, 0.05, clock_bound=0.35)


def inference(t: float, stream: int) -> Load:
    """Requests come in waves over minutes and in bursts over seconds."""
    wave = 0.25 + 0.5 * _noise(stream, t, 120)
    busy = min(1.0, wave * (0.5 + _noise(stream ^ 1, t, 2)))
    return Load(busy, busy * 0.7, busy * 0.28, busy * 0.75, busy * 0.72, busy * 0.1, busy * 0.08, clock_bound=0.24)


def decoding(t: float, stream: int) -> Load:
    """Answers are written word by word, which the memory limits; once a minute long prompts are read for a while."""
    wobble = 0.01 * _noise(stream, t, 0.5)
    if t % 60 > 56:
        return Load(0.99, 0.85, 0.55 + wobble, 0.45 + wobble, 0.95 + wobble, 0.1, 0.1, clock_bound=0.7)
    return Load(0.72, 0.4, 0.12 + wobble, 0.52 + wobble, 0.5 + wobble, 0.05, 0.05, clock_bound=0.1)


def notebook(t: float, stream: int) -> Load:
    """Long pauses of its user, and now and then a minute of computing."""
    if _noise(stream, t, 60) > 0.12:
        return NOTHING
    return Load(0.6 + 0.4 * _noise(stream ^ 1, t, 1), 0.5, 0.1, 0.3, 0.5, 0.0, 0.1, clock_bound=0.5)


def idle(t: float, stream: int) -> Load:
    """Holds memory and does nothing."""
    return NOTHING


def steady(t: float, stream: int) -> Load:
    """A dense matrix multiplication for ever: the hottest load of all."""
    return Load(1.0, 0.97, 0.78, 0.35, 1.0 + 0.01 * _noise(stream, t, 0.5), clock_bound=0.9)


def duty(t: float, stream: int) -> Load:
    """Ten seconds of work, ten seconds of rest."""
    return steady(t, stream) if t % 20 < 10 else NOTHING


def memory(t: float, stream: int) -> Load:
    """Limited by the memory, not by the clock."""
    return Load(0.98, 0.45, 0.0, 0.88 + 0.02 * _noise(stream, t, 0.5), 0.62, clock_bound=0.05)


def starved(t: float, stream: int) -> Load:
    """Five seconds of computing after fifteen seconds of reading data."""
    return Load(0.97, 0.5, 0.18, 0.04, 0.4, pcie=0.01, clock_bound=0.6) if t % 20 < 5 else NOTHING


def video(t: float, stream: int) -> Load:
    """Transcoding: the video engines work, the other units hardly."""
    busy = 0.4 + 0.4 * _noise(stream, t, 5)
    return Load(0.15, 0.08, 0.0, 0.06, 0.25, 0.0, 0.2, encoder=busy, decoder=busy * 0.7, clock_bound=0.3)


PATTERNS: dict[str, Callable[[float, int], Load]] = {
    function.__name__: function
    for function in (training, finetuning, inference, decoding, notebook, idle, steady, duty, memory, starved, video)
}
"""Name in a scenario -> pattern."""
