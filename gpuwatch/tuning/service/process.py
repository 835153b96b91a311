"""The tuner as a process: follows the agent, steps at each View, at least every few seconds, and serves its pages.

Threads: the main one waits for signals; one follows the agent and steps; one serves HTTP. The heartbeat is the stepping
thread's: were it to hang, the guard would hear.
"""

import gc
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from gpuwatch.agent.client import AgentViews
from gpuwatch.config import Config
from gpuwatch.http.server import HttpServer, HttpStats
from gpuwatch.process.service import ConfigWatch, MainThread
from gpuwatch.tuning.model.status import TunerState
from gpuwatch.tuning.service.pages import routes
from gpuwatch.tuning.service.tuner import Tuner

log = logging.getLogger(__name__)

LONGEST_LOOK = 2.0
"""Seconds to wait for the agent's next View before the next beat."""

ANSWER_SECONDS = 1.0
"""For the agent to answer beyond that: one that hangs must not keep the tuner from seeing how old its View is."""

PAUSE = 1.0
"""Seconds before an agent that does not answer is asked again, and after a bug in one cycle."""

FINISH_SECONDS = 1.0
"""For the stepping thread, at the end; a longer one only waits for the agent."""

FIXED = ("listen", "web_config")
"""Settings of `tuning` that a running process cannot change."""


class TunerService:
    """Runs one Tuner. `start` binds and returns; `run` also waits for SIGTERM or SIGINT."""

    def __init__(
        self, tuner: Tuner, views: AgentViews, listen: str, *, web_config: str = "", watch: ConfigWatch | None = None
    ) -> None:
        self._tuner, self._views = tuner, views
        self._main = MainThread(watch, "tuning", FIXED, self._take_over)
        self._stopping = self._main.stopping
        self._thread = threading.Thread(target=self._follow, name="tuner", daemon=True)
        self._http = HttpServer(
            routes(self.state, self._http_stats),
            listen=listen or None,
            web_config=Path(web_config) if web_config else None,
        )

    @property
    def port(self) -> int | None:
        """TCP port in use once started."""
        return self._http.port

    def state(self) -> TunerState:
        """What the pages show."""
        return replace(self._tuner.state, config_error=self._main.config_error)

    def _http_stats(self) -> HttpStats:
        return self._http.stats()

    def start(self) -> None:
        """Bind and begin. Raises UsageError when the address cannot be used."""
        self._http.start()
        self._thread.start()

    def run(self, started: Callable[[], None] = lambda: None) -> None:
        """Start, call `started`, and work until SIGTERM or SIGINT."""
        self._main.heed_signals()
        gc.freeze()
        self.start()
        started()
        self._main.wait()
        self.stop()

    def stop(self) -> None:
        """Give everything back and end."""
        self._stopping.set()
        self._tuner.end()
        self._thread.join(FINISH_SECONDS)
        self._http.stop()

    def _take_over(self, new: Config) -> None:
        self._tuner.reconfigure(new.tuning, new.checks.xids)

    def _follow(self) -> None:
        while not self._stopping.is_set():
            self._views.look(LONGEST_LOOK)
            try:
                self._tuner.step()
            except Exception:  # a bug in one cycle must not end the tuner
                log.exception("this cycle failed; everything is given back, and the next begins anew")
                self._give_up()
                self._stopping.wait(PAUSE)
            if self._views.trouble is not None:
                self._stopping.wait(PAUSE)

    def _give_up(self) -> None:
        try:
            self._tuner.give_up()
        except Exception:  # a bug there, too: what is recorded stays so, and the next cycle gives back what it finds
            log.exception("not everything was given back")
