"""A cluster of simulated nodes, each with a remediator of its own, at one API server over real HTTP.

Simulated time stops while all due remediators take their step, several at once on real threads, so that their races
are real. Then it jumps to the next due step.
"""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import NamedTuple, Self

import msgspec

from gpuwatch.config import BudgetConfig, RemediationConfig
from gpuwatch.kube.transport import Transport
from gpuwatch.model.snapshot import Host
from gpuwatch.sim.fleet.agent import SimulatedAgent
from gpuwatch.sim.fleet.invariants import InvariantChecker, Violation, visible_state
from gpuwatch.sim.fleet.node import (
    FleetClock,
    FleetNode,
    Killed,
    NodeContext,
    NodeLedger,
    NodeTransport,
    RandomKills,
    RemediatorFactory,
)
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.faults import ApiFaults
from gpuwatch.sim.kubeapi.messages import Object
from gpuwatch.sim.kubeapi.server import SimulatedApiServer

USER = "gpuwatch"
NAMESPACE = "gpuwatch"
GPU_NODES = "nvidia.com/gpu.present=true"
START = 1_790_000_000.0

THREADS = 4
"""Remediators that step at once."""

TICK = 0.5
"""Seconds: remediators that are due within the same tick step at the same moment."""

RESTART_SECONDS = (1.0, 60.0)
"""Between the kill of a remediator and the first step of the next."""

KILL_RATE = 0.01
"""The chance of a kill at each checkpoint: about one kill in twenty minutes on a node that waits."""


class Disturbances(NamedTuple):
    """Failures beside those of GPUs: a share of the API calls, and whether remediators are killed."""

    api_failures: float = 0.0
    kill: bool = False


