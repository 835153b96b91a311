"""The story of a fleet: all is well, then everything falls ill within a minute, is repaired, and again on a bad day."""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpuwatch.sim.fleet.faults import Fault
from gpuwatch.sim.fleet.fleet import Fleet
from gpuwatch.sim.fleet.report import Phase
from gpuwatch.sim.fleet.ward import Ward

START_SECONDS = 90.0
STRIKE_SECONDS = 60.0
AFTER_SECONDS = 180.0
"""Longer than a remediator that was killed is away, or one that met failures keeps still."""
REPAIR_LIMIT = 3 * 3600.0
"""By then everything must have been given back."""

KILLED_ON = 300.0
"""Seconds for which remediators are still killed while nodes recover, each of which takes minutes without a break."""

REST_WRITES_PER_HOUR = 12.0
"""Of each node while nothing happens: one in five minutes."""

MORTALITY = 0.01
"""The chance of a kill at each point where there can be one; about one in twenty minutes for a node that waits."""


class BadDay(NamedTuple):
    """What goes wrong beside the GPUs: a share of API calls, and remediators that are killed."""

    api_failures: float = 0.0
    kill: bool = False


class Story:
    """Told once about one fleet. `seconds`: the length of the phases in which nothing new happens."""

    def __init__(self, fleet: Fleet, ward: Ward, fault: Fault, seconds: float, bad_day: BadDay | None) -> None:
        self._ward = ward
        self._fleet, self._fault, self._seconds, self._bad_day = fleet, fault, seconds, bad_day
        self.leaks: tuple[str, ...] = ()
        self.shortfalls: list[str] = []

    def tell(self) -> Iterator[Phase]:
        """Live through it, phase by phase, until something is violated."""
        for phase in self._phases():
            yield phase
            if self._fleet.violations:
                return

    def _phases(self) -> Iterator[Phase]:
        fleet = self._fleet
        yield self._phase("start", "all remediators start within a minute", START_SECONDS)
        rest = self._phase("rest", "all is well", self._seconds)
        if rest.writes_per_node_hour > REST_WRITES_PER_HOUR + 0.05:
            self.shortfalls.append(f"at rest each node writes {rest.writes_per_node_hour:.1f} times an hour")
        yield rest
        before = fleet.portraits()
        yield from self._wave("", None)
        self.leaks += fleet.leaks(before)
        if self._bad_day is not None and not (self.leaks or self.shortfalls):
            yield from self._wave(" again", self._bad_day)
            self.leaks += fleet.leaks(before)

    def _wave(self, again: str, bad_day: BadDay | None) -> Iterator[Phase]:
        fleet, harder = self._fleet, "" if bad_day is None else f", {_told(bad_day)}"
        if bad_day is not None:
            fleet.fail_requests(bad_day.api_failures)
            fleet.mortality.rate = MORTALITY if bad_day.kill else 0.0
        self._ward.strike(self._fault, STRIKE_SECONDS)
        yield self._phase(f"fault{again}", self._fault.words + harder, 2 * STRIKE_SECONDS)
        yield self._phase(f"waiting{again}", "the fault stays; who has no slot waits for one", self._seconds)
        if bad_day is None:
            self._expect_full_budget()
        self._ward.mend(STRIKE_SECONDS)
        fleet.at(KILLED_ON, fleet.spare)
        yield self._phase(f"repair{again}", f"the fault is repaired{harder}", REPAIR_LIMIT, self._all_given_back)
        fleet.fail_requests(0.0)
        fleet.spare()
        yield self._phase(f"after{again}", "all is well again", AFTER_SECONDS)

    def _expect_full_budget(self) -> None:
        fleet = self._fleet
        wanted = min(fleet.referee.budget, len(fleet.sick)) if self._fault.taints else 0
        tainted = len(fleet.referee.tainted)
        if tainted != wanted:
            self.shortfalls.append(f"{tainted} nodes were tainted, {wanted} should have been")

    def _all_given_back(self) -> bool:
        referee = self._fleet.referee
        return not (self._fleet.sick or referee.tainted or referee.held)

    def _phase(self, name: str, words: str, seconds: float, until: Callable[[], bool] = lambda: False) -> Phase:
        fleet, referee = self._fleet, self._fleet.referee
        began, tally, kills = fleet.clock.time(), fleet.tally, fleet.kills
        quarantines, wall = referee.quarantines, time.monotonic()
        referee.most = len(referee.tainted)
        fleet.run(seconds, until)
        asked, took = fleet.tally - tally, fleet.clock.time() - began
        hours = max(took, 1.0) / 3600 * len(fleet.posts)
        return Phase(
            name=name,
            words=words,
            simulated_seconds=took,
            wall_seconds=time.monotonic() - wall,
            tainted=referee.most,
            budget=referee.budget,
            sick=len(fleet.sick),
            blocked=len(fleet.blocked),
            quarantines=referee.quarantines - quarantines,
            reads_per_node_hour=asked.reads / hours,
            writes_per_node_hour=asked.writes / hours,
            conflicts=asked.conflicts,
            failures=asked.failures,
            retries=asked.retries,
            kills=fleet.kills - kills,
        )


def _told(bad_day: BadDay) -> str:
    parts = []
    if bad_day.api_failures:
        parts.append(f"{bad_day.api_failures:.0%} of API calls fail")
    if bad_day.kill:
        parts.append("remediators are killed at random points")
    return " and ".join(parts)
