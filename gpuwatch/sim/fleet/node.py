"""The surroundings of one node's remediator: time, its ledger, its connection to the API server and its agent."""

import random
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from gpuwatch.config import RemediationConfig
from gpuwatch.kube.errors import AlreadyExists, ApiCall, Conflict, KubeError, TooMany, Unavailable
from gpuwatch.kube.transport import JSON, Transport
from gpuwatch.model.clock import Clock
from gpuwatch.model.event import ActionEvent
from gpuwatch.remediation.model import BlockReason
from gpuwatch.remediation.service.remediator import Remediator
from gpuwatch.sim.fleet.agent import FleetFault, SimulatedAgent


class FleetClock:
    """A Clock for a whole cluster; both of its times move together."""

    def __init__(self, start: float) -> None:
        self._start = self._now = start

    def time(self) -> float:
        """Simulated unix time in seconds."""
        return self._now

    def monotonic(self) -> float:
        """Simulated seconds since the beginning."""
        return self._now - self._start

    def move_to(self, now: float) -> None:
        """Set the time; an earlier one changes nothing."""
        self._now = max(self._now, now)


LAST = 12
"""Actions kept to explain a violation."""


class NodeLedger:
    """Stands in for the store of one node. `checkpoint` is passed before and after each write."""

    def __init__(self, checkpoint: Callable[[], None]) -> None:
        self.actions: deque[ActionEvent] = deque(maxlen=LAST)
        self._checkpoint = checkpoint
        self._documents: dict[str, bytes] = {}
        self._number = 0

    def record(self, action: ActionEvent) -> int:
        """Keep an action and return its number."""
        self._checkpoint()
        number = action.number
        if number is None:
            self._number += 1
            number = self._number
        self.actions.append(msgspec.structs.replace(action, number=number))
        self._checkpoint()
        return number

    def memory(self, name: str) -> bytes | None:
        """A document, None where there is none."""
        return self._documents.get(name)

    def remember(self, name: str, body: bytes) -> None:
        """Keep a document."""
        self._checkpoint()
        self._documents[name] = body
        self._checkpoint()


class Killed(BaseException):
    """The remediator ends here, as by SIGKILL: its code must not catch this."""


class RandomKills:
    """Decides when remediators are killed; shared by a fleet. `rate`: the chance of a kill at each checkpoint."""

    def __init__(self, seed: int) -> None:
        self.rate = 0.0
        self._chance = random.Random(f"kills {seed}")  # noqa: S311

    def checkpoint(self) -> None:
        """Raise Killed with the probability `rate`."""
        if self.rate and self._chance.random() < self.rate:
            raise Killed


class NodeTransport(Transport):
    """The requests of one node. `gate`, where it is set, is called before each request and may delay it."""

    def __init__(self, shared: Transport, checkpoint: Callable[[], None]) -> None:
        super().__init__()
        self.request_counts: Counter[str] = Counter()
        """reads, writes, conflicts (answers 409), failures (429, 5xx and lost answers) and retries (requests repeated
        after one).
        """
        self.gate: Callable[[ApiCall], None] | None = None
        self._shared, self._checkpoint = shared, checkpoint
        self._failed: set[tuple[str, str]] = set()

    def request(
        self,
        call: ApiCall,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: object = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        """As in Transport. Raises Killed before the request is sent, or after its answer."""
        if self.gate is not None:
            self.gate(call)
        self._checkpoint()
        self.request_counts["reads" if call.verb in ("get", "list") else "writes"] += 1
        if (call.verb, path) in self._failed:
            self._failed.discard((call.verb, path))
            self.request_counts["retries"] += 1
        try:
            answer = self._shared.request(call, path, query=query, body=body, content_type=content_type, accept=accept)
        except KubeError as error:
            match error:
                case Conflict() | AlreadyExists():
                    self.request_counts["conflicts"] += 1
                case TooMany() | Unavailable():
                    self.request_counts["failures"] += 1
                    self._failed.add((call.verb, path))
            self._checkpoint()
            raise
        self._checkpoint()
        return answer


class NodeContext(NamedTuple):
    """The arguments for the remediator of one node. `checkpoint` may kill it."""

    node: str
    namespace: str
    config: RemediationConfig
    agent: SimulatedAgent
    transport: NodeTransport
    ledger: NodeLedger
    clock: Clock
    chance: random.Random
    checkpoint: Callable[[str], None]


RemediatorFactory = Callable[[NodeContext], Remediator]


class FleetNode:
    """One node of the fleet. Its remediator is stepped by one thread at a time, next when it is `due`.

    `healthy_since` None: it is really sick; `healthy_before`: the value before the fault. `fault`: its fault;
    `symptomatic`: whether the fault shows now.
    """

    def __init__(self, context: NodeContext, now: float) -> None:
        self.context = context
        self.remediator: Remediator | None = None
        self.due = 0.0
        self.kills = 0
        self.healthy_since: float | None = now
        self.healthy_before: float | None = None
        self.fault: FleetFault | None = None
        self.symptomatic = False

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.context.node

    @property
    def is_blocked(self) -> bool:
        """Whether it should be taken out, and is not because of the budget, by its remediator's plan."""
        plan = self.remediator.state.plan if self.remediator else None
        return plan is not None and any(each.reason is BlockReason.BUDGET for each in plan.blocked)
