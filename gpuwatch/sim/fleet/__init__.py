"""Many nodes with their remediators before one API server, and a check of every write."""

from gpuwatch.sim.fleet.agent import FAULTS
from gpuwatch.sim.fleet.drill import DrillPhase, DrillReport, FleetDrill, SlotRace, run
from gpuwatch.sim.fleet.faults import FaultInjector
from gpuwatch.sim.fleet.fleet import Disturbances, SimulatedFleet
from gpuwatch.sim.fleet.node import FleetRemediator, NodeContext
from gpuwatch.sim.fleet.scopes import ScopeCost, ScopeReport, TracedFault, compare, imagined, read_trace

__all__ = [
    "FAULTS",
    "Disturbances",
    "DrillPhase",
    "DrillReport",
    "FaultInjector",
    "FleetDrill",
    "FleetRemediator",
    "NodeContext",
    "ScopeCost",
    "ScopeReport",
    "SimulatedFleet",
    "SlotRace",
    "TracedFault",
    "compare",
    "imagined",
    "read_trace",
    "run",
]
