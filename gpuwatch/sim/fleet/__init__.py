"""A thousand nodes with their remediators before one API server, and a referee that sees every write."""

from gpuwatch.sim.fleet.drill import Drill, run
from gpuwatch.sim.fleet.faults import FAULTS, Fault
from gpuwatch.sim.fleet.fleet import Fleet
from gpuwatch.sim.fleet.race import Race
from gpuwatch.sim.fleet.referee import Violation
from gpuwatch.sim.fleet.report import Phase, Report
from gpuwatch.sim.fleet.seat import Factory, Remediator, Seat
from gpuwatch.sim.fleet.story import BadDay, Story
from gpuwatch.sim.fleet.ward import Ward

__all__ = [
    "FAULTS",
    "BadDay",
    "Drill",
    "Factory",
    "Fault",
    "Fleet",
    "Phase",
    "Race",
    "Remediator",
    "Report",
    "Seat",
    "Story",
    "Violation",
    "Ward",
    "run",
]
