"""Two real remediators that ask for the last slot of a budget at the same moment, again and again."""

import threading
from contextlib import suppress

from gpuwatch.config import RemediationConfig
from gpuwatch.kube.errors import ApiCall
from gpuwatch.sim.fleet.agent import FAULTS
from gpuwatch.sim.fleet.faults import FaultInjector
from gpuwatch.sim.fleet.fleet import Disturbances, SimulatedFleet
from gpuwatch.sim.fleet.invariants import Violation
from gpuwatch.sim.fleet.node import RemediatorFactory

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
