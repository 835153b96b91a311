"""An imaginary cluster of one Node, its pods and the budget's Leases, kept in memory: what a plan would do, done to it.

No API server: a replay of a day takes a second, and a test can stop between any two steps.
"""

from msgspec.structs import replace

from gpuwatch.kube.objects import CONDITION, LeaseObject, NodeObject, PodObject
from gpuwatch.model.snapshot import Host
from gpuwatch.remediation.model.plan import Announce, Evict, FreeSlot, HandOver, PatchNode, SetCondition, Step, TakeSlot


class Refused(Exception):
    """The step came too late: somebody else has changed what it was made from."""


class Imagined:
    """`node`, `leases` and `pods` are as an API server would give them; `events` what was announced, by name.

    Several Nodes of one cluster are given the same `leases`.
    """

    def __init__(
        self, name: str, host: Host, slot_seconds: float = 900.0, leases: dict[str, LeaseObject] | None = None
    ) -> None:
        self.node = NodeObject(name=name, uid=f"imagined-{name}", resource_version="1", host=host)
        self.leases: dict[str, LeaseObject] = {} if leases is None else leases
        self.pods: dict[str, PodObject] = {}
        self.events: dict[str, Announce] = {}
        self.files: set[str] = set()
        self._slot_seconds = slot_seconds
        self._version = 1

    def do(self, step: Step, now: float) -> None:
        """Carry out one step at unix time `now`. Done again, it changes nothing more.

        Raises:
            Refused: the slot is somebody else's by now.
        """
        if isinstance(step, PatchNode):
            self.edit(
                annotations=_merged(self.node.annotations, step.annotations),
                labels=_merged(self.node.labels, step.labels),
                taints=self.node.taints if step.taints is None else step.taints,
                unschedulable=self.node.unschedulable if step.unschedulable is None else step.unschedulable,
            )
        elif isinstance(step, SetCondition):
            others = tuple(condition for condition in self.node.conditions if condition.type != CONDITION)
            self.edit(conditions=(*others, step.condition) if step.condition else others)
        elif isinstance(step, TakeSlot):
            self._take(step, now)
        elif isinstance(step, FreeSlot):
            self._free(step.name)
        elif isinstance(step, Announce):
            self.events.setdefault(step.name, step)
        elif isinstance(step, Evict):
            self.pods.pop(step.pod.uid, None)
        elif isinstance(step, HandOver):
            (self.files.add if step.wanted else self.files.discard)(step.sentinel)

    def edit(self, **changes: object) -> None:
        """Change the Node, as anybody may."""
        if any(getattr(self.node, name) != value for name, value in changes.items()):
            self.node = replace(self.node, resource_version=self._next(), **changes)

    def hold(self, name: str, holder: str | None, now: float) -> None:
        """Let somebody hold a slot."""
        self.leases[name] = LeaseObject(
            name=name, resource_version=self._next(), holder=holder, renewed=now, duration=self._slot_seconds
        )

    def _take(self, step: TakeSlot, now: float) -> None:
        there = self.leases.get(step.name)
        if (there.resource_version if there else "") != step.resource_version:
            raise Refused(step.name)
        self.hold(step.name, self.node.name, now)

    def _free(self, name: str) -> None:
        there = self.leases.get(name)
        if there is not None and there.holder == self.node.name:
            self.leases[name] = replace(there, holder=None, resource_version=self._next())

    def _next(self) -> str:
        self._version += 1
        return str(self._version)


def _merged(old: dict[str, str], change: dict[str, str | None]) -> dict[str, str]:
    both: dict[str, str | None] = {**old, **change}
    return {key: value for key, value in both.items() if value is not None}
