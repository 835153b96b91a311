"""The tuner as a process: follows the agent, steps at each View, at least every few seconds, and serves its pages.

Threads: the main one waits for signals; one follows the agent and steps; one serves HTTP. The stepping thread writes
the heartbeat: if it hangs, the guard notices.
"""

import logging

from msgspec.structs import replace

from gpuwatch.agent.client import AgentViews
from gpuwatch.config import Config
from gpuwatch.process.service import RoleService
from gpuwatch.process.signals import ConfigWatch
from gpuwatch.tuning.model.status import TunerState
from gpuwatch.tuning.service.metrics import PAGES
from gpuwatch.tuning.service.tuner import Tuner

log = logging.getLogger(__name__)

VIEW_WAIT_SECONDS = 2.0
"""Seconds to wait for the agent's next View before the next beat."""

ANSWER_SECONDS = 1.0
"""The agent's time to answer beyond that: one that hangs must not keep the tuner from checking its View's age."""

PAUSE_SECONDS = 1.0
"""Seconds between two requests to an agent that does not answer, and after a bug in one cycle."""

FINISH_SECONDS = 1.0
"""How long the end waits for the stepping thread; one that takes longer only waits for the agent."""

FIXED = ("listen", "web_config")
"""Settings of `tuning` that a running process cannot change."""


class TunerService(RoleService):
    """Runs one Tuner."""

    role, section, fixed = "tuner", "tuning", FIXED

    def __init__(
        self, tuner: Tuner, views: AgentViews, listen: str, *, web_config: str = "", watch: ConfigWatch | None = None
    ) -> None:
        self._tuner, self._views = tuner, views
        pages = PAGES.routes(self.state, self.http_stats)
        super().__init__(pages, listen, web_config=web_config, watch=watch)

    def state(self) -> TunerState:
        """What the pages show."""
        return replace(self._tuner.state, config_error=self.config_error)

    def reconfigure(self, new: Config) -> None:
        """Take over other settings."""
        self._tuner.reconfigure(new.tuning, new.checks.xids)

    def finish(self) -> None:
        """Restore everything."""
        self._tuner.end()
        self.worker.join(FINISH_SECONDS)

    def work(self) -> None:
        """Follow the agent and step."""
        while not self.stopping.is_set():
            self._views.poll(VIEW_WAIT_SECONDS)
            self._tuner.config_error = self.config_error
            try:
                self._tuner.step()
            except Exception:  # a bug in one cycle must not end the tuner
                log.exception("this cycle failed; everything is restored, and the next begins from there")
                try:
                    self._tuner.reset()
                except Exception:  # a bug there, too: settings stay recorded, the next cycle restores what it finds
                    log.exception("not everything was restored")
                self.stopping.wait(PAUSE_SECONDS)
            if self._views.trouble is not None:
                self.stopping.wait(PAUSE_SECONDS)
