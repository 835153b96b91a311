"""What the tuner of a node would say: which GPUs may be tuned is judged, what it does with those is made up.

A simulated node is looked at every few seconds at best, and its caps would have to be felt by its work; so a search
takes its usual time here, and finds what is usual.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from dashboards.history.fleet import BEGIN, MINUTE, NODES, Node
from gpuwatch.model.event import Result
from gpuwatch.model.snapshot import Gpu
from gpuwatch.model.view import View
from gpuwatch.sim.node import noise
from gpuwatch.tuning.gates.eligibility import GateHistory, judge
from gpuwatch.tuning.model.setting import Actuation, Setting, Trigger
from gpuwatch.tuning.model.status import BudgetState, GpuTuning, Obstacle, ObstacleReason, TunerState, TuningState

BOUND = 0.05
OBSERVED, FOUND = 60.0, 540.0
"""Seconds with a GPU's work after which it is searched, and after which its cap is held."""
HOLD, VERIFY = 1800.0, 80.0
STEP_HERTZ = 15e6

BUDGET = NODES[0]
"""The node that has a power budget."""
RIVAL = NODES[3], 5, BEGIN + 50 * MINUTE
"""A node, a GPU of it, and from when on another program has locked its clocks."""
DIED = NODES[4], BEGIN + 65 * MINUTE
"""A node, and when its tuner was killed, so that the guard gave its settings back."""


class Imagined:
    """The tuner of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._history: GateHistory = {}
        self._since: dict[str, float] = {}
        self._energy: dict[str, float] = {}
        self._saved: dict[str, float] = {}
        self._changes = self._returns = 0

    def see(self, view: View) -> TunerState:
        """One cycle."""
        at = view.snapshot.at
        judged, self._history = judge(view, fresh=True, now=at, history=self._history)
        samples = {gpu.identity.uuid: gpu for gpu in view.snapshot.gpus}
        gpus = tuple(self._tuned(gpu, samples.get(gpu.uuid), at) for gpu in judged)
        enforces = self._node.tuning == "enforce"
        died = (self._node, at >= DIED[1]) == (DIED[0], True)
        return TunerState(
            mode=self._node.tuning,
            at=at,
            guard=True if enforces else None,
            consents_at=at - at % 15.0,
            gpus=gpus,
            view_at=at,
            budget=_budget(view) if self._node.name == BUDGET.name else None,
            actuation=Actuation(
                settings=tuple(_settings(gpus, at)),
                restores={Trigger.TUNER: self._returns, Trigger.GUARD: 3 * died},
            ),
            actions={("locked_clocks", Result.DONE): self._changes},
        )

    def _tuned(self, gpu: GpuTuning, sample: Gpu | None, at: float) -> GpuTuning:
        if (self._node, gpu.index) == RIVAL[:2] and at >= RIVAL[2]:
            obstacle = Obstacle(reason=ObstacleReason.CONFLICT, message="its clock is held down, and nothing says why")
            gpu = replace(gpu, state=TuningState.REFUSED, obstacles=(obstacle, *gpu.obstacles))
        joules = self._drawn(gpu, sample)
        if gpu.state is not TuningState.ELIGIBLE or sample is None or self._node.tuning != "enforce":
            held = self._since.pop(gpu.uuid, at) < at - FOUND
            self._returns += held
            return replace(gpu, joules_saved=self._saved.get(gpu.uuid, 0.0))
        if gpu.uuid not in self._since:
            self._since[gpu.uuid] = at
            self._changes += 1
        found = _course(gpu, sample, at - self._since[gpu.uuid])
        if found.saved is not None and found.clock_cap is not None:
            self._saved[gpu.uuid] = self._saved.get(gpu.uuid, 0.0) + joules * found.saved / (1 - found.saved)
        return replace(found, joules_saved=self._saved.get(gpu.uuid, 0.0))

    def _drawn(self, gpu: GpuTuning, sample: Gpu | None) -> float:
        """Joules since the cycle before."""
        now = sample.power.energy if sample else None
        if now is None:
            return 0.0
        before, self._energy[gpu.uuid] = self._energy.get(gpu.uuid, now), now
        return max(0.0, now - before)


def _course(gpu: GpuTuning, sample: Gpu, seconds: float) -> GpuTuning:
    """What is done with a GPU that has been at the same work for so long."""
    luck = noise.uniform(noise.key("tuning", gpu.uuid), 0)
    top = sample.clocks.graphics_max or 0.0
    cap = top * (0.7 + 0.18 * luck) // STEP_HERTZ * STEP_HERTZ
    known = replace(gpu, bound=BOUND, owners=("its pod",))
    if seconds < OBSERVED:
        return replace(known, state=TuningState.OBSERVING)
    if seconds < FOUND:
        reduced = int(seconds / 5) % 2 == 1
        return replace(known, state=TuningState.SEARCHING, clock_cap=cap if reduced else None)
    verifies = (seconds - FOUND) % (HOLD + VERIFY) > HOLD
    return replace(
        known,
        state=TuningState.VERIFYING if verifies else TuningState.HOLDING,
        clock_cap=cap,
        slowdown=BOUND * (0.6 + 0.2 * luck),
        slowdown_upper=BOUND * (0.8 + 0.18 * luck),
        saved=0.08 + 0.1 * (1 - luck),
    )


def _settings(gpus: tuple[GpuTuning, ...], at: float) -> Iterator[Setting]:
    for gpu in gpus:
        if gpu.clock_cap is not None:
            yield Setting(
                uuid=gpu.uuid,
                knob="locked_clocks",
                original=None,
                applied=(gpu.clock_cap,),
                at=at,
                boot_id="imagined",
                driver="imagined",
            )


def _budget(view: View) -> BudgetState:
    """One that all limits fit."""
    limits = sum(gpu.power.limit_enforced or 0.0 for gpu in view.snapshot.gpus)
    draw = sum(gpu.power.average or 0.0 for gpu in view.snapshot.gpus)
    return BudgetState(budget=6000.0, how="unlimited", message="all limits fit 6000 W", limits=limits, draw=draw)
