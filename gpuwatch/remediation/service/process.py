"""The remediator as a process: follows the agent, steps when the View changed or when it is time, serves its pages.

Threads: the main one waits for signals; one follows the agent and steps; one serves HTTP. A step that is under way when
SIGTERM comes is finished: half of a plan is safe, but all of it is better.
"""

import logging
import threading

from msgspec.structs import replace

from gpuwatch.agent.client import AgentViews
from gpuwatch.config import Config
from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.process.service import RoleService
from gpuwatch.process.signals import ConfigWatch
from gpuwatch.remediation.model import RemediatorState
from gpuwatch.remediation.service.pages import PAGES
from gpuwatch.remediation.service.remediator import Remediator
from gpuwatch.remediation.service.status import RemediatorStatusFile, RunningRemediator

log = logging.getLogger(__name__)

LONGEST_POLL = 20.0
"""Seconds one question to the agent may take; it answers sooner when there is a new View."""

AGENT_PAUSE = 1.0
"""Seconds before an agent that does not answer is asked again."""

FINISH_SECONDS = 15.0
"""For a step under way, at the end: a request takes 13 s at most."""

BUG_PAUSE = 10.0

FIXED = ("node_name", "listen", "web_config", "kubeconfig")
"""Settings of `remediation` that a running process cannot change."""


class RemediatorService(RoleService):
    """Runs one Remediator."""

    role, section, fixed = "remediator", "remediation", FIXED

    def __init__(
        self,
        remediator: Remediator,
        views: AgentViews,
        listen: str,
        *,
        web_config: str = "",
        watch: ConfigWatch | None = None,
        state_dir: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._remediator, self._views = remediator, views
        self._status, self._clock = RemediatorStatusFile(state_dir), clock or SystemClock()
        self._stepping = threading.Lock()
        self._changed: Config | None = None
        pages = PAGES.routes(self.state, self.http_stats)
        super().__init__(pages, listen, web_config=web_config, watch=watch)

    def state(self) -> RemediatorState:
        """What the pages show."""
        return replace(self._remediator.state, config_error=self.config_error)

    def work(self) -> None:
        """Follow the agent and step."""
        self._views.poll()
        applied: Config | None = None
        while not self.stopping.is_set():
            wait = 0.0
            with self._stepping:
                if self.stopping.is_set():
                    return
                self._remediator.config_error = self.config_error
                try:
                    if self._changed is not applied and (applied := self._changed) is not None:
                        self._remediator.reconfigure(applied.remediation, applied.checks.xids)
                    wait = self._remediator.step()
                except Exception:  # a bug in one cycle must not end the work for this node
                    log.exception("this cycle failed; the next begins from what is there")
                    self.stopping.wait(BUG_PAUSE)
                state, quarantined = self._remediator.state, self._remediator.quarantined
                at = self._clock.time()
                self._status.write(RunningRemediator(node=state.node, mode=state.mode, at=at, quarantined=quarantined))
            if self._views.trouble is not None:
                self.stopping.wait(min(wait, AGENT_PAUSE))
                wait = 0.0
            self._views.poll(min(wait, LONGEST_POLL))

    def reconfigure(self, new: Config) -> None:
        """Let the next step begin with another policy; a signal would wait with us for the end of this one."""
        self._changed = new

    def finish(self) -> None:
        """Wait for the step under way."""
        self._status.clear()
        if self._stepping.acquire(timeout=FINISH_SECONDS):
            self._stepping.release()
