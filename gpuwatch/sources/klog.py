"""GPU events out of the kernel log, by the best way this process is permitted.

/dev/kmsg when it opens, else klogctl(3), else off with the reason and what to grant. Made for a thread of its
own: `read` blocks, `stop` from any thread ends it at once.
"""

import logging
import os
import select
from pathlib import Path
from typing import Literal, Protocol, Self

from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.model.xid import KernelEvent
from gpuwatch.sources.klogctl import SyslogRing
from gpuwatch.sources.kmsg import KmsgRecords
from gpuwatch.sources.kmsg_framing import Frame, read_frame

Mode = Literal["kmsg", "klogctl", "off"]

DEVICE = Path("/dev/kmsg")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_GRANT = "give the container CAP_SYSLOG and, better, /dev/kmsg (root or its group may read it)"

_HISTORY_READS = 1_000

_log = logging.getLogger(__name__)


class Records(Protocol):
    """A way to the kernel log."""

    fileno: int | None
    interval: float | None
    lost: int
    malformed: int

    def read(self) -> list[Frame]:
        """What is new; never blocks. Raises OSError."""
        ...

    def close(self) -> None:
        """Give back what is held."""
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
    ) -> None:
        self.mode: Mode = mode
        self.reason = reason
        """Why it is not /dev/kmsg, and what to grant; None when all is well."""
        self._records = records
        self._boot_id = boot_id
        self._accept_userspace = accept_userspace
        self._clock = clock or SystemClock()
        self._stopped = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._history = self._read_history()

    @classmethod
    def open(
        cls,
        path: Path = DEVICE,
        *,
        boot_id_path: Path = BOOT_ID,
        accept_userspace: bool = False,
        fall_back: bool = True,
        clock: Clock | None = None,
    ) -> Self:
        """Open what can be opened and read what is already there, as history. Never raises.

        `accept_userspace` takes records that did not come from the kernel: for tests and the simulator only,
        as anybody who may write to /dev/kmsg can then claim any fault. `fall_back` permits klogctl.
        """
        records, mode, reason = _best(path, fall_back)
        boot_id = _boot_id(boot_id_path)
        return cls(records, mode=mode, reason=reason, boot_id=boot_id, accept_userspace=accept_userspace, clock=clock)

    @property
    def lost(self) -> int:
        """Records overwritten before they were read; where there are no numbers, the times it happened."""
        return self._records.lost if self._records else 0

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
            self._wait(remaining)
            events = self._events(self._frames(), historical=False)
        return events

    def stop(self) -> None:
        """Make a `read` that waits, and every later one, return at once. Any thread may call it."""
        self._stopped = True
        os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Give back the files; only when no thread is in `read` any more."""
        self._turn_off("closed")
        os.close(self._wake)

    def _wait(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        records = self._records if self.mode != "off" else None
        if records is not None and records.fileno is not None:
            poll.register(records.fileno, select.POLLIN)
        elif records is not None and records.interval is not None:
            seconds = min(seconds, records.interval)
        poll.poll(seconds * 1000)

    def _read_history(self) -> list[KernelEvent]:
        """All that was written before now; bounded, in case somebody writes without end."""
        events: list[KernelEvent] = []
        for _ in range(_HISTORY_READS):
            frames = self._frames()
            if not frames:
                break
            events += self._events(frames, historical=True)
        return events

    def _frames(self) -> list[Frame]:
        if self._records is None or self.mode == "off":
            return []
        try:
            return self._records.read()
        except OSError as error:
            _log.error("kernel log: reading failed; %s; XIDs now come from NVML only", error)
            self._turn_off(f"reading failed: {error}; restart the agent")
            return []

    def _events(self, frames: list[Frame], *, historical: bool) -> list[KernelEvent]:
        events = (self._event(frame, historical) for frame in frames)
        return [event for event in events if event.line.kind != "other"]

    def _event(self, frame: Frame, historical: bool) -> KernelEvent:
        """A new line gets the time it was read at: the kernel's own clock drifts by seconds a week."""
        at = self._clock.time()
        if historical and frame.uptime is not None:
            at -= max(0.0, self._clock.monotonic() - frame.uptime)
        return KernelEvent(
            at=at,
            line=read_frame(frame, accept_userspace=self._accept_userspace),
            boot_id=self._boot_id,
            sequence=frame.sequence,
            historical=historical,
        )

    def _turn_off(self, reason: str) -> None:
        if self._records is not None and self.mode != "off":
            self._records.close()
        self.mode, self.reason = "off", reason


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


def _boot_id(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None
