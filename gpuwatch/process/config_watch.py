"""Takes over a changed configuration: on SIGHUP and when the file changes. A bad one changes nothing and says why."""

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from gpuwatch.config import Config
from gpuwatch.model.errors import UsageError

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
