"""From the agent's samples to the windows that the energy tuner looks at.

A sample tells of the time since the one before: how busy the units were, and how many joules went by. Samples come when
they come: one GPU's may be missing, the same may be seen twice, clocks and counters may be set back. What cannot be
trusted makes no window, or one that says so; a window is never stretched over a time that nobody saw.
"""

from collections.abc import Mapping

import msgspec

from gpuwatch.model.snapshot import Gpu, Record
from gpuwatch.tuning.energy.hold import BURST
from gpuwatch.tuning.energy.windows import WEAK, Gang, Window

WINDOW_SECONDS = 5.0
JITTER_SECONDS = 0.2
"""Five samples of a second may span a little less, and should not wait for a sixth."""

SETTLE_SECONDS = 1.0
"""A sample that begins less than this after a switch tells of two settings: clocks move within it, and the driver's own
figures are means of up to a second."""

LONGEST_SECONDS = 15.0
"""Samples further apart leave a gap, as of an agent that was restarted; one that looks each 10 s is still followed."""

MOST_WATTS = 10_000.0
"""No board draws more: a counter that says so has jumped."""

COVERED = 0.5
"""A signal that was there for less of a window does not speak for it."""

PIPES = ("tensor", "fp64", "fp32", "fp16")
SIGNALS = ("dram", "graphics", *PIPES)

Sum = tuple[float, float]
"""Of a signal: value times seconds, and the seconds in which it was known."""

NOTHING: Sum = (0.0, 0.0)

evolve = msgspec.structs.replace


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


class Mark(Record, frozen=True, kw_only=True):
    """One GPU since the window began. `at`, `energy`: of its newest sample; `done`: up to the newest View in which all
    GPUs had a new one, so that they cover the same seconds; `open`: since then.
    """

    at: float
    energy: float | None
    done: Sums = Sums()
    open: Sums = Sums()


class Meter(Record, frozen=True, kw_only=True):
    """What is remembered of a gang between two Views. `uuids`: its GPUs, in the order of the windows; empty: those of
    the first View. `cap`: as of the newest View. `settled`: nothing was switched in what is not yet told.
    """

    uuids: tuple[str, ...] = ()
    marks: Mapping[str, Mark] = {}
    cap: float | None = None
    settled: bool = True


def is_counted(gpu: Gpu) -> bool:
    """Whether a sample tells how fast work goes at all: it does with GPM (Hopper and newer), where it may be read."""
    return gpu.activity.dram is not None or any(getattr(gpu.activity, pipe) is not None for pipe in PIPES)


def take(
    meter: Meter, gpus: tuple[Gpu, ...], cap: float | None, switched: float | None, serving: bool
) -> tuple[Meter, tuple[Gang, ...]]:
    """Take in one View's samples of a gang; the windows that are complete, mostly none.

    `cap`: what is in force, hertz or watts, None: nothing; `switched`: unix seconds of its newest change; `serving`:
    a sample as busy as a burst is told at once, as a window of its own.
    """
    samples = {gpu.identity.uuid: gpu for gpu in gpus}
    if not samples.keys() <= set(meter.uuids):
        meter = Meter(uuids=tuple(samples), cap=cap)
    news = {uuid: gpu for uuid, gpu in samples.items() if _is_news(meter.marks.get(uuid), gpu)}
    if any(_is_gap(meter.marks.get(uuid), gpu) for uuid, gpu in news.items()):
        marks = {uuid: Mark(at=gpu.at, energy=gpu.power.energy) for uuid, gpu in samples.items()}
        return Meter(uuids=meter.uuids, marks=marks, cap=cap), ()
    calm = all(_is_calm(meter.marks[uuid], gpu, switched) for uuid, gpu in news.items())
    marks = {**meter.marks, **{uuid: _moved(meter.marks[uuid], gpu) for uuid, gpu in news.items()}}
    meter = evolve(meter, marks=marks, cap=cap, settled=meter.settled and calm and cap == meter.cap)
    if not meter.uuids or len(news) < len(meter.uuids):
        return meter, ()
    return _told(meter, serving=serving)


