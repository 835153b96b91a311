"""Skeleton of a long-running role: a worker thread, HTTP pages, and a main thread that waits for signals and meanwhile
applies a changed configuration. The remediator and the tuner use it.

The agent does not: it joins a reader process and several periodic threads, and its configuration takes effect in other
places. The tuner's guard and the consents process have neither HTTP nor a configuration that changes.
"""

import gc
import logging
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from gpuwatch.config import Config
from gpuwatch.http.server import Handler, HttpServer, HttpStats
from gpuwatch.process.signals import ENDS, WATCH_SECONDS, ConfigWatch, Signals

log = logging.getLogger(__name__)


class RoleService(ABC):
    """One role. `start` binds and returns; `run` also waits for SIGTERM or SIGINT.

    `section` of the configuration is the role's, and `fixed` names the settings of it that a running process keeps.
    `stopping` is set by the signals and by `stop`.
    """

    role: ClassVar[str]
    section: ClassVar[str]
    fixed: ClassVar[Sequence[str]] = ()

    def __init__(
        self,
        routes: Mapping[str, Handler],
        listen: str = "",
        *,
        web_config: str = "",
        watch: ConfigWatch | None = None,
        pause: float = WATCH_SECONDS,
    ) -> None:
        self._watch, self._pause = watch, pause
        self._signals = Signals()
        self._http = HttpServer(
            routes,
            listen=listen or None,
            web_config=Path(web_config) if web_config else None,
            hosts=watch.config.agent.hosts if watch else (),
        )
        self.stopping = threading.Event()
        self.worker = threading.Thread(target=self.work, name=self.role, daemon=True)

    @abstractmethod
    def work(self) -> None:
        """The worker thread, until `stopping` is set."""

    @abstractmethod
    def reconfigure(self, new: Config) -> None:
        """Apply a valid configuration."""

    @abstractmethod
    def finish(self) -> None:
        """End the work; `stopping` is set, and HTTP still answers."""

    @property
    def port(self) -> int | None:
        """TCP port in use once started."""
        return self._http.port

    @property
    def config_error(self) -> str | None:
        """Why the configuration in the file is not the one in use."""
        return self._watch.error if self._watch else None

    def http_stats(self) -> HttpStats:
        """Counts of the HTTP server."""
        return self._http.stats()

    def start(self) -> None:
        """Bind and begin. Raises UsageError when the address cannot be used."""
        self._http.start()
        self.worker.start()

    def run(self, started: Callable[[], None] = lambda: None) -> None:
        """Start, call `started`, and work until SIGTERM or SIGINT."""
        self._signals.catch()
        gc.freeze()
        self.start()
        started()
        while not self.stopping.is_set():
            number = self._signals.next(self._pause)
            if number in ENDS:
                self.stopping.set()
            elif self._watch is not None and (self._watch.changed() or number == signal.SIGHUP):
                self._reload(self._watch)
        self.stop()

    def stop(self) -> None:
        """Finish the work and end."""
        self.stopping.set()
        self.finish()
        self._http.stop()

    def _reload(self, watch: ConfigWatch) -> None:
        """Apply a changed file. An invalid one changes nothing; a change of a `fixed` setting is only logged."""
        before = getattr(watch.config, self.section)
        if (new := watch.reload()) is None:
            return
        for name in self.fixed:
            if getattr(getattr(new, self.section), name) != getattr(before, name):
                changed = f"{self.section}.{name}"
                log.warning("a change of `%s` takes effect when the %s is restarted", changed, self.role)
        try:
            self.reconfigure(new)
        except Exception as error:  # a bug in `reconfigure` must not end the role
            log.exception("the changed configuration could not be taken over")
            watch.failed(error)
