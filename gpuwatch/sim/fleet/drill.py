"""The drill of `gpuwatch sim fleet`: healthy nodes, a fault that hits many of them within a minute and is repaired,
then the same again with disturbances; and the report of all phases.
"""

import resource
import time
from collections.abc import Callable, Iterator

import msgspec

from gpuwatch.sim.fleet.agent import FAULTS
from gpuwatch.sim.fleet.faults import FaultInjector
from gpuwatch.sim.fleet.fleet import Disturbances, SimulatedFleet
from gpuwatch.sim.fleet.invariants import Violation
from gpuwatch.sim.fleet.node import RemediatorFactory


class DrillPhase(msgspec.Struct, frozen=True, kw_only=True):
    """A phase of the drill. Times in seconds; `tainted`, `blocked` and `sick` count nodes."""

    name: str
    description: str
    simulated_seconds: float
    wall_seconds: float
    tainted: int
    """The most at any instant."""
    budget: int
    sick: int
    """At the end."""
    blocked: int
    """At the end: sick, and not tainted because the budget is used up."""
    quarantines: int
    reads_per_node_hour: float
    writes_per_node_hour: float
    conflicts: int
    """Answers 409: another write came first."""
    failures: int
    """Answers 429 and 5xx, and broken connections."""
    retries: int
    kills: int


class DrillReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run. `writes`: how many the invariants checked.

    `leaks`: changes left on nodes that were healthy again; `shortfalls`: required actions that were not taken.
    """

    fault: str
    nodes: int
    seed: int
    budget: int
    phases: tuple[DrillPhase, ...] = ()
    writes: int = 0
    quarantines: int = 0
    violations: tuple[Violation, ...] = ()
    leaks: tuple[str, ...] = ()
    shortfalls: tuple[str, ...] = ()
    wall_seconds: float = 0.0
    memory_bytes: int = 0
    """The peak of this process."""

    @property
    def is_good(self) -> bool:
        """Whether every invariant held and every node was released."""
        return not (self.violations or self.leaks or self.shortfalls)


START_SECONDS = 90.0
FAULT_SECONDS = 60.0
AFTER_SECONDS = 180.0
"""Seconds; longer than a killed remediator is down, or one that met failures waits."""
REPAIR_LIMIT = 3 * 3600.0
"""Seconds within which every node must be released."""

KILLS_AFTER_REPAIR = 300.0
"""Seconds for which remediators are still killed while nodes recover, each of which takes minutes without a break."""

REST_WRITES_PER_HOUR = 12.0
"""Of each node while nothing happens: one in five minutes."""


class DrillStory:
    """The phases of one drill. `seconds`: the length of those in which nothing new happens."""

    def __init__(self, fleet: SimulatedFleet, drill: "FleetDrill") -> None:
        self._fleet, self._drill, self._fault = fleet, drill, FAULTS[drill.fault]
        self._injector = FaultInjector(fleet, drill.seed)
        self.leaks: tuple[str, ...] = ()
        self.shortfalls: list[str] = []

    def phases(self) -> Iterator[DrillPhase]:
        """Run the phases; yields each one when it is over."""
        fleet = self._fleet
        yield self._phase("start", "all remediators start within a minute", START_SECONDS)
        rest = self._phase("rest", "everything is healthy", self._drill.seconds)
        if rest.writes_per_node_hour > REST_WRITES_PER_HOUR + 0.05:
            self.shortfalls.append(f"at rest each node writes {rest.writes_per_node_hour:.1f} times an hour")
        yield rest
        before = fleet.node_states()
        yield from self._wave("", Disturbances())
        self.leaks += fleet.leaks(before)
        if any(self._drill.disturbances) and not (self.leaks or self.shortfalls):
            yield from self._wave(" again", self._drill.disturbances)
            self.leaks += fleet.leaks(before)

    def _wave(self, again: str, disturbances: Disturbances) -> Iterator[DrillPhase]:
        """The fault from its first node to the last repair."""
        fleet, invariants, fault = self._fleet, self._fleet.invariants, self._fault
        parts = []
        if disturbances.api_failures:
            parts.append(f"{disturbances.api_failures:.0%} of API calls fail")
        if disturbances.kill:
            parts.append("remediators are killed at random points")
        harder = f", {' and '.join(parts)}" if parts else ""
        fleet.disturb(disturbances)
        self._injector.inject(fault, FAULT_SECONDS)
        yield self._phase(f"fault{again}", fault.description + harder, 2 * FAULT_SECONDS)
        waiting = "the fault stays; nodes without a slot wait for one"
        yield self._phase(f"waiting{again}", waiting, self._drill.seconds)
        expected = min(invariants.budget, len(fleet.sick)) if fault.taints else 0
        if not parts and len(invariants.tainted) != expected:
            self.shortfalls.append(f"{len(invariants.tainted)} nodes were tainted, {expected} should have been")
        self._injector.repair_all(FAULT_SECONDS)
        fleet.at(KILLS_AFTER_REPAIR, fleet.stop_kills)
        yield self._phase(
            f"repair{again}",
            f"the fault is repaired{harder}",
            REPAIR_LIMIT,
            lambda: not (fleet.sick or invariants.tainted or invariants.held),
        )
        fleet.disturb(Disturbances())
        yield self._phase(f"after{again}", "everything is healthy again", AFTER_SECONDS)

    def _phase(
        self, name: str, description: str, seconds: float, until: Callable[[], bool] = lambda: False
    ) -> DrillPhase:
        fleet, invariants = self._fleet, self._fleet.invariants
        began, request_counts, kills = fleet.clock.time(), fleet.request_counts, fleet.kills
        quarantines, wall = invariants.quarantines, time.monotonic()
        invariants.most = len(invariants.tainted)
        fleet.run(seconds, until)
        asked, took = fleet.request_counts - request_counts, fleet.clock.time() - began
        hours = max(took, 1.0) / 3600 * len(fleet.nodes)
        return DrillPhase(
            name=name,
            description=description,
            simulated_seconds=took,
            wall_seconds=time.monotonic() - wall,
            tainted=invariants.most,
            budget=invariants.budget,
            sick=len(fleet.sick),
            blocked=len(fleet.blocked),
            quarantines=invariants.quarantines - quarantines,
            reads_per_node_hour=asked["reads"] / hours,
            writes_per_node_hour=asked["writes"] / hours,
            conflicts=asked["conflicts"],
            failures=asked["failures"],
            retries=asked["retries"],
            kills=fleet.kills - kills,
        )


class FleetDrill(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. `seconds`: length of phases in which nothing new happens; `gpus`: of each node."""

    nodes: int = 1000
    fault: str = "driver-rollout"
    budget: int | str = "10%"
    seed: int = 1
    seconds: float = 300.0
    disturbances: Disturbances = Disturbances()
    gpus: int = 8


def run(
    drill: FleetDrill, factory: RemediatorFactory, notify: Callable[[DrillPhase], None] = lambda phase: None
) -> DrillReport:
    """Run the drill, at most until an invariant is violated; `notify` gets every phase when it is over."""
    began = time.monotonic()
    phases: list[DrillPhase] = []
    with SimulatedFleet(factory, nodes=drill.nodes, budget=drill.budget, seed=drill.seed, gpus=drill.gpus) as fleet:
        story = DrillStory(fleet, drill)
        for phase in story.phases():
            phases.append(phase)
            notify(phase)
            if fleet.violations:
                break
    return DrillReport(
        fault=drill.fault,
        nodes=drill.nodes,
        seed=drill.seed,
        budget=fleet.invariants.budget,
        phases=tuple(phases),
        writes=fleet.invariants.writes,
        quarantines=fleet.invariants.quarantines,
        violations=tuple(fleet.violations),
        leaks=story.leaks,
        shortfalls=tuple(story.shortfalls),
        wall_seconds=time.monotonic() - began,
        memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,  # KiB on Linux
    )
