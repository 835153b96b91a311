"""The agent's newest View as the remediator and the tuner see it, and for how long it has been the newest.

Ages are measured here, by a clock that does not jump: a View served again and again by an agent that no longer looks
grows old, whatever its time stamp says.
"""

import logging
import math
from typing import Protocol

from gpuwatch.model.clock import Clock
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.view import View

log = logging.getLogger(__name__)


class ViewSource(Protocol):
    """Where Views come from: the agent, a recording or a simulated fleet."""

    @property
    def view(self) -> View | None:
        """The newest, None before the first."""
        ...

    @property
    def age(self) -> float:
        """Seconds since it was published; infinite before the first."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why there is none, or no newer one."""
        ...


class Asks(Protocol):
    """As much of the agent's client as is needed."""

    name: str

    def view(self, *, after: float | None = None, wait: float = 0.0) -> View:
        """The newest View; with `after`, its predecessor's time, after a wait of up to `wait` seconds for it."""
        ...


class AgentViews:
    """Follows one agent. `look` waits for news; the rest says what is known."""

    def __init__(self, agent: Asks, clock: Clock) -> None:
        self._agent, self._clock = agent, clock
        self._received = -math.inf
        self.view: View | None = None
        self.trouble: str | None = "the agent has not been asked yet"

    @property
    def age(self) -> float:
        """Seconds since the newest View was published; infinite before the first."""
        return self._clock.monotonic() - self._received

    def look(self, wait: float = 0.0) -> bool:
        """Wait up to `wait` seconds for a newer View; whether one came. Never raises: see `trouble`."""
        after = None if self.view is None else self.view.snapshot.at
        try:
            view = self._agent.view(after=after, wait=wait)
        except GpuwatchError as error:
            if self.trouble != str(error):
                log.warning("%s; nothing new is done until it answers", error)
            self.trouble = str(error)
            return False
        if self.trouble is not None:
            log.info("the agent at %s answers", self._agent.name)
        self.trouble = None
        if self.view is not None and view.snapshot.at == after:
            return False
        self.view = view
        self._received = self._clock.monotonic() - max(0.0, self._clock.time() - view.snapshot.at)
        return True
