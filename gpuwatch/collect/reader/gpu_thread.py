"""One thread per GPU: registers it, samples it on the common grid and reports failures, without delaying other GPUs."""

import threading
import time
from typing import Any

import msgspec

from gpuwatch.collect.nvml.events import DriverEventReader
from gpuwatch.collect.nvml.fields import STEADY_SECONDS
from gpuwatch.collect.nvml.gpu import GpuReader, register
from gpuwatch.collect.nvml.library import Failure, Nvml, NvmlFailure
from gpuwatch.collect.reader.messages import (
    GpuFound,
    GpuRefused,
    GpuSample,
    GpuTrouble,
    Outbox,
    ReaderFailed,
    ReadUnderWay,
    Settings,
)

STAGGER_SECONDS = 0.004
"""Between two GPUs' samples: threads that call the driver at the same moment contend for Python's lock at every call,
which nearly doubles their work.
"""

# A GPU that hangs, or one that is slow?
#
# Both look alike from outside: a driver call has not returned. A driver that is merely busy (a reset, a first start
# without persistence mode, a large allocation) returns within seconds; one whose firmware is dead returns never, or
# after a timeout of its own inside each call.
#
# A timeout around the call does not work. Python cannot end a thread inside a C function, a signal is not delivered to
# a thread that sleeps uninterruptibly in the kernel, and a process that is killed inside an ioctl can wedge the GPU for
# good. Calling again does not work either: the driver serialises calls about one GPU, so a second caller queues behind
# the first and hangs too.
#
# Therefore no call is ever given up or repeated while it is under way. Each GPU has a thread of its own, so that one
# that hangs delays no other. The reader's main thread calls no driver and sends a heartbeat every 1.5 s at least
# with the part of the read that each thread is in, its seconds, and those of the one call under way. The agent judges
# by that call: a GPU is `unresponsive` once a sample is missing and the call has passed its deadline, and a finding
# begins only after `checks.unresponsive_after`, which a busy driver does not reach. A read of a hundred calls may
# take long while each returns: that GPU is slow, its values stay with their age, and `driver_slow` reports it. A
# call's deadline is twice the slowest one that returned lately, so that a GPU that is known to be slow is not taken
# for one that hangs. Where two reads in a row took longer than SLOW_SECONDS, the GPU is left alone for as long as
# they took, so that the reader spends at most half of the time inside a driver that may be failing.

LOST_SECONDS = 30.0
"""A lost GPU is read less and less often, down to this interval: every call may make its driver worse."""

SLOW_SECONDS = 5.0
"""Two reads in a row that take longer mean a driver that times out inside; the GPU is then left alone for as long as
they took. A single one was a hang that is over: the next read shows whether the GPU is healthy again.
"""


def backoff_seconds(interval: float, losses: int, took: tuple[float, float]) -> float:
    """Seconds for which a sick GPU is left alone: after `losses` answers in a row that it is lost, or when each of the
    last two reads `took` very long. 0 for a healthy one.
    """
    lost = min(interval * 2.0 ** min(losses, 16), max(interval, LOST_SECONDS)) if losses else 0.0
    return max(lost, min(*took, LOST_SECONDS) if min(took) > SLOW_SECONDS else 0.0)


SLOWEST_SECONDS = 300.0
"""The slowest call is kept for at least so long, at most twice as long."""