def _is_news(mark: Mark | None, gpu: Gpu) -> bool:
    return mark is None or gpu.at != mark.at


def _is_gap(mark: Mark | None, gpu: Gpu) -> bool:
    """Whether nobody can say what happened since the newest sample; there may be none."""
    return mark is None or not 0 < gpu.at - mark.at <= LONGEST_SECONDS


def _is_calm(mark: Mark, gpu: Gpu, switched: float | None) -> bool:
    """Whether nothing was switched in a sample or shortly before. A switch far ahead is of a clock since set back."""
    if switched is None or switched > gpu.at + LONGEST_SECONDS:
        return True
    begin = min(mark.at, gpu.at - (gpu.activity.window_seconds or 0.0))
    return begin >= switched + SETTLE_SECONDS


def _moved(mark: Mark, gpu: Gpu) -> Mark:
    return evolve(mark, at=gpu.at, energy=gpu.power.energy, open=mark.open + _sample(mark, gpu))


def _sample(mark: Mark, gpu: Gpu) -> Sums:
    seconds = gpu.at - mark.at
    joules = None if gpu.power.energy is None or mark.energy is None else gpu.power.energy - mark.energy
    if joules is not None and not 0 <= joules <= MOST_WATTS * seconds:
        joules = None
    window = seconds if gpu.activity.window_seconds is None else min(seconds, gpu.activity.window_seconds)
    known = {name: value for name in SIGNALS if (value := getattr(gpu.activity, name)) is not None}
    signals = {name: (value * window, window) for name, value in known.items()}
    if gpu.clocks.sm is not None:
        signals["clock"] = (gpu.clocks.sm * seconds, seconds)
    return Sums(seconds=seconds, joules=joules, signals=signals)


def _told(meter: Meter, *, serving: bool) -> tuple[Meter, tuple[Gang, ...]]:
    """All GPUs have been sampled anew: close the window, or let it go on."""
    members = [meter.marks[uuid] for uuid in meter.uuids]
    newest = [mark.open for mark in members]
    whole = [mark.done + mark.open for mark in members]
    if serving and any((sums.mean("graphics") or 0.0) > BURST for sums in newest):
        done = [mark.done for mark in members]
        before = (_gang(meter.cap, done, settled=False, serving=True),) if members[0].done.seconds else ()
        return _begun(meter), (*before, _gang(meter.cap, newest, settled=meter.settled, serving=True))
    if not meter.settled or min(sums.seconds for sums in whole) >= WINDOW_SECONDS - JITTER_SECONDS:
        return _begun(meter), (_gang(meter.cap, whole, settled=meter.settled, serving=serving),)
    marks = zip(meter.uuids, members, whole, strict=True)
    return evolve(meter, marks={uuid: evolve(mark, done=sums, open=Sums()) for uuid, mark, sums in marks}), ()


def _begun(meter: Meter) -> Meter:
    """Another window begins where this one ends."""
    marks = {uuid: Mark(at=mark.at, energy=mark.energy) for uuid, mark in meter.marks.items()}
    return evolve(meter, marks=marks, settled=True)


def _gang(cap: float | None, members: list[Sums], *, settled: bool, serving: bool) -> Gang:
    return tuple(_window(cap, sums, settled=settled, serving=serving) for sums in members)


def _window(cap: float | None, sums: Sums, *, settled: bool, serving: bool) -> Window:
    """Of serving GPUs for the time they are busy: their traffic follows the requests, and at a lower clock they are
    only busier, until somebody waits. What follows the clock is how much they do while they do something.
    """
    engine = sums.mean("graphics")
    busy = engine if serving and engine is not None and engine >= WEAK else 1.0
    dram, pipes = sums.mean("dram"), [value for name in PIPES if (value := sums.mean(name)) is not None]
    return Window(
        cap=cap,
        seconds=sums.seconds,
        dram=None if dram is None else dram / busy,
        pipe=max(pipes) / busy if pipes else None,
        engine=engine,
        joules=0.0 if sums.joules is None else sums.joules / busy,  # none at all cannot be: such a window is not sound
        clock=sums.mean("clock"),
        settled=settled,
    )
