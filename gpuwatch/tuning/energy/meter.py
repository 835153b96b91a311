"""From the agent's samples to windows of work, and to the time in which a GPU is held and does nothing.

A sample covers the time since the one before: how busy the units were, and how many joules were used. One GPU's sample
may be missing, the same may come twice, clocks and counters may be set back. What cannot be trusted makes no window, or
one that is marked so; a window is never stretched over a time without samples.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gpuwatch.model.consent import ProgressCounter
from gpuwatch.model.snapshot import Gpu, Record
from gpuwatch.tuning.energy.hold import BURST
from gpuwatch.tuning.energy.model import WEAK, WINDOW_SECONDS, GangWindow, Rate, TrialWindow
from gpuwatch.tuning.energy.signals import rates
from gpuwatch.tuning.energy.slo import TargetHistogram, served

JITTER_SECONDS = 0.2
"""Five samples of a second may span a little less, and should not wait for a sixth."""

SETTLE_SECONDS = 1.0
"""A sample that begins less than this after a switch covers two settings: clocks move within it, and the driver's own
figures are means of up to a second."""

LONGEST_SECONDS = 15.0
"""Samples further apart leave a gap, as after an agent's restart; an agent that samples each 10 s is still followed."""

MOST_WATTS = 10_000.0
"""No board draws more: a counter that shows more has jumped."""

COVERED = 0.5
"""A signal that is known for less than this share of a window does not count for it."""

PIPES = ("tensor", "fp64", "fp32", "fp16")
SIGNALS = ("dram", "graphics", *PIPES)

Sum = tuple[float, float]
"""Of a signal: value times seconds, and the seconds in which it was known."""

NOTHING: Sum = (0.0, 0.0)


class Sums(Record, frozen=True, kw_only=True):
    """Some seconds of one GPU, added up. `joules` None: the energy counter failed or jumped in them."""

    seconds: float = 0.0
    joules: float | None = 0.0
    signals: Mapping[str, Sum] = {}

    def __add__(self, other: "Sums") -> "Sums":
        names = {**self.signals, **other.signals}
        both = {name: (self.signals.get(name, NOTHING), other.signals.get(name, NOTHING)) for name in names}
        return Sums(
            seconds=self.seconds + other.seconds,
            joules=None if self.joules is None or other.joules is None else self.joules + other.joules,
            signals={name: (a[0] + b[0], a[1] + b[1]) for name, (a, b) in both.items()},
        )

    def mean(self, name: str) -> float | None:
        """Time-weighted. None: not known, or for too little of the time."""
        total, seconds = self.signals.get(name, NOTHING)
        return total / seconds if seconds and seconds >= COVERED * self.seconds else None


class MeterMark(Record, frozen=True, kw_only=True):
    """One GPU since the window began. `at`, `energy`: of its newest sample; `done`: up to the newest View in which all
    GPUs had a new one, so that they cover the same seconds; `open`: since then.
    """

    at: float
    energy: float | None
    done: Sums = Sums()
    open: Sums = Sums()


class Meter(Record, frozen=True, kw_only=True):
    """The state of a gang between two Views. `uuids`: its GPUs, in the order of the windows; empty: those of
    the first View. `cap`: as of the newest View. `settled`: nothing was switched in the open window.
    """

    uuids: tuple[str, ...] = ()
    marks: Mapping[str, MeterMark] = {}
    cap: float | None = None
    settled: bool = True


def is_counted(gpu: Gpu) -> bool:
    """Whether a sample shows how fast work runs: it does with GPM (Hopper and newer), where that may be read."""
    return gpu.activity.dram is not None or any(getattr(gpu.activity, pipe) is not None for pipe in PIPES)


