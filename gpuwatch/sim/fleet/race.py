"""Two nodes race for the last slot of the budget, again and again: each time exactly one may get it."""

import threading
from contextlib import suppress

from gpuwatch.config import RemediationConfig
from gpuwatch.kube.errors import ApiCall
from gpuwatch.sim.fleet.faults import FAULTS
from gpuwatch.sim.fleet.fleet import Fleet
from gpuwatch.sim.fleet.referee import Violation
from gpuwatch.sim.fleet.seat import Factory
from gpuwatch.sim.fleet.story import MORTALITY, BadDay
from gpuwatch.sim.fleet.ward import Ward

SLOTS = 2
QUICK = RemediationConfig(recovery_hold=5.0, min_quarantine=5.0, repeats=1_000_000, max_quarantines_per_day=1_000_000)
FAULT = FAULTS["driver-rollout"]
MEETING_SECONDS = 0.05
ROUND_SECONDS = 120.0
REPAIR_SECONDS = 1800.0


class Race:
    """`rounds` races on a cluster of three nodes and two slots, one of which is taken; the later half on a bad day."""

    def __init__(self, factory: Factory, rounds: int, seed: int, bad_day: BadDay) -> None:
        self._factory, self._rounds, self._seed, self._bad_day = factory, rounds, seed, bad_day
        self.races = 0
        """How many times both asked for the slot at the same moment."""
        self.writes = self.quarantines = 0
        self.violations: list[Violation] = []
        self.shortfalls: list[str] = []

    def run(self) -> None:
        """All rounds, until something goes wrong."""
        with Fleet(self._factory, nodes=3, budget=SLOTS, seed=self._seed, gpus=1, config=QUICK) as fleet:
            taken, *racers = fleet.posts
            ward = Ward(fleet, self._seed)
            fleet.run(ROUND_SECONDS)
            ward.fall_ill(taken, FAULT)
            fleet.run(ROUND_SECONDS, lambda: taken in fleet.referee.tainted)
            for number in range(self._rounds):
                if number == self._rounds // 2:
                    fleet.fail_requests(self._bad_day.api_failures)
                    fleet.mortality.rate = MORTALITY if self._bad_day.kill else 0.0
                self._round(fleet, ward, racers)
                if fleet.violations or self.shortfalls:
                    break
            self.violations = fleet.violations
            self.writes, self.quarantines = fleet.referee.writes, fleet.referee.quarantines

    def _round(self, fleet: Fleet, ward: Ward, racers: list[str]) -> None:
        meeting = threading.Barrier(len(racers))
        for name in racers:
            fleet.posts[name].seat.line.gate = _Gate(meeting)
            ward.fall_ill(name, FAULT)
            fleet.wake(name, 0.0)
        settled = fleet.run(10 * ROUND_SECONDS, lambda: len(fleet.referee.tainted) == SLOTS)
        fleet.run(ROUND_SECONDS)
        self.races += not meeting.broken
        for name in racers:
            ward.repair(name)
        back = fleet.run(REPAIR_SECONDS, lambda: len(fleet.referee.tainted) == len(fleet.referee.held) == 1)
        if not settled:
            self.shortfalls.append("nobody won the race for the last slot")
        if not back:
            self.shortfalls.append("the winner of a race was not given back")


class _Gate:
    """Holds a remediator before its first write to a slot until the other one is there as well."""

    def __init__(self, meeting: threading.Barrier) -> None:
        self._meeting, self._passed = meeting, False

    def __call__(self, call: ApiCall) -> None:
        if call.resource == "leases" and call.verb in ("create", "patch") and not self._passed:
            self._passed = True
            with suppress(threading.BrokenBarrierError):
                self._meeting.wait(MEETING_SECONDS)
