"""Turns the reader's messages into snapshots: which GPUs are fresh, which are not, and why.

No I/O and no clock of its own: times are passed in, so every judgement about freshness is testable.
"""

from typing import NamedTuple

import msgspec

from gpuwatch.collect.reader.messages import (
    AnyMessage,
    DriverOpened,
    GpuFound,
    GpuRefused,
    GpuSample,
    GpuTrouble,
    ReaderFailed,
    ReaderHeartbeat,
    ReadUnderWay,
)
from gpuwatch.model.snapshot import QUICK_INTERVALS, Driver, Gpu, GpuState, GpuStatus, Identity, SourceStatus
from gpuwatch.model.view import STALE_INTERVALS

BETWEEN_BEATS = 1.5
"""Seconds at most from one heartbeat of the reader to the next (`collect.reader.driver`)."""

BEAT_SECONDS = 4.0
"""A reader silent for longer does not count as reading."""

SETTLE_SECONDS = 3.0
"""A GPU known before that is not in NVML so long after registration has vanished from it."""

ANSWER_SECONDS = 30.0
"""GPUs that are registered for the first time may take this long before they count as missing: drivers are slow
to wake them."""

CALL_DEADLINE_SECONDS = 20.0
"""A call that takes longer hangs, however slow those before it were."""

PAUSE_SECONDS = 30.0
"""The reader leaves a slow GPU alone for as long as its reads took, at most for so long."""


class DriverReading(NamedTuple):
    """What the reader has reported by one moment."""

    gpus: tuple[Gpu, ...]  # fresh samples, and the last ones of GPUs that are slow
    last_seen: tuple[Gpu, ...]  # the last sample of GPUs that are not fresh
    statuses: tuple[GpuStatus, ...]
    driver: Driver | None
    answered: bool  # NVML has shown all its GPUs: only then can one be called missing
    unanswered: dict[int, str]  # NVML index -> why that GPU has no identity
    awaited: dict[int, float]  # NVML index -> seconds for which its identity has been awaited
    sources: tuple[SourceStatus, ...]


class _Known(msgspec.Struct):
    """One GPU found since the start, and how its last samples went."""

    identity: Identity
    found: float = 0.0  # monotonic: from when it could have been sampled
    sample: Gpu | None = None
    sampled: float | None = None  # monotonic
    trouble: str | None = None
    lost: bool = False
    present: bool = True  # answered since the last registration
    changed: float | None = None  # unix time its state last changed
    state: GpuState = GpuState.UNKNOWN