def take(
    meter: Meter,
    gpus: tuple[Gpu, ...],
    cap: float | None,
    switched: float | None,
    serving: bool,
    counters: Sequence[ProgressCounter | None] = (),
    seconds: float = WINDOW_SECONDS,
    slo: Sequence[TargetHistogram] = (),
) -> tuple[Meter, tuple[GangWindow, ...]]:
    """Take in one View's samples of a gang; returns the windows that are complete, mostly none.

    `cap`: what is in force, hertz or watts, None: nothing; `switched`: unix seconds of its newest change; `serving`:
    a sample as busy as a burst is a window of its own, returned at once. `counters`: of work, one for each owner.
    `seconds`: of a whole window. `slo`: what is counted for each target; where there is one, no sample is a burst.
    """
    samples = {gpu.identity.uuid: gpu for gpu in gpus}
    if not samples.keys() <= set(meter.uuids):
        meter = Meter(uuids=tuple(samples), cap=cap)
    before = meter.marks
    new = {uuid: gpu for uuid, gpu in samples.items() if uuid not in before or gpu.at != before[uuid].at}
    if any(uuid not in before or not 0 < gpu.at - before[uuid].at <= LONGEST_SECONDS for uuid, gpu in new.items()):
        marks = {uuid: MeterMark(at=gpu.at, energy=gpu.power.energy) for uuid, gpu in samples.items()}
        return Meter(uuids=meter.uuids, marks=marks, cap=cap), ()
    calm = all(_is_calm(before[uuid], gpu, switched) for uuid, gpu in new.items())
    marks = {**before, **{uuid: _moved(before[uuid], gpu) for uuid, gpu in new.items()}}
    meter = replace(meter, marks=marks, cap=cap, settled=meter.settled and calm and cap == meter.cap)
    if not meter.uuids or len(new) < len(meter.uuids):
        return meter, ()
    return _closed(meter, counters, seconds, slo, serving=serving)


def _is_calm(mark: MeterMark, gpu: Gpu, switched: float | None) -> bool:
    """Whether nothing was switched in a sample or shortly before. A switch far ahead: the clock was set back."""
    if switched is None or switched > gpu.at + LONGEST_SECONDS:
        return True
    begin = min(mark.at, gpu.at - (gpu.activity.window_seconds or 0.0))
    return begin >= switched + SETTLE_SECONDS


def _moved(mark: MeterMark, gpu: Gpu) -> MeterMark:
    seconds = gpu.at - mark.at
    joules = None if gpu.power.energy is None or mark.energy is None else gpu.power.energy - mark.energy
    if joules is not None and not 0 <= joules <= MOST_WATTS * seconds:
        joules = None
    window = seconds if gpu.activity.window_seconds is None else min(seconds, gpu.activity.window_seconds)
    known = {name: value for name in SIGNALS if (value := getattr(gpu.activity, name)) is not None}
    signals = {name: (value * window, window) for name, value in known.items()}
    if gpu.clocks.sm is not None:
        signals["clock"] = (gpu.clocks.sm * seconds, seconds)
    sample = Sums(seconds=seconds, joules=joules, signals=signals)
    return replace(mark, at=gpu.at, energy=gpu.power.energy, open=mark.open + sample)


def _closed(
    meter: Meter,
    counters: Sequence[ProgressCounter | None],
    seconds: float,
    slo: Sequence[TargetHistogram],
    *,
    serving: bool,
) -> tuple[Meter, tuple[GangWindow, ...]]:
    """All GPUs have a new sample: close the window, or leave it open."""
    members = [meter.marks[uuid] for uuid in meter.uuids]
    newest = [mark.open for mark in members]
    whole = [mark.done + mark.open for mark in members]
    if serving and not slo and any((sums.mean("graphics") or 0.0) > BURST for sums in newest):
        done = [mark.done for mark in members]
        before = (_gang(meter.cap, done, settled=False, serving=True),) if members[0].done.seconds else ()
        return _begun(meter), (*before, _gang(meter.cap, newest, settled=meter.settled, serving=True))
    if not meter.settled or min(sums.seconds for sums in whole) >= seconds - JITTER_SECONDS:
        end = min(mark.at for mark in members)
        begin = end - min(sums.seconds for sums in whole)
        gang = _gang(meter.cap, whole, rates(counters, begin, end), settled=meter.settled, serving=serving)
        requests = served(slo, begin, end)
        if requests:  # the joules of the requests that came, not those of a busy second
            drawn = zip(gang, whole, strict=True)
            gang = tuple(replace(window, served=requests, joules=sums.joules or 0.0) for window, sums in drawn)
        return _begun(meter), (gang,)
    marks = zip(meter.uuids, members, whole, strict=True)
    return replace(meter, marks={uuid: replace(mark, done=sums, open=Sums()) for uuid, mark, sums in marks}), ()


def _begun(meter: Meter) -> Meter:
    """Another window begins where this one ends."""
    marks = {uuid: MeterMark(at=mark.at, energy=mark.energy) for uuid, mark in meter.marks.items()}
    return replace(meter, marks=marks, settled=True)


