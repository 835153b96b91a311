"""GPUs that are held and do nothing: with a context of CUDA on them their clocks stay up, and so does their draw.

At the lowest clock they draw less, and nothing is slowed as nothing runs. The first work that is seen ends it.
"""

import msgspec

from gpuwatch.model.snapshot import Gpu, Record

IDLE_SECONDS = 600.0
IDLE = 0.01
"""Of any engine: as much as the driver's own whole percents can tell."""

BASELINE_SECONDS = 60.0
"""So much of the idle time, the newest, tells what is drawn without a cap: a GPU cools down first."""

GAP_SECONDS = 10.0
"""Nobody knows what happened between two samples further apart."""

evolve = msgspec.structs.replace


class Rest(Record, frozen=True, kw_only=True):
    """A gang of GPUs. `since`: monotonic seconds since when it is idle, None: it is not; `at`: of the newest look;
    `energy`: joules of each GPU's counter then; `baseline`: joules and seconds of the end of its idle time at its own
    clocks; `resting`: as told last; `joules_saved`: of this rest, against the baseline.
    """

    since: float | None = None
    at: float = 0.0
    energy: dict[str, float] = {}
    baseline: tuple[float, float] = (0.0, 0.0)
    resting: bool = False
    joules_saved: float = 0.0


def step(rest: Rest, gpus: tuple[Gpu, ...], now: float) -> tuple[Rest, bool]:
    """Take in one View's samples of all GPUs of a gang; whether the lowest clock will do for them now.

    `now`: monotonic seconds. What cannot be read counts as work.
    """
    if not is_idle(gpus):
        return Rest(), False
    energy = {gpu.identity.uuid: gpu.power.energy for gpu in gpus if gpu.power.energy is not None}
    if rest.since is None or not 0 <= now - rest.at <= GAP_SECONDS:
        return Rest(since=now, at=now, energy=energy), False
    joules, seconds = _drawn(rest, energy, len(gpus)), now - rest.at
    lasted = now - rest.since
    kept = evolve(rest, at=now, energy=energy, resting=lasted >= IDLE_SECONDS)
    if joules is None:
        return kept, kept.resting
    before, span = rest.baseline
    if rest.resting:
        saved = before / span * seconds - joules if span else 0.0
        return evolve(kept, joules_saved=rest.joules_saved + saved), True
    if lasted > IDLE_SECONDS - BASELINE_SECONDS:
        kept = evolve(kept, baseline=(before + joules, span + seconds))
    return kept, kept.resting


def is_idle(gpus: tuple[Gpu, ...]) -> bool:
    """Whether processes hold the GPUs and none of them does anything, as far as each tells."""
    return bool(gpus) and any(gpu.processes for gpu in gpus) and all(map(_is_idle, gpus))


def _is_idle(gpu: Gpu) -> bool:
    """Copies and video count as work, though the compute engine knows nothing of them."""
    used, activity = gpu.utilization, gpu.activity
    others = (activity.dram, used.gpu, used.gpu_max, used.encoder, used.decoder, used.jpeg, used.ofa)
    return activity.graphics is not None and all(
        value < IDLE for value in (activity.graphics, *others) if value is not None
    )


def _drawn(rest: Rest, energy: dict[str, float], members: int) -> float | None:
    """Joules since the newest look. None: a counter fails, or was set back."""
    if not len(rest.energy) == len(energy) == members or rest.energy.keys() != energy.keys():
        return None
    joules = [energy[uuid] - before for uuid, before in rest.energy.items()]
    return None if min(joules) < 0 else sum(joules)
