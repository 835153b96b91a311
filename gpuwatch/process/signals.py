"""What interrupts a running process: signals, and a changed configuration file.

A Python signal handler runs in the middle of whatever the main thread does. Setting an Event there can wait for ever
for a lock that the main thread itself holds as it waits for that Event; SimpleQueue is safe to put into.
"""

import logging
import os
import signal
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue

import msgspec

from gpuwatch.config import Config
from gpuwatch.model.errors import UsageError
from gpuwatch.model.snapshot import SourceStatus

log = logging.getLogger(__name__)

ENDS = (signal.SIGTERM, signal.SIGINT)
CAUGHT = (*ENDS, signal.SIGHUP)


class Signals:
    """Signals that have arrived and were not fetched yet."""

    def __init__(self) -> None:
        self._came: SimpleQueue[int | None] = SimpleQueue()

    def catch(self, numbers: Iterable[signal.Signals] = CAUGHT) -> None:
        """Queue these signals from now on. Only in the main thread."""
        for number in numbers:
            signal.signal(number, lambda came, _: self._came.put(came))

    def waiting(self) -> bool:
        """Whether `next` would return at once."""
        return not self._came.empty()

    def wake(self) -> None:
        """Make `next` return at once; any thread may call this."""
        self._came.put(None)

    def next(self, seconds: float) -> int | None:
        """The next signal; None when none comes within `seconds`, or on `wake`."""
        try:
            return self._came.get(timeout=seconds)
        except Empty:
            return None


def keep_watchdog_quiet() -> None:
    """Reset systemd's watchdog (`WatchdogSec=` of a unit), where there is one (sd_notify(3))."""
    if not (address := os.environ.get("NOTIFY_SOCKET")):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        client.setblocking(False)
        try:
            client.sendto(b"WATCHDOG=1", f"\0{address[1:]}" if address.startswith("@") else address)
        except OSError as error:
            log.debug("systemd cannot be notified; %s", error)


LIVE_SECTIONS = ("metrics", "rightsizing")
"""Sections that take effect in a running agent; a change elsewhere is named in the log."""

WATCH_SECONDS = 2.0


class ConfigWatch:
    """The configuration in force and the file behind it. `load` reads file, environment and options again.

    `error`: why the file's configuration is not in force: it is refused, unreadable, or gone. A file is gone when
    absent at two checks; editors and the kubelet replace one by a rename, which leaves no gap.
    """

    def __init__(
        self,
        config: Config,
        path: Path | None,
        load: Callable[[], Config],
        *,
        live: Sequence[str] = LIVE_SECTIONS,
        role: str = "agent",
    ) -> None:
        self.config, self.role, self._path, self._load, self._live = config, role, path, load, live
        self._seen = self._stamp()
        self._absent = False
        self._taken = True
        self.error: str | None = None

    def changed(self) -> bool:
        """Whether the file has changed since the last check, or is gone; absence at one check only is no change."""
        stamp = self._stamp()
        absent, self._absent = self._absent, stamp is None
        if stamp == self._seen or (stamp is None and not absent):
            return False
        self._seen = stamp
        return True

    def reload(self) -> Config | None:
        """The new configuration with what can change while running; None when nothing changes. Never raises."""
        try:
            new = self._load()
        except UsageError as error:
            self.refuse(str(error))
            return None
        except Exception as error:  # a bug in reading a file must not end a process that runs with the previous one
            log.exception("the changed configuration could not be judged")
            self.refuse(f"gpuwatch failed on it: {type(error).__name__}; report it")
            return None
        self.error = None
        for section in Config.__struct_fields__:
            if section not in self._live and getattr(new, section) != getattr(self.config, section):
                log.warning("a change of `%s` takes effect when the %s is restarted", section, self.role)
        live = {section: getattr(new, section) for section in self._live}
        if self._taken and all(getattr(self.config, section) == value for section, value in live.items()):
            return None
        self._taken = True
        self.config = msgspec.structs.replace(self.config, **live)
        log.info("configuration reloaded")
        return self.config

    def status(self) -> tuple[SourceStatus, ...]:
        """The file as a source that is down; empty while it is in force. From it follow the finding, `status` and the
        message of the Node's condition.
        """
        return () if self.error is None else (SourceStatus(name="configuration", up=False, reason=self.error),)

    def failed(self, error: Exception) -> None:
        """The configuration of `reload` was not taken over, or in part only: the next `reload` returns one again."""
        self._taken = False
        self.refuse(f"gpuwatch failed on it: {type(error).__name__}; report it")

    def refuse(self, why: str) -> None:
        """Keep the configuration in force, and record and log why."""
        self.error = why
        log.error("the changed configuration is refused, the old one stays in force: %s", why)

    def _stamp(self) -> tuple[int, int, int, int] | None:
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
        except (OSError, ValueError):  # ValueError: a path with a NUL
            return None
        return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size  # the third changes with the mode
