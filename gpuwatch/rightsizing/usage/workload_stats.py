"""The book of one workload: what all its pods have done with GPUs, in bounded memory."""

from gpuwatch.model.snapshot import Record
from gpuwatch.model.work import DayPeak, WorkClass, WorkloadKey
from gpuwatch.rightsizing.model.mig_profiles import Profile
from gpuwatch.rightsizing.model.usage import Summary, Window
from gpuwatch.rightsizing.usage.allocation import Holding, patience
from gpuwatch.rightsizing.usage.measures import DAY, HALF_LIFE, Measures, MeasuresState

MAX_HOLDS = 64
MAX_PEAKS = 8
MAX_PROGRAMS = 4
MAX_MODELS = 4
MAX_GAPS = 8
GAP_MEMORY = 35 * DAY
"""How long an idle time, after which work came again, excuses the next one: what happens once a month is known."""

HoldKey = tuple[str, str, str]
"""Pod, GPU, MIG instance."""


class Gap(Record, frozen=True, kw_only=True):
    """An idle time, at whose end work came again."""

    until: float
    seconds: float


class BookState(Record, frozen=True, kw_only=True):
    """A Book at rest; members as in `usage.Summary`. `model`: of the GPU it was on last."""

    key: WorkloadKey
    first: float
    last: float
    held: float = 0.0
    covered: float = 0.0
    said: WorkClass | None = None
    autotune: str | None = None
    model: str | None = None
    models: tuple[str, ...] = ()
    memory_total: int | None = None
    programs: tuple[str, ...] = ()
    peaks: dict[int, int] = {}
    gaps: tuple[Gap, ...] = ()
    holds: tuple[Holding, ...] = ()
    measures: MeasuresState


