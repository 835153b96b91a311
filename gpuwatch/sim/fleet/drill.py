"""The drill of `gpuwatch sim fleet`: all is well, a fault hits many nodes within a minute and is repaired, then the
same again with disturbances, then races for the last slot; and the report of it all.
"""

import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec

from gpuwatch.config import RemediationConfig
from gpuwatch.kube.errors import ApiCall
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
    """429, 5xx and connections that broke."""
    retries: int
    kills: int


class DrillReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole run. `races`: how often two nodes raced for the last slot; `writes`: how many the invariants checked.

    `leaks`: what was left behind although all was well again; `shortfalls`: what should have been done and was not.
    """

    fault: str
    nodes: int
    seed: int
    budget: int
    phases: tuple[DrillPhase, ...] = ()
    races: int = 0
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
"""Longer than a remediator that was killed is away, or one that met failures keeps still."""
REPAIR_LIMIT = 3 * 3600.0
"""By then every node must have been released."""

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
        """Each phase when it is over."""
        fleet = self._fleet
        yield self._phase("start", "all remediators start within a minute", START_SECONDS)
        rest = self._phase("rest", "all is well", self._drill.seconds)
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
        yield self._phase(f"after{again}", "all is well again", AFTER_SECONDS)

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


SLOTS = 2
QUICK = RemediationConfig(recovery_hold=5.0, min_quarantine=5.0, repeats=1_000_000, max_quarantines_per_day=1_000_000)
FAULT = FAULTS["driver-rollout"]
MEETING_SECONDS = 30.0
DISTURBED_MEETING_SECONDS = 0.05
"""How long one node waits for the other; while requests fail and remediators are killed, it may never come."""
ROUND_SECONDS = 120.0
REPAIR_SECONDS = 1800.0


class SlotRace:
    """Races of two nodes for the second of two slots, `rounds` times; the later half with disturbances."""

    def __init__(self, factory: RemediatorFactory, rounds: int, seed: int, disturbances: Disturbances) -> None:
        self._factory, self._rounds, self._seed, self._disturbances = factory, rounds, seed, disturbances
        self.races = 0
        """How many times both asked for the slot at the same moment."""
        self.writes = self.quarantines = 0
        self.violations: list[Violation] = []
        self.shortfalls: list[str] = []

    def run(self) -> None:
        """All rounds, until something goes wrong."""
        with SimulatedFleet(self._factory, nodes=3, budget=SLOTS, seed=self._seed, gpus=1, config=QUICK) as fleet:
            taken, *racers = fleet.nodes
            injector = FaultInjector(fleet, self._seed)
            fleet.run(ROUND_SECONDS)
            injector.inject_into(taken, FAULT)
            fleet.run(ROUND_SECONDS, lambda: taken in fleet.invariants.tainted)
            for number in range(self._rounds):
                if number == self._rounds // 2:
                    fleet.disturb(self._disturbances)
                patience = MEETING_SECONDS if number < self._rounds // 2 else DISTURBED_MEETING_SECONDS
                self._round(fleet, injector, racers, patience)
                if fleet.violations or self.shortfalls:
                    break
            self.violations = fleet.violations
            self.writes, self.quarantines = fleet.invariants.writes, fleet.invariants.quarantines

    def _round(self, fleet: SimulatedFleet, injector: FaultInjector, racers: list[str], patience: float) -> None:
        meeting = threading.Barrier(len(racers))
        for name in racers:
            fleet.nodes[name].context.transport.gate = _StartLine(meeting, patience)
            injector.inject_into(name, FAULT)
            fleet.wake(name, 0.0)
        settled = fleet.run(10 * ROUND_SECONDS, lambda: len(fleet.invariants.tainted) == SLOTS)
        fleet.run(ROUND_SECONDS)
        self.races += not meeting.broken
        for name in racers:
            injector.repair(name)
        back = fleet.run(REPAIR_SECONDS, lambda: len(fleet.invariants.tainted) == len(fleet.invariants.held) == 1)
        if not settled:
            self.shortfalls.append("no node won the race for the last slot")
        if not back:
            self.shortfalls.append("the winner of a race was not released")


class _StartLine:
    """Holds a remediator before its first write to a slot until the other one is there as well."""

    def __init__(self, meeting: threading.Barrier, patience: float) -> None:
        self._meeting, self._patience, self._passed = meeting, patience, False

    def __call__(self, call: ApiCall) -> None:
        if call.resource == "leases" and call.verb in ("create", "patch") and not self._passed:
            self._passed = True
            with suppress(threading.BrokenBarrierError):
                self._meeting.wait(self._patience)


class FleetDrill(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. `seconds`: length of phases in which nothing new happens; `rounds`: races; `gpus`: of each node."""

    nodes: int = 1000
    fault: str = "driver-rollout"
    budget: int | str = "10%"
    seed: int = 1
    seconds: float = 300.0
    disturbances: Disturbances = Disturbances()
    rounds: int = 0
    gpus: int = 8


def run(
    drill: FleetDrill, factory: RemediatorFactory, notify: Callable[[DrillPhase], None] = lambda phase: None
) -> DrillReport:
    """Run it until an invariant is violated; `notify` gets every phase when it is over."""
    began = time.monotonic()
    phases: list[DrillPhase] = []
    with SimulatedFleet(factory, nodes=drill.nodes, budget=drill.budget, seed=drill.seed, gpus=drill.gpus) as fleet:
        story = DrillStory(fleet, drill)
        for phase in story.phases():
            phases.append(phase)
            notify(phase)
            if fleet.violations:
                break
    race = SlotRace(factory, drill.rounds, drill.seed, drill.disturbances)
    if drill.rounds and not fleet.violations:
        race.run()
    return DrillReport(
        fault=drill.fault,
        nodes=drill.nodes,
        seed=drill.seed,
        budget=fleet.invariants.budget,
        phases=tuple(phases),
        races=race.races,
        writes=fleet.invariants.writes + race.writes,
        quarantines=fleet.invariants.quarantines + race.quarantines,
        violations=(*fleet.violations, *race.violations),
        leaks=story.leaks,
        shortfalls=(*story.shortfalls, *race.shortfalls),
        wall_seconds=time.monotonic() - began,
        memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,  # KiB on Linux
    )
