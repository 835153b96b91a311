"""The cost of faults of one GPU by the scope of the quarantine: the same faults under node scope and under GPU scope.

Real remediators at one API server act on each fault and on each repair; the days in between, without events, are
skipped. A simulated device plugin takes the sick GPU out some seconds later, and the kubelet's list then lacks it.
"""

import csv
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpuwatch.config import RemediationConfig
from gpuwatch.config.named_file import read_named_file
from gpuwatch.model.errors import UsageError
from gpuwatch.model.finding import Scope
from gpuwatch.sim.fleet.agent import FleetFault, Symptom
from gpuwatch.sim.fleet.faults import FaultInjector
from gpuwatch.sim.fleet.fleet import Disturbances, SimulatedFleet
from gpuwatch.sim.fleet.invariants import Violation
from gpuwatch.sim.fleet.node import RemediatorFactory
from gpuwatch.sim.kubeapi.objects import GPU
from gpuwatch.sim.kubeapi.store import CommittedWrite

DAY = 86400.0
START_SECONDS = 90.0
PLUGIN_SECONDS = (5.0, 20.0)
"""After a fault: the plugin detects it, the kubelet's list and the Node's status lack the GPU, the agent asks again."""
RESTART_SECONDS = (60.0, 300.0)
"""After a repair: the operator restarts the plugin, which offers the GPU again."""
END_SECONDS = 180.0
"""After each node's last step: a condition is True again after STEADY_SECONDS without a fault, and the skipped days
do not count.
"""
SETTLE_SECONDS = 12 * 3600.0
"""Time within which a fault is acted on and a repaired node released, also where half of the requests fail."""

GPU_CLASS = "GPU"
SICK = FleetFault("one GPU asks for a reset", Symptom(recovery_action=1), gpus=1)
MAX_BYTES = 64 << 20
COLUMNS = ("node", "start_days", "end_days", "class")


class TracedFault(NamedTuple):
    """One fault of a node; times in seconds since the first. Only those of class `GPU` concern one GPU alone."""

    node: str
    start: float
    end: float
    kind: str


class ScopeCost(msgspec.Struct, frozen=True, kw_only=True):
    """GPU-hours lost to the faults of one class. `node_hours`: hours for which nodes were sick."""

    kind: str
    faults: int
    node_hours: float
    node_scope: float
    gpu_scope: float

    @property
    def released(self) -> float:
        """The share of node scope's GPU-hours that GPU scope leaves in service."""
        return 1 - self.gpu_scope / self.node_scope if self.node_scope else 0.0


