"""The actions that a policy would have taken: recorded or simulated Views, the real plan, and a Node in memory.

No API server: a replay of a day takes a second, and a test can stop between any two steps. No other process uses
the Node, its budget is never exhausted, and evicted pods leave at once, so the result depends only on the policy.
Several rehearsals of one cluster may share a budget.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.kube.objects import DeviceRule, LeaseObject, NodeObject, PodObject
from gpuwatch.model.snapshot import Host
from gpuwatch.model.view import View
from gpuwatch.remediation.model import (
    BlockReason,
    CreateEvent,
    DeleteRule,
    Evict,
    FreeSlot,
    PatchNode,
    Plan,
    RemediatorMemory,
    SetCondition,
    SetRebootSentinel,
    Step,
    TakeSlot,
    WriteRule,
    after,
)
from gpuwatch.remediation.planning.evidence import FRESH_SECONDS, Observation, is_clean
from gpuwatch.remediation.planning.plan import EvictionHistory, PlanInputs, plan, remember
from gpuwatch.remediation.planning.policy import Policy
from gpuwatch.remediation.planning.slots import Slots


class StepRefused(Exception):
    """The step came too late: another process has changed the object that it was made from."""


class InMemoryCluster:
    """`node`, `leases` and `pods` are as an API server would return them; `events`: by name.

    Several Nodes of one cluster are given the same `leases`.
    """

    def __init__(
        self, name: str, host: Host, slot_seconds: float = 900.0, leases: dict[str, LeaseObject] | None = None
    ) -> None:
        self.node = NodeObject(name=name, uid=f"imagined-{name}", resource_version="1", host=host)
        self.leases: dict[str, LeaseObject] = {} if leases is None else leases
        self.pods: dict[str, PodObject] = {}
        self.events: dict[str, CreateEvent] = {}
        self.files: set[str] = set()
        self.rules: dict[str, DeviceRule] = {}
        self._slot_seconds = slot_seconds
        self._version = 1

    def do(self, step: Step, now: float) -> None:
        """Carry out one step at unix time `now`. A step that is done again changes nothing more.

        Raises:
            StepRefused: the Lease of the slot has changed meanwhile.
        """
        self._keep(after(self.node, (step,)))
        if isinstance(step, TakeSlot):
            there = self.leases.get(step.name)
            if (there.resource_version if there else "") != step.resource_version:
                raise StepRefused(step.name)
            self.hold(step.name, self.node.name, now)
        elif isinstance(step, FreeSlot):
            there = self.leases.get(step.name)
            if there is not None and there.holder == self.node.name:
                self.leases[step.name] = replace(there, holder=None, resource_version=self._next())
        elif isinstance(step, CreateEvent):
            self.events.setdefault(step.name, step)
        elif isinstance(step, Evict):
            self.pods.pop(step.pod.uid, None)
        elif isinstance(step, WriteRule):
            self.rules[step.rule.name] = step.rule
        elif isinstance(step, DeleteRule):
            self.rules.pop(step.name, None)
        elif isinstance(step, SetRebootSentinel):
            (self.files.add if step.wanted else self.files.discard)(step.sentinel)

    def edit(self, **changes: object) -> None:
        """Change the Node, as another client would."""
        self._keep(replace(self.node, **changes))

    def hold(self, name: str, holder: str | None, now: float) -> None:
        """Give a slot to a holder."""
        self.leases[name] = LeaseObject(
            name=name, resource_version=self._next(), holder=holder, renewed=now, duration=self._slot_seconds
        )

    def _keep(self, node: NodeObject) -> None:
        if node != self.node:
            self.node = replace(node, resource_version=self._next())

    def _next(self) -> str:
        self._version += 1
        return str(self._version)


GPU_NODES = 10
"""Nodes of the imaginary cluster: enough for any share to give a slot."""

TURNS = 8
"""Most plans in a row for one View: each starts from the results of the one before."""


class RehearsedAction(NamedTuple):
    """An action that would have been taken, or an obstacle to one (`do` is then `blocked`), at unix time `at`."""

    at: float
    do: str
    what: str
    why: str = ""


class Quarantine(NamedTuple):
    """A time for which the node would have been out of service; `end` None: until after the end of the recording."""

    begin: float
    end: float | None


class Rehearsal:
    """One run. `quarantines` grows while `watch` runs; `first` and `last` are the times of the `views` so far; `made`
    is the newest plan, `steps` all that was carried out.

    `gap`: seconds without a View after which the time between does not count as healthy. `nodes`: how many GPU nodes
    the cluster has; `leases`: its budget's, where several rehearsals share it.
    """

    def __init__(
        self,
        policy: Policy,
        gap: float = 3 * FRESH_SECONDS,
        *,
        nodes: int = GPU_NODES,
        leases: dict[str, LeaseObject] | None = None,
    ) -> None:
        self._gap, self._nodes = gap, nodes
        self._leases = {} if leases is None else leases
        self._policy = replace(policy, config=replace(policy.config, mode="enforce"))
        self._cluster: InMemoryCluster | None = None
        self._memory, self._evictions = RemediatorMemory(), EvictionHistory()
        self._clean_since: float | None = None
        self._gone: set[str] = set()
        self._obstacles: frozenset[tuple[BlockReason, str]] = frozenset()
        self.quarantines: list[Quarantine] = []
        self.views, self.first, self.last = 0, 0.0, 0.0
        self.made: Plan | None = None
        self.steps: list[Step] = []

    def watch(self, views: Iterable[View]) -> Iterator[RehearsedAction]:
        """The actions on each View, as it comes."""
        for view in views:
            yield from self._cycle(view)

    def _cycle(self, view: View) -> Iterator[RehearsedAction]:
        now = view.snapshot.at
        if view.snapshot.host == Host():  # a recording without a host: its View must belong to the imaginary Node
            view = replace(view, snapshot=replace(view.snapshot, host=Host(boot_id="recorded")))
        if self._cluster is None:
            self._cluster = InMemoryCluster(
                view.snapshot.node or "node", view.snapshot.host, self._policy.config.budget.slot_seconds, self._leases
            )
        self._cluster.edit(host=view.snapshot.host)
        cluster = self._cluster
        if not 0 <= now - self.last <= self._gap:
            self._clean_since = None
        self.first = self.first or now
        self.views, self.last = self.views + 1, now
        # The pods that hold a GPU, without those that were evicted: the recording still has them.
        holders = (holder.workload for use in view.attribution.devices for holder in use.holders)
        pods = (
            PodObject(namespace=w.namespace, name=w.pod, uid=w.pod_uid or f"{w.namespace}/{w.pod}", gpus=1)
            for w in holders
            if w.namespace and w.pod
        )
        cluster.pods = {pod.uid: pod for pod in pods if pod.uid not in self._gone}
        for _ in range(TURNS):
            made = self.made = self._plan(view, cluster, now)
            yield from self._news(made)
            if not made.steps:
                return
            node = cluster.node
            for step in made.steps:
                cluster.do(step, now)
                self.steps.append(step)
                if isinstance(step, Evict):
                    self._gone.add(step.pod.uid)
                    self._evictions = self._evictions.with_attempt(step.pod, now)
                if (action := _action(step, made)) is not None:
                    yield action
            self._note(made)
            self._memory = remember(self._memory, node, made, now)

    def _plan(self, view: View, cluster: InMemoryCluster, now: float) -> Plan:
        observation = Observation(view=view, age=0.0)
        clean = is_clean(observation, cluster.node, self._policy)
        self._clean_since = (now if self._clean_since is None else self._clean_since) if clean else None
        return plan(
            PlanInputs(
                observation=replace(
                    observation, clean_for=0.0 if self._clean_since is None else now - self._clean_since
                ),
                node=cluster.node,
                policy=self._policy,
                memory=self._memory,
                slots=Slots(leases=tuple(cluster.leases.values()), nodes=self._nodes),
                pods=tuple(cluster.pods.values()),
                now=now,
                evictions=self._evictions,
            )
        )

    def _news(self, made: Plan) -> Iterator[RehearsedAction]:
        """Obstacles that were not there before."""
        found = frozenset((o.reason, o.message) for o in made.blocked)
        kinds = {reason for reason, _ in self._obstacles}
        for reason, words in sorted(found):
            if reason not in kinds:
                yield RehearsedAction(made.at, "blocked", words, str(reason))
        self._obstacles = found

    def _note(self, made: Plan) -> None:
        steps = {step.step for step in made.steps if isinstance(step, PatchNode)}
        if {"taint", "confine"} & steps and (not self.quarantines or self.quarantines[-1].end is not None):
            self.quarantines.append(Quarantine(made.at, None))
        elif "untaint" in steps and self.quarantines:
            self.quarantines[-1] = self.quarantines[-1]._replace(end=made.at)


def _action(step: Step, made: Plan) -> RehearsedAction | None:
    """A step in words; None for a step that only renews a state."""
    if isinstance(step, PatchNode):
        return _patched(step, made)
    if isinstance(step, SetCondition) and step.condition is not None:
        condition = step.condition
        moved = condition.last_transition == condition.last_heartbeat
        text = f"{condition.type}={condition.status} ({condition.reason})"
        return RehearsedAction(made.at, "condition", text, condition.message) if moved else None
    if isinstance(step, CreateEvent):
        target = f" on pod {step.pod[0]}/{step.pod[1]}" if step.pod else ""
        return RehearsedAction(made.at, "event", f"{step.reason}{target}", step.message)
    if isinstance(step, SetRebootSentinel):
        return RehearsedAction(
            made.at, "handover", f"{'create' if step.wanted else 'remove'} {step.sentinel}", made.message
        )
    return RehearsedAction(made.at, "evict", step.pod.path, made.message) if isinstance(step, Evict) else None


def _patched(step: PatchNode, made: Plan) -> RehearsedAction | None:
    cordon = {True: " and cordon", False: " and uncordon", None: ""}[step.unschedulable]
    if step.step == "taint" and step.taints:
        taint = step.taints[-1]
        return RehearsedAction(made.at, "taint", f"{taint.key}={taint.value}:{taint.effect}{cordon}", made.message)
    if step.step == "confine":
        return RehearsedAction(made.at, step.step, f"only the sick GPUs are out of service{cordon}", made.message)
    if step.step in ("untaint", "forget"):
        return RehearsedAction(made.at, step.step, f"everything taken back{cordon}", made.message)
    return (
        RehearsedAction(made.at, "cordon", "unschedulable for all pods", made.message) if step.unschedulable else None
    )
