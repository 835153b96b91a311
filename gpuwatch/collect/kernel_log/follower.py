"""GPU events out of the kernel log, by the best way this process is permitted.

/dev/kmsg when it opens, else klogctl(3), else off with the reason and the missing right. Made for a thread of its
own: `read` blocks, and `stop` from any thread ends it at once.
"""

import logging
import os
import select
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol, Self

from gpuwatch.collect.kernel_log.lines import Frame, read_frame
from gpuwatch.collect.kernel_log.ring import DEVICE, KmsgRecords, SyslogRing
from gpuwatch.host.machine import boot_id_file, first_line
from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.model.xid import KernelCursor, KernelEvent

Mode = Literal["kmsg", "klogctl", "off"]

BOOT_ID = boot_id_file(Path("/proc"))

_GRANT = "give the container CAP_SYSLOG and, better, /dev/kmsg (root or its group may read it)"

_HISTORY_READS = 1_000

_log = logging.getLogger(__name__)


class LogPosition:
    """How far one boot's log was read. Records of /dev/kmsg have numbers; klogctl's only have their time since boot."""

    def __init__(self, mode: Literal["kmsg", "klogctl"], boot_id: str | None) -> None:
        self._mode, self._boot_id = mode, boot_id
        self._position: int | None = None

    def note(self, frames: Sequence[Frame]) -> None:
        """Count these frames as read."""
        for frame in frames:
            place = self._place(frame)
            # processors' clocks differ by microseconds
            self._position = place if self._mode == "kmsg" else max(place, self._position or 0)

    @property
    def cursor(self) -> KernelCursor | None:
        """The place behind the last record; None where a later process could not find it again."""
        if self._boot_id is None:
            return None
        return KernelCursor(boot_id=self._boot_id, mode=self._mode, position=self._position)

    def reported(self, frames: Sequence[Frame], after: KernelCursor | None) -> int | None:
        """How many of these first frames are before the cursor; None when it is no cursor of this log."""
        now = self.cursor
        if after is None or now is None or (after.boot_id, after.mode) != (now.boot_id, now.mode):
            return None
        if after.position is None:
            return 0
        if now.position is not None and now.position < after.position:  # numbers that start again are another log's
            return None
        places = [self._place(frame) for frame in frames]
        return max((number for number, place in enumerate(places, 1) if place <= after.position), default=0)

    def gap(self, frames: Sequence[Frame], after: KernelCursor) -> int:
        """Records between the cursor and the first frame: overwritten before they were read."""
        if self._mode != "kmsg" or after.position is None or not frames:
            return 0
        return max(0, self._place(frames[0]) - after.position - 1)

    def _place(self, frame: Frame) -> int:
        """A number that only grows within a boot; the forms that are read here have it."""
        return (frame.sequence or 0) if self._mode == "kmsg" else round((frame.uptime or 0.0) * 1e6)


class Records(Protocol):
    """A way to the kernel log."""

    fileno: int | None
    interval: float | None
    lost: int
    malformed: int
    unusable: str | None
    """Why no record counts; None where records count."""
    replays: bool
    """Whether opening it again returns the records that were read before."""

    def read(self) -> list[Frame]:
        """The new records; never blocks. Raises OSError."""
        ...

    def close(self) -> None:
        """Close what is open."""
        ...


