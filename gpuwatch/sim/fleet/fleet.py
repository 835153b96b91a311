"""A cluster of simulated nodes, each with a remediator of its own, before one API server over real HTTP.

Time stands still while all remediators that are due take their step, several at once on real threads: what they race
for, they race for. Then it jumps to the next who is due.
"""

import heapq
import itertools
import random
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import msgspec

from gpuwatch.config import BudgetConfig, RemediationConfig
from gpuwatch.kube.transport import Transport
from gpuwatch.model.snapshot import Host
from gpuwatch.remediation.model import BlockReason
from gpuwatch.sim.fleet.agent import SimulatedAgent
from gpuwatch.sim.fleet.clock import FleetClock
from gpuwatch.sim.fleet.ledger import Ledger
from gpuwatch.sim.fleet.line import Killed, Line, Mortality, Tally
from gpuwatch.sim.fleet.referee import Referee, Violation, portrait
from gpuwatch.sim.fleet.seat import Factory, Post, Seat
from gpuwatch.sim.kubeapi import ApiFaults, Cluster, Object, SimulatedApiServer

USER = "gpuwatch"
NAMESPACE = "gpuwatch"
GPU_NODES = "nvidia.com/gpu.present=true"
START = 1_790_000_000.0
HISTORY = 100
"""Writes that the API server remembers; nobody watches."""

TICK = 0.5
"""Seconds: remediators that are due within the same tick step at the same moment."""

RESTART_SECONDS = (1.0, 60.0)
"""Between the kill of a remediator and the first step of the next."""