def _gang(
    cap: float | None, members: list[Sums], progress: tuple[Rate | None, ...] = (), *, settled: bool, serving: bool
) -> GangWindow:
    windows = (_window(cap, sums, settled=settled, serving=serving) for sums in members)
    return tuple(replace(window, progress=progress) for window in windows) if progress else tuple(windows)


def _window(cap: float | None, sums: Sums, *, settled: bool, serving: bool) -> TrialWindow:
    """The values of serving GPUs are those of their busy time: traffic follows the requests, and at a lower clock they
    are only busier, until requests wait. The work of a busy second follows the clock.
    """
    engine = sums.mean("graphics")
    busy = engine if serving and engine is not None and engine >= WEAK else 1.0
    dram, pipes = sums.mean("dram"), [value for name in PIPES if (value := sums.mean(name)) is not None]
    return TrialWindow(
        cap=cap,
        seconds=sums.seconds,
        dram=None if dram is None else dram / busy,
        pipe=max(pipes) / busy if pipes else None,
        engine=engine,
        joules=0.0 if sums.joules is None else sums.joules / busy,  # 0 J are impossible: such a window is not sound
        clock=sums.mean("clock"),
        settled=settled,
    )


IDLE_SECONDS = 600.0
IDLE = 0.01
"""Share of time of any engine below which it is idle: the resolution of the driver's whole percents."""

BASELINE_SECONDS = 60.0
"""The end of the idle time, in which the draw without a cap is measured: a GPU cools down first."""

IDLE_GAP_SECONDS = 10.0
"""What happened between two samples further apart is not known."""


class IdleCap(Record, frozen=True, kw_only=True):
    """A gang of GPUs. `since`: monotonic seconds since when it is idle, None: it is not; `at`: of the newest View;
    `energy`: joules of each GPU's counter then; `baseline`: joules and seconds of the end of its idle time at its own
    clocks; `resting`: as returned last; `joules_saved`: of this rest, against the baseline.
    """

    since: float | None = None
    at: float = 0.0
    energy: dict[str, float] = {}
    baseline: tuple[float, float] = (0.0, 0.0)
    resting: bool = False
    joules_saved: float = 0.0


def idle_step(rest: IdleCap, gpus: tuple[Gpu, ...], now: float) -> tuple[IdleCap, bool]:
    """Take in one View's samples of all GPUs of a gang; returns whether the lowest clock is enough for them now.

    `now`: monotonic seconds. What cannot be read counts as work.
    """
    if not is_idle_gang(gpus):
        return IdleCap(), False
    energy = {gpu.identity.uuid: gpu.power.energy for gpu in gpus if gpu.power.energy is not None}
    if rest.since is None or not 0 <= now - rest.at <= IDLE_GAP_SECONDS:
        return IdleCap(since=now, at=now, energy=energy), False
    seconds, lasted = now - rest.at, now - rest.since
    kept = replace(rest, at=now, energy=energy, resting=lasted >= IDLE_SECONDS)
    is_known = len(rest.energy) == len(gpus) and rest.energy.keys() == energy.keys()
    drawn = [energy[uuid] - before for uuid, before in rest.energy.items()] if is_known else []
    if not is_known or min(drawn) < 0:  # a counter fails, or was set back
        return kept, kept.resting
    joules, (before, span) = sum(drawn), rest.baseline
    if rest.resting:
        saved = before / span * seconds - joules if span else 0.0
        return replace(kept, joules_saved=rest.joules_saved + saved), True
    if lasted > IDLE_SECONDS - BASELINE_SECONDS:
        kept = replace(kept, baseline=(before + joules, span + seconds))
    return kept, kept.resting


def is_idle_gang(gpus: tuple[Gpu, ...]) -> bool:
    """Whether processes hold the GPUs and no GPU does anything, by the counters that it has."""
    return bool(gpus) and any(gpu.processes for gpu in gpus) and all(map(_is_idle, gpus))


def _is_idle(gpu: Gpu) -> bool:
    """Copies and video count as work, though the compute engine does not count them."""
    used, activity = gpu.utilization, gpu.activity
    others = (activity.dram, used.gpu, used.gpu_max, used.encoder, used.decoder, used.jpeg, used.ofa)
    return activity.graphics is not None and all(
        value < IDLE for value in (activity.graphics, *others) if value is not None
    )