class KernelLog:
    """The node's kernel log, as events about GPUs and NVSwitches."""

    def __init__(
        self,
        records: Records | None,
        *,
        mode: Mode,
        reason: str | None = None,
        boot_id: str | None = None,
        accept_userspace: bool = False,
        clock: Clock | None = None,
        after: KernelCursor | None = None,
    ) -> None:
        self.mode: Mode = mode
        self._reason = reason
        self._records = records
        self._boot_id = boot_id
        self._accept_userspace = accept_userspace
        self._clock = clock or SystemClock()
        self._stopped = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._progress = LogPosition("klogctl" if mode == "klogctl" else "kmsg", boot_id)
        self._missed = 0
        self.resumed = False
        """Whether it continues behind a cursor: the agent before this one has then reported the historical records."""
        # everything written before now; bounded, in case the writer never stops
        frames: list[Frame] = []
        for _ in range(_HISTORY_READS):
            more = self._frames()
            if not more:
                break
            frames += more
        reported = self._progress.reported(frames, after)
        self.resumed = reported is not None
        if after is not None and reported is not None and self._records is not None and self._records.replays:
            self._missed = self._progress.gap(frames, after)
        old, new = frames[:reported], frames[len(frames) if reported is None else reported :]
        self._history = self._events(old, historical=True, late=True) + self._events(new, historical=False, late=True)

    @classmethod
    def open(
        cls,
        path: Path = DEVICE,
        *,
        boot_id_path: Path = BOOT_ID,
        accept_userspace: bool = False,
        fall_back: bool = True,
        clock: Clock | None = None,
        after: KernelCursor | None = None,
    ) -> Self:
        """Open what can be opened and read what is already there, as history. Never raises.

        With `after`, the cursor of an earlier agent in this boot, only records up to it are history: the rest are new.
        `accept_userspace` takes records that did not come from the kernel: for tests and the simulator only,
        as every writer of /dev/kmsg can then claim any fault. `fall_back` permits klogctl.
        """
        records, mode, reason = _best(path, fall_back)
        return cls(
            records,
            mode=mode,
            reason=reason,
            boot_id=first_line(boot_id_path),
            accept_userspace=accept_userspace,
            clock=clock,
            after=after,
        )

    @property
    def unusable(self) -> bool:
        """Whether no record counts; `reason` holds the cause."""
        return self.mode == "off" or (self._records is not None and self._records.unusable is not None)

    @property
    def reason(self) -> str | None:
        """Why /dev/kmsg is not read, or why no record counts, and the missing right; None for a working /dev/kmsg."""
        unusable = self._records.unusable if self._records and self.mode != "off" else None
        return "; ".join(filter(None, (self._reason, unusable))) or None

    @property
    def lost(self) -> int:
        """Records overwritten before they were read; without record numbers, how often that happened."""
        return self._missed + (self._records.lost if self._records else 0)

    @property
    def cursor(self) -> KernelCursor | None:
        """The place behind all that `read` has given or will give first; None where a later agent cannot use it."""
        return None if self._records is not None and self._records.unusable else self._progress.cursor

    @property
    def malformed(self) -> int:
        """Records that had no kernel header; skipped."""
        return self._records.malformed if self._records else 0

    def read(self, timeout: float) -> list[KernelEvent]:
        """Wait up to `timeout` seconds for events; the first call gives the history, without waiting.

        An empty list means that time is up or that `stop` was called.
        """
        events, self._history = self._history, []
        deadline = self._clock.monotonic() + timeout
        while not events and not self._stopped:
            remaining = deadline - self._clock.monotonic()
            if remaining <= 0:
                break
            seconds = remaining
            poll = select.poll()
            poll.register(self._wake, select.POLLIN)
            records = self._records if self.mode != "off" else None
            if records is not None and records.fileno is not None:
                poll.register(records.fileno, select.POLLIN)
            elif records is not None and records.interval is not None:
                seconds = min(seconds, records.interval)
            poll.poll(seconds * 1000)
            events = self._events(self._frames())
        return events

    def stop(self) -> None:
        """Make a `read` that waits, and every later one, return at once. Any thread may call it."""
        self._stopped = True
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Close the files; only when no thread is in `read` any more."""
        self._turn_off("closed")
        os.close(self._wake)

    def _frames(self) -> list[Frame]:
        if self._records is None or self.mode == "off":
            return []
        try:
            frames = self._records.read()
        except OSError as error:
            _log.error("kernel log: reading failed; %s; XIDs now come from NVML only", error)
            self._turn_off(f"reading failed: {error}; restart the agent")
            return []
        self._progress.note(frames)
        return frames

    def _events(self, frames: list[Frame], *, historical: bool = False, late: bool = False) -> list[KernelEvent]:
        events = []
        for frame in frames:
            line = read_frame(frame, accept_userspace=self._accept_userspace)
            if line.kind == "other":
                continue
            # a new line gets the time at which it was read: the kernel's own clock drifts by seconds a week
            now = self._clock.monotonic()
            uptime = min(now, frame.uptime) if late and frame.uptime is not None else now
            events.append(
                KernelEvent(
                    at=self._clock.time() - (now - uptime),
                    line=line,
                    boot_id=self._boot_id,
                    uptime=uptime if self._boot_id else None,
                    sequence=frame.sequence,
                    historical=historical,
                )
            )
        return events

    def _turn_off(self, reason: str) -> None:
        if self._records is not None and self.mode != "off":
            self._records.close()
        self.mode, self._reason = "off", reason


def _best(path: Path, fall_back: bool) -> tuple[Records | None, Mode, str | None]:
    try:
        return KmsgRecords(path), "kmsg", None
    except OSError as error:
        reason = f"{path}: {error.strerror}"
    if fall_back:
        try:
            return SyslogRing(), "klogctl", f"{reason}; reading through klogctl"
        except (OSError, AttributeError) as error:
            reason += f"; klogctl: {getattr(error, 'strerror', None) or error}"
    return None, "off", f"{reason}; {_GRANT}"
