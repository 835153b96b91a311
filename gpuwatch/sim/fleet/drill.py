"""The whole drill: the story of a fleet, races for the last slot, and the report of both."""

import time
from collections.abc import Callable

import msgspec

from gpuwatch.sim.fleet.faults import FAULTS
from gpuwatch.sim.fleet.fleet import Fleet
from gpuwatch.sim.fleet.race import Race
from gpuwatch.sim.fleet.report import Phase, Report, peak_memory
from gpuwatch.sim.fleet.seat import Factory
from gpuwatch.sim.fleet.story import BadDay, Story
from gpuwatch.sim.fleet.ward import Ward


class Drill(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be gone through. `seconds`: how long nothing new happens. `rounds`: races; `gpus`: of each node."""

    nodes: int = 1000
    fault: str = "driver-rollout"
    budget: int | str = "10%"
    seed: int = 1
    seconds: float = 300.0
    bad_day: BadDay = BadDay()
    rounds: int = 0
    gpus: int = 8


def run(drill: Drill, factory: Factory, tell: Callable[[Phase], None] = lambda phase: None) -> Report:
    """Go through it; `tell` hears of every phase when it is over."""
    began = time.monotonic()
    again = drill.bad_day if any(drill.bad_day) else None
    phases: list[Phase] = []
    with Fleet(factory, nodes=drill.nodes, budget=drill.budget, seed=drill.seed, gpus=drill.gpus) as fleet:
        story = Story(fleet, Ward(fleet, drill.seed), FAULTS[drill.fault], drill.seconds, again)
        for phase in story.tell():
            phases.append(phase)
            tell(phase)
    race = Race(factory, drill.rounds, drill.seed, drill.bad_day)
    if drill.rounds and not fleet.violations:
        race.run()
    return Report(
        fault=drill.fault,
        nodes=drill.nodes,
        seed=drill.seed,
        budget=fleet.referee.budget,
        phases=tuple(phases),
        races=race.races,
        writes=fleet.referee.writes + race.writes,
        quarantines=fleet.referee.quarantines + race.quarantines,
        violations=(*fleet.violations, *race.violations),
        leaks=story.leaks,
        shortfalls=(*story.shortfalls, *race.shortfalls),
        wall_seconds=time.monotonic() - began,
        memory_bytes=peak_memory(),
    )