class NodeState:
    """The state that the reader's messages give. Owner: the agent, whose lock guards every call.

    It has many methods and one job: how fresh the data of each GPU are. Registration and samples cannot be separated,
    because whether a GPU is late depends on when the driver was registered.

    `settle`: seconds that the driver, and then its GPUs, are given before a first sample counts as settled anyway.
    """

    def __init__(self, interval: float, now: float, settle: float = SETTLE_SECONDS) -> None:
        self._interval, self._settle = interval, settle
        self._started = now
        self._known: dict[str, _Known] = {}
        self._refused: dict[int, str] = {}
        self._hidden: dict[int, str] = {}
        self._reads: dict[str, ReadUnderWay] = {}
        self._reads_at = now
        self._starting: str | None = None
        self._starting_since = now
        self._beat = now
        self._registered: float | None = None
        self._count = 0
        self._last_success: float | None = None
        self.driver: Driver | None = None
        self.failure: ReaderFailed | None = None
        self.failures = 0

    def handle(self, message: AnyMessage, now: float) -> None:
        """Take one message that arrived at monotonic `now`."""
        self._beat = now
        match message:
            case ReaderHeartbeat():
                if message.starting != self._starting:
                    self._starting_since = now
                self._reads, self._reads_at, self._starting = message.reads, now, message.starting
            case DriverOpened():
                self.driver, self._count = message.driver, message.count
                self._registered, self.failure, self._starting = now, None, None
                self._refused, self._hidden, self._reads = {}, {}, {}
                for each in self._known.values():
                    each.present, each.trouble = False, None
            case GpuFound():
                identity = message.identity
                known = self._known.setdefault(identity.uuid, _Known(identity=identity))
                known.identity, known.found, known.present, known.lost, known.trouble = identity, now, True, False, None
                self._refused.pop(identity.index, None)
                self._hidden.pop(identity.index, None)
            case GpuRefused():
                self._refuse(message)
            case GpuSample():
                self._take(message.gpu, now)
            case GpuTrouble():
                self._trouble(message)
            case ReaderFailed():
                self.failure, self._registered = message, None
                self._reads, self._starting = {}, None
                self.failures += 1

    def round_complete(self, since: float, now: float) -> bool:
        """Whether every GPU that can be expected to answer has a sample newer than monotonic `since`."""
        if self._registered is None or self._waiting_for() > 0:
            return False
        waiting = (k for k in self._known.values() if k.sampled is None or k.sampled <= since)
        return all(self._state(k, now) != (GpuState.FRESH, "") for k in waiting)

    def longest_wait(self, now: float) -> float:
        """Seconds until a GPU that answers now, or the start, would be overdue; at most one interval."""
        due = [self._last_word(k) + self._limit for k in self._known.values() if k.present and not k.lost]
        hangs = [self._reads_at - read.call_seconds + _deadline(read) for read in self._reads.values()]
        return min([self._interval, *(at - now for at in (*due, *hangs, self._settles_at) if at > now)])

    def reading(self, now: float, at: float) -> DriverReading:
        """Everything of monotonic `now`, which is unix time `at`."""
        return DriverReading(
            gpus=self.gpus(now),
            last_seen=self.last_seen(now),
            statuses=self.statuses(now, at),
            driver=self.driver,
            answered=self.answered(now),
            unanswered=self.unanswered(),
            awaited=self.awaited(),
            sources=(self.nvml_status(now), self.gpm_status(now)),
        )

    def answered(self, now: float) -> bool:
        """Whether NVML has shown all the GPUs it will show: only then can one be called missing."""
        return self._registered is not None and (self._waiting_for() <= 0 or now - self._registered > ANSWER_SECONDS)

    def unanswered(self) -> dict[int, str]:
        """NVML index -> why that GPU does not give its identity; without those hidden from this container."""
        return self._refused | {index: f"{part} hangs" for index, (part, *_) in self._registering().items()}

    def awaited(self) -> dict[int, float]:
        """NVML index -> seconds for which that GPU has given neither its identity nor a refusal."""
        return {index: read.seconds for index, read in self._registering().items()}

    def identities(self) -> tuple[Identity, ...]:
        """Every GPU found since the start."""
        return tuple(known.identity for known in self._known.values())

    def gpus(self, now: float) -> tuple[Gpu, ...]:
        """The samples that are fresh enough to show, by index; a GPU that is slow keeps its last one."""
        horizon, opened = now - STALE_INTERVALS * self._interval, self._registered or 0.0
        fresh = [
            known.sample
            for known in self._known.values()
            if known.sample
            and known.sampled is not None
            and (known.sampled >= horizon or (known.sampled >= opened and self._state(known, now)[0] is GpuState.FRESH))
            and not known.lost
            and known.present
        ]
        return tuple(sorted(fresh, key=lambda gpu: gpu.identity.index))

    def last_seen(self, now: float) -> tuple[Gpu, ...]:
        """The last sample of each GPU that is not fresh, without its processes: its holders stay known."""
        fresh = {gpu.identity.uuid for gpu in self.gpus(now)}
        return tuple(
            msgspec.structs.replace(known.sample, processes=())
            for uuid, known in self._known.items()
            if known.sample is not None and uuid not in fresh
        )

    def statuses(self, now: float, at: float) -> tuple[GpuStatus, ...]:
        """The status of every GPU found since the start, at monotonic `now`, which is unix time `at`."""
        statuses = []
        for known in sorted(self._known.values(), key=lambda k: k.identity.index):
            state, detail = self._state(known, now)
            if state is not known.state or known.changed is None:
                known.state, known.changed = state, at
            share = None
            if state is GpuState.FRESH:
                read = self._reads.get(known.identity.uuid)
                took = max(read.seconds if read else 0.0, (known.sample and known.sample.read_seconds) or 0.0)
                if took / self._interval >= QUICK_INTERVALS:
                    share = took / self._interval
            statuses.append(
                GpuStatus(
                    identity=known.identity, state=state, detail=detail, since=known.changed, read_intervals=share
                )
            )
        return tuple(statuses)

    def nvml_status(self, now: float) -> SourceStatus:
        """The status of NVML as a whole."""
        gpus = self.gpus(now)
        if self._registered is None:
            reason = self.failure.reason if self.failure else f"starting: {self._starting or 'the reader'}"
        else:
            refused = [f"index {index}: {reason}" for index, reason in (self._hidden | self.unanswered()).items()]
            nothing = "" if gpus else "no GPU answers" if self._known or self._count else "no GPU in NVML"
            reason = "; ".join(refused) or nothing
        durations = [gpu.read_seconds for gpu in gpus if gpu.read_seconds is not None]
        # the reader runs, and waits for a call of its start
        waits = self._registered is None and self._starting is not None and now - self._beat <= BEAT_SECONDS
        return SourceStatus(
            name="nvml",
            up=self._registered is not None and bool(gpus),
            reason=reason,
            duration_seconds=max(durations, default=None),
            last_success=self._last_success,
            failures=self.failures,
            hanging_seconds=now - self._starting_since if waits else None,
            code=self.failure.code if self.failure and self._registered is None else None,
        )

    def gpm_status(self, now: float) -> SourceStatus:
        """Whether activity ratios come; off where no GPU has the counters."""
        gpus = self.gpus(now)
        errors = [gpu.errors["activity"] for gpu in gpus if "activity" in gpu.errors]
        if any(gpu.activity.sm is not None or any(mig.activity.sm is not None for mig in gpu.mig) for gpu in gpus):
            return SourceStatus(name="gpm", up=True, last_success=self._last_success)
        if errors:
            return SourceStatus(name="gpm", up=False, reason=errors[0])
        return SourceStatus(name="gpm", up=None, reason="no GPU offers it (Hopper and newer do)")

    def settled(self, now: float) -> bool:
        """Whether the first sample is as complete as it will get: every GPU answered, refused or had its time."""
        sampled = all(k.sampled is not None or k.trouble for k in self._known.values())
        complete = self._registered is not None and self._waiting_for() <= 0 and sampled
        return complete or now > self._settles_at

    def _registering(self) -> dict[int, ReadUnderWay]:
        nameless = ((key, read) for key, read in self._reads.items() if key.startswith("index "))
        registering = {int(key.removeprefix("index ")): read for key, read in nameless}
        # a heartbeat is composed on a thread of its own: it may arrive after the identity that it still awaits
        found = {known.identity.index for known in self._known.values() if known.present}
        return {index: read for index, read in registering.items() if index not in found}

    @property
    def _settles_at(self) -> float:
        since = self._started if self._registered is None else self._registered
        return since + self._settle

    def _waiting_for(self) -> int:
        """GPUs that NVML counts and that have not yet answered or refused their identity."""
        return (
            self._count - len(self._refused) - len(self._hidden) - sum(known.present for known in self._known.values())
        )

    def _refuse(self, message: GpuRefused) -> None:
        self.failures += 1
        (self._hidden if message.hidden else self._refused)[message.index] = message.reason
        for known in self._known.values():
            if known.identity.index == message.index and not known.present:
                known.trouble, known.lost = message.reason, message.lost

    def _take(self, gpu: Gpu, now: float) -> None:
        known = self._known.get(gpu.identity.uuid)
        if known is not None:
            known.sample, known.sampled, known.trouble, known.lost = gpu, now, None, False
            self._reads.pop(gpu.identity.uuid, None)
            self._last_success = gpu.at

    def _trouble(self, message: GpuTrouble) -> None:
        self.failures += 1
        known = self._known.get(message.uuid)
        if known is not None:
            known.trouble, known.lost = message.reason, message.lost

    def _state(self, known: _Known, now: float) -> tuple[GpuState, str]:
        if known.lost:
            return GpuState.LOST, known.trouble or "GPU is lost"
        if self._registered is None or now - self._beat > BEAT_SECONDS:
            return self._unread(known, now)
        age = now - self._last_word(known)
        read = self._reads.get(known.identity.uuid if known.present else f"index {known.identity.index}")
        if read and age > self._limit:
            call = read.call_seconds + now - self._reads_at if read.call_seconds else 0.0
            # after a call that hung, the old sample is no evidence: wait for the next
            hung = CALL_DEADLINE_SECONDS <= read.slowest_call <= read.seconds
            if hung or call >= _deadline(read):
                why = f"a driver call does not return ({read.part}, {max(call, hung * read.slowest_call):.0f} s)"
                return GpuState.UNRESPONSIVE, why
        if known.trouble:
            return GpuState.UNKNOWN, known.trouble
        if known.present:
            return self._answering(known, read is not None, age, now)
        # while GPUs are still being woken, the one that is missing may be among those
        vanished = now - self._registered > SETTLE_SECONDS and self.answered(now)
        return (GpuState.LOST, "vanished from NVML") if vanished else self._unread(known, now)

    def _answering(self, known: _Known, is_read: bool, age: float, now: float) -> tuple[GpuState, str]:
        # the next sample of a slow GPU takes longer: the reader pauses for as long as the last read took, then reads
        took = (known.sample and known.sample.read_seconds) or 0.0
        if not is_read and age > self._limit + min(took, PAUSE_SECONDS):
            return GpuState.UNRESPONSIVE, f"no sample for {age:.0f} s"
        if known.sampled is None or known.sampled < (self._registered or 0.0):  # or by an earlier reader
            return (GpuState.UNKNOWN, f"slow: no sample for {age:.0f} s") if age > self._limit else (GpuState.FRESH, "")
        if age > self._limit or took > self._interval:
            return GpuState.FRESH, f"slow: its values are {now - known.sampled:.0f} s old"
        return GpuState.FRESH, ""

    @property
    def _limit(self) -> float:
        """Seconds without a sample of a GPU after which it is overdue."""
        return max(1.9 * self._interval, self._interval + 0.7)

    def _last_word(self, known: _Known) -> float:
        """When it was sampled, or could have been for the first time."""
        return max(known.sampled or 0.0, known.found, self._registered or 0.0)

    def _unread(self, known: _Known, now: float) -> tuple[GpuState, str]:
        """Without a running reader a sample stays valid until it is stale, and the GPU itself is not suspected."""
        if known.sampled is not None and now - known.sampled <= STALE_INTERVALS * self._interval:
            return GpuState.FRESH, ""
        return GpuState.UNKNOWN, self.failure.reason if self.failure else "the reader is starting"


def _deadline(read: ReadUnderWay) -> float:
    """Seconds after which its call hangs. Its age may be too high by the time between two heartbeats."""
    return min(2 * read.slowest_call + BETWEEN_BEATS, CALL_DEADLINE_SECONDS)
