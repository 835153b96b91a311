"""What interrupts a running process: signals, and a changed configuration file.

A Python signal handler runs in the middle of whatever the main thread does. Setting an Event there can wait for ever
for a lock that the main thread itself holds as it waits for that Event; SimpleQueue is safe to put into.
"""

import logging
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue

import msgspec

from gpuwatch.config import Config
from gpuwatch.model.errors import UsageError

ENDS = (signal.SIGTERM, signal.SIGINT)
HEEDED = (*ENDS, signal.SIGHUP)


class Signals:
    """What has come and was not asked for yet."""

    def __init__(self) -> None:
        self._came: SimpleQueue[int | None] = SimpleQueue()

    def heed(self, numbers: Iterable[signal.Signals] = HEEDED) -> None:
        """From now on. Only in the main thread."""
        for number in numbers:
            signal.signal(number, lambda came, _: self._came.put(came))

    def wake(self) -> None:
        """Have `next` return at once; any thread may."""
        self._came.put(None)

    def next(self, seconds: float) -> int | None:
        """The next signal; None when none comes within `seconds`, or when somebody wakes us."""
        try:
            return self._came.get(timeout=seconds)
        except Empty:
            return None


log = logging.getLogger(__name__)

LIVE_SECTIONS = ("metrics", "rightsizing")
"""Sections that take effect in a running agent; a change elsewhere is named in the log."""

WATCH_SECONDS = 2.0


class ConfigWatch:
    """The configuration in force and the file behind it. `load` reads file, environment and options anew."""

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
        self.error: str | None = None

    def changed(self) -> bool:
        """Whether the file is another one than at the last look; a file that is gone for a moment is no change."""
        stamp = self._stamp()
        if stamp is None or stamp == self._seen:
            return False
        self._seen = stamp
        return True

    def reload(self) -> Config | None:
        """The new configuration with what can change while running; None when nothing changes."""
        try:
            new = self._load()
        except UsageError as error:
            self.error = str(error)
            log.error("the changed configuration is refused, the old one stays in force: %s", error)
            return None
        self.error = None
        for section in Config.__struct_fields__:
            if section not in self._live and getattr(new, section) != getattr(self.config, section):
                log.warning("a change of `%s` takes effect when the %s is restarted", section, self.role)
        live = {section: getattr(new, section) for section in self._live}
        if all(getattr(self.config, section) == value for section, value in live.items()):
            return None
        self.config = msgspec.structs.replace(self.config, **live)
        log.info("configuration reloaded")
        return self.config

    def _stamp(self) -> tuple[int, int] | None:
        if self._path is None:
            return None
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns


log = logging.getLogger(__name__)
