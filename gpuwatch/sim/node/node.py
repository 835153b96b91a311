"""A simulated node: a deterministic function of scenario, seed, speed and injected actions, stepped over a fixed grid.

Two processes that step it, the one that serves the kubelet and the kernel log and the one that answers for the
driver, compute the same node without communication.
"""

import heapq

import msgspec

from gpuwatch.sim.node.actions import NodeAction
from gpuwatch.sim.node.effects import apply
from gpuwatch.sim.node.machine import Machine
from gpuwatch.sim.node.scenario import Scenario

STEP = 0.5
STEPS_PER_SECOND = 20
"""Steps of real time: however fast the node runs, it costs no more than this."""


class SimNode(Machine):
    """A machine with its timeline and physics. `physical` False leaves out watts and degrees."""

    def __init__(self, scenario: Scenario, seed: int = 1, speed: float = 1.0, physical: bool = True) -> None:
        super().__init__(scenario, seed)
        self.physical = physical
        self.step = max(STEP, speed / STEPS_PER_SECOND)
        self._steps = 0
        for index, profiles in scenario.node.mig.items():
            if index < len(self.gpus):
                self.gpus[index].cut(profiles)
        for workload in scenario.workloads:
            self.start(workload)
        for action in scenario.timeline:
            self.schedule(action)
        self._advance_physics(0.0)
        for physics in self.physics:
            physics.settle()

    def advance(self, t: float) -> None:
        """Run to `t`: actions at their exact times, physics on the grid."""
        while True:
            grid = (self._steps + 1) * self.step if self.physical else float("inf")
            due = self._due[0][0] if self._due else float("inf")
            if min(grid, due) > t:
                break
            if due >= grid:
                self._steps += 1
                self.time = grid
                self._advance_physics(grid)
                continue
            action = heapq.heappop(self._due)[2]
            self.time = max(self.time, action.at)
            self._advance_physics(self.time, decide=False)
            self.changes += 1
            apply(self, action)
            left = None if action.times is None else action.times - 1
            if action.every and left != 0:
                again: NodeAction = msgspec.structs.replace(action, at=action.at + action.every, times=left)
                self.schedule(again)  # type: ignore[arg-type]
            self._advance_physics(self.time)
        self.time = max(self.time, t)

    def _advance_physics(self, t: float, *, decide: bool = True) -> None:
        """To `t` with the draw of the last decision; then `decide` on clock and draw for the load of this moment."""
        for physics in self.physics if self.physical else ():
            physics.advance(t)
            if decide:
                physics.decide()