class SimulatedFleet:
    """Runs inside a `with` block: an API server, `nodes` nodes and a remediator that `factory` makes for each.

    `budget`: nodes that may be tainted at once, a number or a percentage. `config`: other settings of the remediators.
    """

    def __init__(
        self,
        factory: RemediatorFactory,
        *,
        nodes: int,
        budget: int | str,
        seed: int = 1,
        gpus: int = 8,
        config: RemediationConfig | None = None,
    ) -> None:
        self.clock = FleetClock(START)
        self.cluster = SimulatedCluster(self.clock, seed=seed)
        self.random_kills = RandomKills(seed)
        self._factory, self._gpus, self._seed = factory, gpus, seed
        self._chance = random.Random(f"fleet {seed}")  # noqa: S311
        share = BudgetConfig(max_unavailable=budget, namespace=NAMESPACE, node_selector=GPU_NODES)
        self.config = msgspec.structs.replace(config or RemediationConfig(), mode="enforce", budget=share)
        if isinstance(budget, str) and budget.endswith("%"):
            share_of_nodes = float(budget[:-1])
            allowed = max(1, int(nodes * share_of_nodes / 100)) if share_of_nodes else 0
        else:
            allowed = int(budget)
        self.invariants = InvariantChecker(self.clock, USER, allowed, self.config.recovery_hold, self._well_for)
        self.violations = self.invariants.violations
        self.nodes: dict[str, FleetNode] = {}
        self._count = nodes
        self._queue: list[tuple[float, str]] = []
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        self.cluster.add_namespace(NAMESPACE)
        self.cluster.add_user(USER)
        server = self._undo.enter_context(SimulatedApiServer(self.cluster))
        shared = Transport(str(server.kubeconfig(USER)), connections=THREADS)
        self._undo.callback(shared.close)
        self._pool = self._undo.enter_context(ThreadPoolExecutor(THREADS, "fleet"))
        for number in range(self._count):
            name = f"node-{number:04}"
            boot, machine = f"boot-1-of-{name}", f"machine-of-{name}"
            labels = {"nvidia.com/gpu.present": "true", "example.com/rack": str(number % 40)}
            node = self.cluster.add_node(name, machine, boot, labels, self._gpus)
            if number % 3 == 0:  # a taint of another controller
                theirs = [{"key": "example.com/team", "value": "research", "effect": "NoSchedule"}]
                self.cluster.put("nodes", {**node, "spec": {**node["spec"], "taints": theirs}})
            host = Host(boot_id=boot, machine_id=machine, system_uuid=machine)
            context = NodeContext(
                node=name,
                namespace=NAMESPACE,
                config=self.config,
                agent=SimulatedAgent(name, host, self.clock, gpus=self._gpus, seed=self._seed),
                transport=NodeTransport(shared, self.random_kills.checkpoint),
                ledger=NodeLedger(self.random_kills.checkpoint),
                clock=self.clock,
                chance=random.Random(f"{self._seed} {name}"),  # noqa: S311
                checkpoint=lambda _: self.random_kills.checkpoint(),
            )
            self.nodes[name] = FleetNode(context, self.clock.time())
            self._schedule(self.nodes[name], self.clock.time() + self._chance.uniform(0, 60))
        self.cluster.observers.append(self.invariants)
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @property
    def sick(self) -> set[str]:
        """Nodes with a fault, whether or not it shows at the moment."""
        return {member.name for member in self.nodes.values() if member.fault is not None}

    @property
    def blocked(self) -> set[str]:
        """Nodes that should be tainted, and are not because of the budget, by their remediators' plans."""
        return {name for name, member in self.nodes.items() if member.is_blocked}

    @property
    def request_counts(self) -> Counter[str]:
        """All requests so far."""
        return sum((member.context.transport.request_counts for member in self.nodes.values()), Counter())

    @property
    def kills(self) -> int:
        """Remediators killed so far."""
        return sum(member.kills for member in self.nodes.values())

    def disturb(self, disturbances: Disturbances) -> None:
        """Let shares of the API calls fail in five ways, or return an object as it was before its last write, and let
        remediators be killed. `Disturbances()` ends all of it.
        """
        share = disturbances.api_failures
        part = share / 5
        self.cluster.faults = ApiFaults(
            throttle=part,
            internal_error=part,
            unavailable=part,
            reset_before=part,
            reset_after=part,
            stale=share,
            users=(USER,),
        )
        self.random_kills.rate = KILL_RATE if disturbances.kill else 0.0

    def stop_kills(self) -> None:
        """Kill no more remediators."""
        self.random_kills.rate = 0.0

    def at(self, delay: float, act: Callable[[], None]) -> None:
        """Call `act` in `delay` seconds, between two steps."""
        heapq.heappush(self._later, (self.clock.time() + delay, next(self._numbers), act))

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass until a violation, or until `until` is true at the end of a tick; return whether it is."""
        end = self.clock.time() + seconds
        while self.clock.time() < end and not self.violations:
            if until():
                return True
            upcoming = [queue[0][0] for queue in (self._queue, self._later) if queue]
            now = min(end, max(self.clock.time() + TICK, min(upcoming, default=end)))
            self.clock.move_to(now)
            while self._later and self._later[0][0] <= now:
                heapq.heappop(self._later)[2]()
            due = []
            while self._queue and self._queue[0][0] <= now:
                at, name = heapq.heappop(self._queue)
                if self.nodes[name].due == at:  # else a `wake` has moved the node's next step
                    due.append(self.nodes[name])
            for member, wait in self._pool.map(self._step, due):
                self._schedule(member, now + max(wait, TICK))
        return until()

    def jump(self, to: float) -> None:
        """Move time to unix time `to`, if that is later, without a step in between. Then only nodes that are sick or
        held take steps, until `run_all`.
        """
        self.clock.move_to(to)
        self._queue.clear()
        for member in self.nodes.values():
            member.due = float("inf")
        for name in self.sick | self.invariants.tainted | self.invariants.confined | set(self.invariants.held.values()):
            self._schedule(self.nodes[name], self.clock.time() + TICK)

    def run_all(self, seconds: float) -> None:
        """Run so many seconds in which every node steps again."""
        for member in self.nodes.values():
            self._schedule(member, self.clock.time() + self._chance.uniform(0, seconds / 2))
        self.run(seconds)

    def leaks(self, before: dict[str, Object]) -> tuple[str, ...]:
        """Changes on Nodes since `before` (`node_states`), and Leases that are still held."""
        found = [f"{slot} is still held by {holder}" for slot, holder in self.invariants.held.items()]
        for name, node in self.node_states().items():
            found += [
                f"{name}: {part} are {node[part]}, were {before[name][part]}"
                for part in node
                if node[part] != before[name][part]
            ]
        return tuple(found)

    def node_states(self) -> dict[str, Object]:
        """`visible_state` of every node, by name."""
        return {node["metadata"]["name"]: visible_state(node) for node in self.cluster.nodes()}

    def wake(self, name: str, delay: float) -> None:
        """Let a remediator step in `delay` seconds at the latest, as after a new View of its agent."""
        member, due = self.nodes[name], self.clock.time() + delay
        if member.remediator is not None and due < member.due:
            self._schedule(member, due)

    def restart(self, name: str) -> None:
        """Start another remediator, as after a reboot."""
        member = self.nodes[name]
        member.remediator = None
        self._schedule(member, self.clock.time() + TICK)

    def _schedule(self, member: FleetNode, due: float) -> None:
        member.due = due
        heapq.heappush(self._queue, (due, member.name))

    def _step(self, member: FleetNode) -> tuple[FleetNode, float]:
        try:
            if member.remediator is None:
                member.remediator = self._factory(member.context)
            return member, member.remediator.step()
        except Killed:
            member.remediator = None
            member.kills += 1
            return member, member.context.chance.uniform(*RESTART_SECONDS)
        except Exception as error:  # noqa: BLE001 whatever it is, it must not happen
            message = f"{type(error).__name__}: {error}"
            self.violations.append(Violation(self.clock.time(), member.name, "crash", message))
            return member, TICK

    def _well_for(self, name: str) -> float | None:
        since = self.nodes[name].healthy_since
        return None if since is None else self.clock.time() - since