class Book:
    """Takes windows in order of time, gives a Summary."""

    def __init__(self, state: BookState) -> None:
        """Go on from `state`."""
        self.key, self.said, self._autotune = state.key, state.said, state.autotune
        self.first, self.last = state.first, state.last
        self._held, self._covered = state.held, state.covered
        self._model, self._models = state.model, state.models
        self._memory_total, self._programs = state.memory_total, state.programs
        self._peaks, self._gaps = dict(state.peaks), list(state.gaps)
        self._holds = {_hold_key(hold.newest): hold for hold in state.holds[:MAX_HOLDS]}
        self._measures = Measures(state.measures)

    @classmethod
    def begun(cls, window: Window) -> "Book":
        """An empty one for the workload of `window`, which is still to be added."""
        measures = MeasuresState(at=window.at, half_life=HALF_LIFE[None])
        return cls(BookState(key=window.key, first=window.at, last=window.at, measures=measures))

    def add(self, window: Window, profiles: tuple[Profile, ...], is_work: bool | None, watched: float) -> bool:
        """Take one more. False: it was seen before. `is_work`: `usage_hold.activity`; `watched`: `Holding.is_over`."""
        hold = self._hold(window, watched)
        end = window.at + window.span
        last = window.at if hold is None else hold.last
        fresh = end - max(window.at, last)
        if not 0 < fresh <= window.span:
            return False
        seconds = min(window.covered, window.span) * fresh / window.span
        self._held += end - last
        self._covered += seconds
        self.last = max(self.last, end)
        if hold is not None:
            self._remember_gap(hold.take(window, seconds, is_work), window.at)
        self._describe(window)
        if window.memory is not None:
            self._remember_peak(window, window.memory)
        if seconds > 0:
            self._measures.add(window, seconds, is_work, profiles)
        return True

    def settle(self, work_class: WorkClass | None) -> None:
        """Forget as fast as that class of work should be."""
        self._measures.settle(HALF_LIFE[work_class])

    def clip(self, now: float) -> None:
        """The clock has been set back to `now`: nothing was later."""
        self.first, self.last = min(self.first, now), min(self.last, now)
        self._peaks = {day: most for day, most in self._peaks.items() if day <= now // DAY}
        self._gaps = [gap for gap in self._gaps if gap.until <= now]
        self._measures.clip(now)
        for hold in self._holds.values():
            hold.clip(now)

    def is_present(self, now: float) -> bool:
        """Whether any of its pods is still there."""
        return any(hold.is_present(now) for hold in self._holds.values())

    def summary(self, now: float, work_class: WorkClass | None) -> Summary:
        """All of it, for those who judge. Holds that are there come first, then the latest that are gone."""
        gap = max((gap.seconds for gap in self._gaps if now - gap.until <= GAP_MEMORY), default=0.0)
        holds = sorted(self._holds.values(), key=lambda hold: hold.last, reverse=True)
        return Summary(
            key=self.key,
            work_class=work_class,
            first=self.first,
            last=self.last,
            held=self._held,
            covered=self._covered,
            days=(self.last - self.first) / DAY,
            holds=tuple(hold.hold(now, gap) for hold in holds),
            models=self._models,
            memory_total=self._memory_total,
            peaks=tuple(DayPeak(day=day, bytes=most) for day, most in sorted(self._peaks.items())),
            slowdowns=self._measures.slowdowns(self._model),
            sawtooth=self._measures.share("swings"),
            cpu_throttled=self._measures.share("cpu_throttled"),
            gpus_per_pod=self._gpus_per_pod(),
            programs=self._programs,
            autotune=self._autotune,
            **self._measures.distributions(),
        )

    def state(self) -> BookState:
        """To be saved before the next window is added."""
        return BookState(
            key=self.key,
            first=self.first,
            last=self.last,
            held=self._held,
            covered=self._covered,
            said=self.said,
            autotune=self._autotune,
            model=self._model,
            models=self._models,
            memory_total=self._memory_total,
            programs=self._programs,
            peaks=dict(self._peaks),
            gaps=tuple(self._gaps),
            holds=tuple(self._holds.values()),
            measures=self._measures.state(),
        )

    def _hold(self, window: Window, watched: float) -> Holding | None:
        """The one a window belongs to; None: all that can be kept are there already."""
        key = (window.pod, window.gpu, window.device)
        hold = self._holds.get(key)
        if hold is not None and not hold.is_over(window, watched):
            return hold
        if hold is None and len(self._holds) >= MAX_HOLDS:
            oldest, gone = min(self._holds.items(), key=lambda item: item[1].last)
            if gone.is_present(window.at):
                return None
            del self._holds[oldest]
        hold = self._holds[key] = Holding.begun(window)
        return hold

    def _describe(self, window: Window) -> None:
        self.said, self._autotune = window.said or self.said, window.autotune or self._autotune
        self._memory_total = window.memory_total or self._memory_total
        if window.model is not None and window.model != self._model:
            self._model = window.model
            self._models = (*(each for each in self._models if each != window.model), window.model)[-MAX_MODELS:]
        if new := [each for each in window.programs if each not in self._programs]:
            self._programs = (*self._programs, *new)[-MAX_PROGRAMS:]

    def _remember_gap(self, seconds: float, until: float) -> None:
        """A shorter one says nothing while a longer one, that came later, is remembered."""
        if seconds > 0:
            longer = [gap for gap in self._gaps if gap.seconds > seconds][: MAX_GAPS - 1]
            self._gaps = [*longer, Gap(until=until, seconds=seconds)]

    def _remember_peak(self, window: Window, memory: int) -> None:
        """A window over midnight counts for both days: nobody knows when in it the most was."""
        first, end = int(window.at // DAY), window.at + window.span
        for day in range(max(first, int(-(-end // DAY)) - MAX_PEAKS), int(-(-end // DAY))):
            if memory > self._peaks.get(day, -1):
                self._peaks[day] = memory
        while len(self._peaks) > MAX_PEAKS:
            del self._peaks[min(self._peaks)]

    def _gpus_per_pod(self) -> int:
        """The most devices that one pod holds, or held, at a time."""
        latest: dict[str, float] = {}
        for hold in self._holds.values():
            latest[hold.newest.pod] = max(hold.last, latest.get(hold.newest.pod, hold.last))
        counts = dict.fromkeys(latest, 0)
        for hold in self._holds.values():
            counts[hold.newest.pod] += latest[hold.newest.pod] - hold.last <= patience(hold.newest)
        return max(counts.values(), default=1)


def _hold_key(window: Window) -> HoldKey:
    return window.pod, window.gpu, window.device