class Fleet:
    """Runs between `with`: an API server, `nodes` nodes and whatever `factory` makes for each of them.

    `budget`: nodes that may be tainted at once, a number or a percentage. `config`: other settings of the remediators.
    """

    def __init__(
        self,
        factory: Factory,
        *,
        nodes: int,
        budget: int | str,
        seed: int = 1,
        gpus: int = 8,
        threads: int = 4,
        config: RemediationConfig | None = None,
    ) -> None:
        self.clock = FleetClock(START)
        self.cluster = Cluster(self.clock, seed=seed, history=HISTORY)
        self.mortality = Mortality(seed)
        self._factory, self._threads, self._gpus, self._seed = factory, threads, gpus, seed
        self._chance = random.Random(f"fleet {seed}")  # noqa: S311
        share = BudgetConfig(max_unavailable=budget, namespace=NAMESPACE, node_selector=GPU_NODES)
        self.config = msgspec.structs.replace(config or RemediationConfig(), mode="enforce", budget=share)
        self.referee = Referee(self.clock, USER, slots(budget, nodes), self.config.recovery_hold, self._well_for)
        self.posts: dict[str, Post] = {}
        self._count = nodes
        self._queue: list[tuple[float, str]] = []
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        self.cluster.add_namespace(NAMESPACE)
        self.cluster.add_user(USER)
        server = self._undo.enter_context(SimulatedApiServer(self.cluster))
        shared = Transport(str(server.kubeconfig(USER)), connections=self._threads)
        self._undo.callback(shared.close)
        self._pool = self._undo.enter_context(ThreadPoolExecutor(self._threads, "fleet"))
        for number in range(self._count):
            self._settle(f"node-{number:04}", number, shared)
        self.cluster.observers.append(self.referee)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    @property
    def violations(self) -> list[Violation]:
        """What must not have been."""
        return self.referee.violations

    @property
    def sick(self) -> set[str]:
        """Nodes with a fault, whether or not it shows at the moment."""
        return {post.name for post in self.posts.values() if post.fault is not None}

    @property
    def blocked(self) -> set[str]:
        """Nodes that should be tainted and are not because of the budget, as their remediators say."""
        told = ((name, post.remediator and post.remediator.state.plan) for name, post in self.posts.items())
        return {name for name, plan in told if plan and any(o.reason is BlockReason.BUDGET for o in plan.blocked)}

    @property
    def tally(self) -> Tally:
        """All requests so far."""
        return sum((post.seat.line.tally for post in self.posts.values()), Tally())

    @property
    def kills(self) -> int:
        """Remediators killed so far."""
        return sum(post.kills for post in self.posts.values())

    def fail_requests(self, share: float) -> None:
        """Let this share of API calls fail, in every way there is; 0: none."""
        part = share / 5
        self.cluster.faults = ApiFaults(
            throttle=part, internal_error=part, unavailable=part, reset_before=part, reset_after=part, users=(USER,)
        )

    def spare(self) -> None:
        """Kill no more remediators."""
        self.mortality.rate = 0.0

    def at(self, delay: float, act: Callable[[], None]) -> None:
        """Do something `delay` seconds from now, between two steps."""
        heapq.heappush(self._later, (self.clock.time() + delay, next(self._numbers), act))

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass, until a violation or `until` says so at the end of a tick; whether it did."""
        end = self.clock.time() + seconds
        while self.clock.time() < end and not self.violations:
            if until():
                return True
            upcoming = [queue[0][0] for queue in (self._queue, self._later) if queue]
            now = min(end, max(self.clock.time() + TICK, min(upcoming, default=end)))
            self.clock.move_to(now)
            while self._later and self._later[0][0] <= now:
                heapq.heappop(self._later)[2]()
            self._step_all(self._pop(now))
        return until()

    def leaks(self, before: dict[str, Object]) -> tuple[str, ...]:
        """What is left on Nodes and Leases that was not there `before` (portraits by node's name)."""
        found = [f"{slot} is still held by {holder}" for slot, holder in self.referee.held.items()]
        for name, node in self.portraits().items():
            found += [
                f"{name}: {part} are {node[part]}, were {before[name][part]}"
                for part in node
                if node[part] != before[name][part]
            ]
        return tuple(found)

    def portraits(self) -> dict[str, Object]:
        """What every node looks like."""
        return {node["metadata"]["name"]: portrait(node) for node in self.cluster.nodes()}

    def wake(self, name: str, delay: float) -> None:
        """Let a remediator step `delay` seconds from now at the latest, as news from its agent does."""
        post, due = self.posts[name], self.clock.time() + delay
        if post.remediator is not None and due < post.due:
            self._schedule(post, due)

    def restart(self, name: str) -> None:
        """Begin anew with another remediator, as after a reboot."""
        post = self.posts[name]
        post.remediator = None
        self._schedule(post, self.clock.time() + TICK)

    def _settle(self, name: str, number: int, shared: Transport) -> None:
        """Add a node; some of them have marks of other people."""
        boot, machine = f"boot-1-of-{name}", f"machine-of-{name}"
        labels = {"nvidia.com/gpu.present": "true", "example.com/rack": str(number % 40)}
        node = self.cluster.add_node(name, machine, boot, labels, self._gpus)
        if number % 3 == 0:
            theirs = [{"key": "example.com/team", "value": "research", "effect": "NoSchedule"}]
            self.cluster.put("nodes", {**node, "spec": {**node["spec"], "taints": theirs}})
        host = Host(boot_id=boot, machine_id=machine, system_uuid=machine)
        seat = Seat(
            node=name,
            namespace=NAMESPACE,
            config=self.config,
            agent=SimulatedAgent(name, host, self.clock, gpus=self._gpus, seed=self._seed),
            line=Line(shared, self.mortality.pass_by),
            ledger=Ledger(self.mortality.pass_by),
            clock=self.clock,
            chance=random.Random(f"{self._seed} {name}"),  # noqa: S311
            checkpoint=lambda _: self.mortality.pass_by(),
        )
        self.posts[name] = Post(seat, self.clock.time())
        self._schedule(self.posts[name], self.clock.time() + self._chance.uniform(0, 60))

    def _schedule(self, post: Post, due: float) -> None:
        post.due = due
        heapq.heappush(self._queue, (due, post.name))

    def _pop(self, now: float) -> list[Post]:
        """Who is due. An entry that is not the post's own time any more was overtaken by news."""
        found = []
        while self._queue and self._queue[0][0] <= now:
            due, name = heapq.heappop(self._queue)
            if self.posts[name].due == due:
                found.append(self.posts[name])
        return found

    def _step_all(self, posts: Iterable[Post]) -> None:
        for post, wait in self._pool.map(self._step, posts):
            self._schedule(post, self.clock.time() + max(wait, TICK))

    def _step(self, post: Post) -> tuple[Post, float]:
        try:
            if post.remediator is None:
                post.remediator = self._factory(post.seat)
            return post, post.remediator.step()
        except Killed:
            post.remediator = None
            post.kills += 1
            return post, post.seat.chance.uniform(*RESTART_SECONDS)
        except Exception as error:  # noqa: BLE001 whatever it is, it must not happen
            words = f"{type(error).__name__}: {error}"
            self.violations.append(Violation(self.clock.time(), post.name, "crash", words))
            return post, TICK

    def _well_for(self, name: str) -> float | None:
        since = self.posts[name].well_since
        return None if since is None else self.clock.time() - since


def slots(budget: int | str, nodes: int) -> int:
    """How many nodes a budget allows."""
    if isinstance(budget, int) or not budget.endswith("%"):
        return int(budget)
    share = float(budget[:-1])
    return 0 if share == 0 else max(1, int(nodes * share / 100))
