"""What is kept of one workload: what all its pods have done with GPUs, in bounded memory."""

from collections import Counter

import msgspec

from gpuwatch.model.snapshot import Record
from gpuwatch.model.work import DayPeak, WorkClass, WorkloadKey
from gpuwatch.rightsizing.model.mig_profiles import Profile
from gpuwatch.rightsizing.model.usage import UsageWindow, WorkloadSummary
from gpuwatch.rightsizing.usage.allocation import AllocationTracker, grace
from gpuwatch.rightsizing.usage.measures import DAY, HALF_LIFE, Measures, MeasuresState

MAX_HOLDS = 64
MAX_PEAKS = 8
MAX_PROGRAMS = 4
MAX_MODELS = 4
MAX_GAPS = 8
GAP_MEMORY = 35 * DAY
"""How long an idle time that work ended counts as a usual pause: so that monthly pauses are known."""


class IdleGap(Record, frozen=True, kw_only=True):
    """An idle time that work ended."""

    until: float
    seconds: float


class WorkloadRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What is known of one workload, as in a checkpoint; members as in `WorkloadSummary`.

    `holds` and `measures` are only up to date in a checkpoint; `model`: of the GPU it was on last.
    """

    key: WorkloadKey
    first: float
    last: float
    held: float = 0.0
    covered: float = 0.0
    declared_class: WorkClass | None = None
    autotune: str | None = None
    model: str | None = None
    models: tuple[str, ...] = ()
    memory_total: int | None = None
    programs: tuple[str, ...] = ()
    peaks: dict[int, int] = {}
    gaps: tuple[IdleGap, ...] = ()
    holds: tuple[AllocationTracker, ...] = ()
    measures: MeasuresState


class WorkloadStats:
    """Adds windows, in order of time, to a WorkloadRecord, and summarises it."""

    def __init__(self, record: WorkloadRecord) -> None:
        """Continue from `record`, which changes from now on."""
        self.record = record
        self._measures = Measures(record.measures)
        holds = record.holds[:MAX_HOLDS]
        self._holds = {(hold.newest.pod, hold.newest.gpu, hold.newest.device): hold for hold in holds}

    @classmethod
    def begun(cls, window: UsageWindow) -> "WorkloadStats":
        """An empty one for the workload of `window`, which is still to be added."""
        measures = MeasuresState(at=window.at, half_life=HALF_LIFE[None])
        return cls(WorkloadRecord(key=window.key, first=window.at, last=window.at, measures=measures))

    def add(self, window: UsageWindow, profiles: tuple[Profile, ...], is_work: bool | None, watched: float) -> bool:
        """Add a window. False: it was added before. `is_work`: `activity`; `watched`: `AllocationTracker.is_over`."""
        record, hold = self.record, self._hold(window, watched)
        end = window.at + window.span
        last = window.at if hold is None else hold.last
        fresh = end - max(window.at, last)
        if not 0 < fresh <= window.span:
            return False
        seconds = min(window.covered, window.span) * fresh / window.span
        record.held += end - last
        record.covered += seconds
        record.last = max(record.last, end)
        gap = hold.take(window, seconds, is_work) if hold is not None else 0.0
        if gap > 0:  # an earlier, shorter one adds nothing to a later, longer one
            longer = [each for each in record.gaps if each.seconds > gap][: MAX_GAPS - 1]
            record.gaps = (*longer, IdleGap(until=window.at, seconds=gap))
        record.declared_class = window.declared_class or record.declared_class
        record.autotune = window.autotune or record.autotune
        record.memory_total = window.memory_total or record.memory_total
        if window.model is not None and window.model != record.model:
            record.model = window.model
            others = (each for each in record.models if each != window.model)
            record.models = (*others, window.model)[-MAX_MODELS:]
        if new := [each for each in window.programs if each not in record.programs]:
            record.programs = (*record.programs, *new)[-MAX_PROGRAMS:]
        if window.memory is not None:
            # A window over midnight counts for both days: when in it the most was is not known.
            peaks, after = record.peaks, int(-(-end // DAY))
            for day in range(max(int(window.at // DAY), after - MAX_PEAKS), after):
                if window.memory > peaks.get(day, -1):
                    peaks[day] = window.memory
            while len(peaks) > MAX_PEAKS:
                del peaks[min(peaks)]
        if seconds > 0:
            self._measures.add(window, seconds, is_work, profiles)
        return True

    def set_class(self, work_class: WorkClass | None) -> None:
        """Let values decay with the half-life of that class of work."""
        self._measures.set_half_life(HALF_LIFE[work_class])

    def clip(self, now: float) -> None:
        """The clock has been set back to `now`: nothing was later."""
        record = self.record
        record.first, record.last = min(record.first, now), min(record.last, now)
        record.peaks = {day: most for day, most in record.peaks.items() if day <= now // DAY}
        record.gaps = tuple(gap for gap in record.gaps if gap.until <= now)
        self._measures.clip(now)
        for hold in self._holds.values():
            hold.clip(now)

    def is_present(self, now: float) -> bool:
        """Whether any of its pods is still there."""
        return any(hold.is_present(now) for hold in self._holds.values())

    def summary(self, now: float, work_class: WorkClass | None) -> WorkloadSummary:
        """All of it. Allocations that are there come first, then the latest that are gone."""
        record = self.record
        gap = max((gap.seconds for gap in record.gaps if now - gap.until <= GAP_MEMORY), default=0.0)
        holds = sorted(self._holds.values(), key=lambda hold: hold.last, reverse=True)
        latest: dict[str, float] = {}
        for hold in holds:
            latest.setdefault(hold.newest.pod, hold.last)
        at_once = Counter(
            hold.newest.pod for hold in holds if latest[hold.newest.pod] - hold.last <= grace(hold.newest)
        )
        return WorkloadSummary(
            key=record.key,
            work_class=work_class,
            first=record.first,
            last=record.last,
            held=record.held,
            covered=record.covered,
            days=(record.last - record.first) / DAY,
            holds=tuple(hold.hold(now, gap) for hold in holds),
            models=record.models,
            memory_total=record.memory_total,
            peaks=tuple(DayPeak(day=day, bytes=most) for day, most in sorted(record.peaks.items())),
            slowdowns=self._measures.slowdowns(record.model),
            sawtooth=self._measures.swings.value,
            cpu_throttled=self._measures.cpu_throttled.value,
            gpus_per_pod=max(at_once.values(), default=1),  # that one pod holds, or held, at a time
            programs=record.programs,
            autotune=record.autotune,
            **self._measures.distributions(),
        )

    def state(self) -> WorkloadRecord:
        """For the checkpoint, which must be written before the next window is added."""
        self.record.holds, self.record.measures = tuple(self._holds.values()), self._measures.state()
        return self.record

    def _hold(self, window: UsageWindow, watched: float) -> AllocationTracker | None:
        """The hold of a window; None: as many as can be kept are present already."""
        key = (window.pod, window.gpu, window.device)
        hold = self._holds.get(key)
        if hold is not None and not hold.is_over(window, watched):
            return hold
        if hold is None and len(self._holds) >= MAX_HOLDS:
            oldest, gone = min(self._holds.items(), key=lambda item: item[1].last)
            if gone.is_present(window.at):
                return None
            del self._holds[oldest]
        hold = self._holds[key] = AllocationTracker.begun(window)
        return hold
