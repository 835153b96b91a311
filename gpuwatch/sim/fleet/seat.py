"""One node of the fleet: what its remediator is given, and how the node is in truth."""

import random
from collections.abc import Callable
from typing import NamedTuple, Protocol

from gpuwatch.config import RemediationConfig
from gpuwatch.model.clock import Clock
from gpuwatch.remediation.model import RemediatorState
from gpuwatch.sim.fleet.agent import SimulatedAgent
from gpuwatch.sim.fleet.faults import Fault
from gpuwatch.sim.fleet.ledger import Ledger
from gpuwatch.sim.fleet.line import Line


class Remediator(Protocol):
    """As much of one as the fleet needs."""

    @property
    def state(self) -> RemediatorState:
        """What it says about itself."""
        ...

    def step(self) -> float:
        """Do what is due; seconds until it wants to be called again."""
        ...


class Seat(NamedTuple):
    """What the remediator of one node is given. `checkpoint` may kill it."""

    node: str
    namespace: str
    config: RemediationConfig
    agent: SimulatedAgent
    line: Line
    ledger: Ledger
    clock: Clock
    chance: random.Random
    checkpoint: Callable[[str], None]


Factory = Callable[[Seat], Remediator]


class Post:
    """One node of the fleet. Its remediator is stepped by one thread at a time, next when it is `due`.

    `well_since` None: it is sick in truth; `well_before`: what it was then. `fault`: what it has;
    `symptomatic`: whether that shows just now.
    """

    def __init__(self, seat: Seat, now: float) -> None:
        self.seat = seat
        self.remediator: Remediator | None = None
        self.due = 0.0
        self.kills = 0
        self.well_since: float | None = now
        self.well_before: float | None = None
        self.fault: Fault | None = None
        self.symptomatic = False

    @property
    def name(self) -> str:
        """The node's."""
        return self.seat.node