class TimedNvml:
    """A pynvml-shaped module that notes when the call under way began: one thread calls, others ask for its age."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._began: float | None = None
        self._slowest, self._slowest_before, self._since = 0.0, 0.0, time.monotonic()

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._nvml, name)
        if not name.startswith("nvml") or isinstance(member, type) or not callable(member):
            return member

        def call(*args: Any, **options: Any) -> Any:
            self._began = began = time.monotonic()
            try:
                return member(*args, **options)
            finally:
                self._began, now = None, time.monotonic()
                if now - self._since > SLOWEST_SECONDS:
                    self._slowest_before, self._slowest, self._since = self._slowest, 0.0, now
                self._slowest = max(self._slowest, now - began)

        setattr(self, name, call)  # later look-ups find it without __getattr__
        return call

    def call_seconds(self) -> tuple[float, float]:
        """Seconds of the call under way, 0 between two, and of the slowest that returned lately."""
        began = self._began
        slowest = max(self._slowest, self._slowest_before)
        return (0.0 if began is None else time.monotonic() - began), slowest


class GpuThread(threading.Thread):
    """Samples the GPU at one NVML index for ever. `key` is its uuid once known, `index N` before."""

    def __init__(
        self, nvml: Nvml, index: int, settings: Settings, outbox: Outbox, events: DriverEventReader | None
    ) -> None:
        super().__init__(name=f"gpu {index}", daemon=True)
        self._nvml, self._index, self._settings = TimedNvml(nvml), index, settings
        self._outbox, self._events = outbox, events
        self._reader: GpuReader | None = None
        self._since: float | None = time.monotonic()
        self._wake = threading.Event()
        self._stopping = False
        self._losses = 0  # in a row
        self._took = 0.0  # the read before
        self.key = f"index {index}"

    def busy(self) -> ReadUnderWay | None:
        """The read under way, None between reads."""
        since = self._since
        if since is None:
            return None
        part = self._reader.calling if self._reader else "registration"
        return ReadUnderWay(part or "start", time.monotonic() - since, *self._nvml.call_seconds())

    def refresh(self) -> None:
        """Take a sample now, rarely-read values included."""
        self._wake.set()

    def stop(self) -> None:
        """End after the read under way."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        """Register, then sample on the grid of whole intervals."""
        while not self._stopping:
            forced = self._wake.is_set()
            self._wake.clear()
            start = self._since = time.monotonic()
            try:
                if self._reader is None:
                    self._reader = self._register()
                read_from = time.monotonic()
                gpu = self._reader.read(time.time(), read_from, forced)
                self._losses = 0
                took = time.monotonic() - read_from
                self._outbox.send(GpuSample(gpu=msgspec.structs.replace(gpu, read_seconds=took)))
            except NvmlFailure as error:
                if error.kind is Failure.DRIVER_GONE:
                    self._outbox.send(ReaderFailed(reason=str(error), kind=error.kind, code=error.code))
                self._report_failure(
                    str(error), lost=error.kind is Failure.LOST, hidden=error.kind is Failure.PERMISSION
                )
            except Exception as error:  # noqa: BLE001 one odd GPU must not take the others' reader down
                self._report_failure(f"reading failed: {type(error).__name__}: {error}", lost=False)
            self._since = None
            # seconds to the next grid point, which GPUs share except for the stagger; one that is too near is skipped
            took = time.monotonic() - start
            interval = self._settings.interval
            offset = self._index * min(STAGGER_SECONDS, interval / 64)
            rest = interval - (time.monotonic() - offset) % interval
            rest = rest if rest >= interval / 2 else rest + interval
            before, self._took = self._took, took
            self._wake.wait(max(rest, backoff_seconds(interval, self._losses, (before, took))))

    def _register(self) -> GpuReader:
        handle, identity = register(self._nvml, self._index)
        refused = None if self._events else "the driver has no event sets"
        if self._events:
            try:
                self._events.add(handle, identity)
            except NvmlFailure as error:
                if error.kind is Failure.DRIVER_GONE:
                    raise
                refused = str(error)
        self.key = identity.uuid
        self._outbox.send(GpuFound(identity=identity, events_refused=refused))
        settings = self._settings
        return GpuReader(
            self._nvml,
            handle,
            identity,
            interval=STEADY_SECONDS if getattr(self._nvml, "asks_all", False) else settings.interval,
            with_gpm=settings.with_gpm,
            buffers=settings.buffers,
        )

    def _report_failure(self, reason: str, lost: bool, hidden: bool = False) -> None:
        self._losses = self._losses + 1 if lost else 0
        if self._reader is None:
            self._outbox.send(GpuRefused(index=self._index, lost=lost, hidden=hidden, reason=reason))
        else:
            self._outbox.send(GpuTrouble(uuid=self.key, lost=lost, reason=reason))