class ScopeReport(msgspec.Struct, frozen=True, kw_only=True):
    """`shortfalls`: faults that were not acted on, and healthy nodes that are held. `held_seconds`: the longest
    time that a repaired node was held: the hold before its release, and delays by failing requests.
    """

    nodes: int
    gpus: int
    seed: int
    api_failures: float
    costs: tuple[ScopeCost, ...] = ()
    held_seconds: float = 0.0
    violations: tuple[Violation, ...] = ()
    shortfalls: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether every invariant held, every fault was acted on and every node released."""
        return not (self.violations or self.shortfalls)


def read_trace(path: Path) -> tuple[TracedFault, ...]:
    """Faults of a CSV file with the columns `node`, `start_days`, `end_days` and `class`; other columns are ignored.

    Raises:
        UsageError: it cannot be read, or has another form; the error names the line.
    """
    text = read_named_file(str(path), "trace of faults", "--trace", MAX_BYTES)
    rows = csv.DictReader(text.decode(errors="replace").splitlines())
    if missing := [name for name in COLUMNS if name not in (rows.fieldnames or ())]:
        raise UsageError(f"{path} is no trace of faults", f"it has no column {missing[0]}", f"use {', '.join(COLUMNS)}")
    found = []
    for row in rows:
        try:
            start, end = float(row["start_days"]) * DAY, float(row["end_days"]) * DAY
        except (TypeError, ValueError):
            start, end = 1.0, 0.0
        if not 0 <= start <= end < 1e6 * DAY or not row["node"]:
            why = "start_days and end_days must be numbers, the end not before the start"
            raise UsageError(f"line {rows.line_num} of {path} is no fault", why, "correct or delete it")
        found.append(TracedFault(row["node"], start, end, row["class"] or ""))
    if not found:
        raise UsageError(f"{path} has no fault", "nothing can be replayed", "give a file with at least one")
    return tuple(found)


def imagined(nodes: int, seed: int) -> tuple[TracedFault, ...]:
    """A month of made-up faults: of a GPU on one node in ten, of the node on one in forty."""
    chance = random.Random(f"faults {seed}")  # noqa: S311
    found = []
    for kind, share in ((GPU_CLASS, 0.1), ("Node", 0.025)):
        for node in chance.sample(range(nodes), max(1, round(share * nodes))):
            start = chance.uniform(0, 30 * DAY)
            found.append(TracedFault(str(node), start, start + chance.lognormvariate(11.5, 1.5), kind))
    return tuple(found)


def compare(
    factory: RemediatorFactory,
    faults: Sequence[TracedFault],
    *,
    seed: int = 1,
    api_failures: float = 0.0,
    gpus: int = 8,
    nodes: int = 0,
    budget: int | str = "10%",
    notify: Callable[[str], None] = lambda message: None,
) -> ScopeReport:
    """Replay the faults of GPUs under both scopes; those of nodes cost the same under both, and are only counted.

    `nodes`: at least so many; nodes without a fault must not change.
    """
    count = max(nodes, len({fault.node for fault in faults}))
    if isinstance(budget, str):  # as a number: two list requests fewer that could fail
        budget = max(1, int(count * float(budget.rstrip("%")) / 100))
    replays = []
    for scope in ("node", "gpu"):
        notify(f"{scope} scope: {sum(fault.kind == GPU_CLASS for fault in faults)} faults on {count} nodes")
        replay = _Replay(factory, faults, scope, seed=seed, gpus=gpus, nodes=count, budget=budget)
        replay.run(Disturbances(api_failures=api_failures))
        replays.append(replay)
    by_kind: dict[str, list[TracedFault]] = defaultdict(list)
    for fault in faults:
        by_kind[fault.kind].append(fault)
    costs = []
    for kind, rows in sorted(by_kind.items(), key=lambda entry: (entry[0] != GPU_CLASS, entry[0])):
        hours = sum(fault.end - fault.start for fault in rows) / 3600
        lost = [hours * gpus] * 2 if kind != GPU_CLASS else [replay.lost / 3600 for replay in replays]
        costs.append(ScopeCost(kind=kind, faults=len(rows), node_hours=hours, node_scope=lost[0], gpu_scope=lost[1]))
    return ScopeReport(
        nodes=count,
        gpus=gpus,
        seed=seed,
        api_failures=api_failures,
        costs=tuple(costs),
        held_seconds=max(replay.held for replay in replays),
        violations=tuple(violation for replay in replays for violation in replay.violations),
        shortfalls=tuple(text for replay in replays for text in replay.shortfalls),
    )


class _Replay:
    """The faults of GPUs under one scope. `lost`: GPU-seconds; `held`: seconds for which a repaired node was held."""

    def __init__(
        self,
        factory: RemediatorFactory,
        faults: Sequence[TracedFault],
        scope: Scope,
        *,
        seed: int,
        gpus: int,
        nodes: int,
        budget: int | str,
    ) -> None:
        self._scope: Scope = scope
        config = RemediationConfig(
            scope=dict.fromkeys(("recovery_action", "xid_fatal", "xid_contained"), scope),
            repeats=1_000_000,
            max_quarantines_per_day=1_000_000,
        )
        self._fleet = SimulatedFleet(factory, nodes=nodes, budget=budget, seed=seed, gpus=gpus, config=config)
        self._gpus, self._chance = gpus, random.Random(f"replay {seed}")  # noqa: S311
        self._faults = [fault for fault in faults if fault.kind == GPU_CLASS]
        self.violations = self._fleet.violations
        self.lost = self.held = 0.0
        self.shortfalls: list[str] = []
        self._since: dict[str, tuple[float, int]] = {}

    def run(self, disturbances: Disturbances) -> None:
        """Replay all faults in the order of their times."""
        with self._fleet as fleet:
            self._injector = FaultInjector(fleet, 1)
            fleet.cluster.observers.append(self._count)
            traced = {fault.node for fault in self._faults}
            names = dict(zip(sorted(traced, key=lambda n: (len(n), n)), fleet.nodes, strict=False))
            for member in fleet.nodes.values():
                member.context.agent.withheld = ()
            fleet.run(START_SECONDS)
            before = fleet.node_states()
            fleet.disturb(disturbances)
            began = fleet.clock.time()
            for at, name, is_sick in _moments(self._faults, names):
                fleet.jump(began + at)
                self._strike(name) if is_sick else self._repair(name)
                if fleet.violations:
                    return
            fleet.disturb(Disturbances())
            fleet.run_all(START_SECONDS)
            fleet.run(END_SECONDS)
            for name in list(self._since):
                self._account(name, 0)
            self.shortfalls += [f"{self._scope} scope: {leak}" for leak in fleet.leaks(before)]

    def _strike(self, name: str) -> None:
        fleet, invariants = self._fleet, self._fleet.invariants
        self._injector.inject_into(name, SICK)
        self._account(name, 1)
        fleet.at(self._chance.uniform(*PLUGIN_SECONDS), lambda: self._withhold(name, 1))
        wanted = invariants.confined if self._scope == "gpu" else invariants.tainted
        if (
            not fleet.run(SETTLE_SECONDS, lambda: name in wanted or fleet.nodes[name].is_blocked)
            and not fleet.violations
        ):
            self.shortfalls.append(f"{self._scope} scope: {name} was not acted on")

    def _repair(self, name: str) -> None:
        fleet, invariants = self._fleet, self._fleet.invariants
        self._injector.repair(name)
        fleet.at(self._chance.uniform(*RESTART_SECONDS), lambda: self._withhold(name, 0))
        well = fleet.clock.time()
        if not fleet.run(SETTLE_SECONDS, lambda: name not in invariants.tainted | invariants.confined):
            self.shortfalls.append(f"{self._scope} scope: {name} is held though it is healthy")
        self.held = max(self.held, fleet.clock.time() - well)

    def _withhold(self, name: str, gpus: int) -> None:
        """The plugin takes so many GPUs out, the first ones: the kubelet's list and the Node's status lack them."""
        fleet, agent = self._fleet, self._fleet.nodes[name].context.agent
        node = fleet.cluster.get("nodes", "", name)
        if node is None:
            return
        allocatable = {**node["status"]["allocatable"], GPU: str(self._gpus - gpus)}
        fleet.cluster.put("nodes", {**node, "status": {**node["status"], "allocatable": allocatable}})
        agent.withheld, agent.has_news = agent.uuids[:gpus], True
        self._account(name, self._gpus if name in fleet.invariants.tainted else gpus)
        fleet.wake(name, 1.0)

    def _count(self, write: CommittedWrite) -> None:
        """After each write: a tainted node has lost all its GPUs, any other one the GPU that is sick or not offered."""
        if write.key.resource == "nodes":
            name = write.key.name
            member = self._fleet.nodes[name]
            is_out = member.fault is not None or bool(member.context.agent.withheld)
            self._account(name, self._gpus if name in self._fleet.invariants.tainted else int(is_out))

    def _account(self, name: str, gpus: int) -> None:
        now = self._fleet.clock.time()
        since, before = self._since.get(name, (now, 0))
        self.lost += before * (now - since)
        self._since[name] = now, gpus


def _moments(faults: Iterable[TracedFault], names: dict[str, str]) -> Iterator[tuple[float, str, bool]]:
    """Times at which a node becomes sick (True) or is repaired. A fault during another of its node is part of that."""
    open_until: dict[str, float] = {}
    spans = []
    for fault in sorted(faults, key=lambda fault: fault.start):
        start = max(fault.start, open_until.get(fault.node, 0.0))
        if fault.end > start:
            open_until[fault.node] = fault.end
            spans.append((start, fault.end, names[fault.node]))
    moments = [(start, name, True) for start, _, name in spans] + [(end, name, False) for _, end, name in spans]
    yield from sorted(moments)
