"""The remediator as a process: follows the agent, steps when there is news or when it is time, serves its pages.

Threads: the main one waits for signals; one follows the agent and steps; one serves HTTP. A step that is under way when
SIGTERM comes is finished: half of a plan is safe, but all of it is better.
"""

import contextlib
import gc
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from gpuwatch.agent.client import AgentViews
from gpuwatch.config import Config
from gpuwatch.http.server import HttpServer, HttpStats
from gpuwatch.model.errors import UsageError
from gpuwatch.process.service import ConfigWatch, MainThread
from gpuwatch.remediation.model import RemediatorState
from gpuwatch.remediation.service.pages import routes
from gpuwatch.remediation.service.remediator import Remediator

log = logging.getLogger(__name__)

LONGEST_LOOK = 20.0
"""Seconds one question to the agent may take; it answers sooner when there is news."""

AGENT_PAUSE = 1.0
"""Seconds before an agent that does not answer is asked again."""

FINISH_SECONDS = 15.0
"""For a step under way, at the end: a request takes 13 s at most."""

BUG_PAUSE = 10.0

FIXED = ("node_name", "listen", "web_config", "kubeconfig")
"""Settings of `remediation` that a running process cannot change."""


class RemediatorService:
    """Runs one Remediator. `start` binds and returns; `run` also waits for SIGTERM or SIGINT."""

    def __init__(
        self,
        remediator: Remediator,
        views: AgentViews,
        listen: str,
        *,
        web_config: str = "",
        watch: ConfigWatch | None = None,
    ) -> None:
        self._remediator, self._views = remediator, views
        self._main = MainThread(watch, "remediation", FIXED, self._take_over)
        self._stopping = self._main.stopping
        self._stepping = threading.Lock()
        self._thread = threading.Thread(target=self._follow, name="remediator", daemon=True)
        self._http = HttpServer(
            routes(self.state, self._http_stats),
            listen=listen or None,
            web_config=Path(web_config) if web_config else None,
        )

    @property
    def port(self) -> int | None:
        """TCP port in use once started."""
        return self._http.port

    def state(self) -> RemediatorState:
        """What the pages show."""
        return replace(self._remediator.state, config_error=self._main.config_error)

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
        """Finish the step under way and end."""
        self._stopping.set()
        if self._stepping.acquire(timeout=FINISH_SECONDS):
            self._stepping.release()
        self._http.stop()

    def _take_over(self, new: Config) -> None:
        with contextlib.suppress(UsageError), self._stepping:  # reload() has found the policy good
            self._remediator.reconfigure(new.remediation, new.checks.xids)

    def _follow(self) -> None:
        self._views.look()
        while not self._stopping.is_set():
            wait = self._step()
            if self._views.trouble is not None:
                wait = min(wait, AGENT_PAUSE)
                self._stopping.wait(wait)
                wait = 0.0
            self._views.look(min(wait, LONGEST_LOOK))

    def _step(self) -> float:
        with self._stepping:
            if self._stopping.is_set():
                return 0.0
            try:
                return self._remediator.step()
            except Exception:  # a bug in one cycle must not end the care for this node
                log.exception("this cycle failed; the next begins anew from what is there")
                self._stopping.wait(BUG_PAUSE)
                return 0.0
