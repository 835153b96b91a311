"""What a plan wants to know besides the Node and the View, read only when it does: the budget, and the node's pods."""

from collections.abc import Sequence

from gpuwatch.kube.errors import KubeError
from gpuwatch.kube.objects import PodObject
from gpuwatch.kube.reader import NodeReader
from gpuwatch.remediation.planning.slots import Slots
from gpuwatch.remediation.service.slots import SlotReader


class Extras:
    """Of one cycle, each read at most once. None: not read, or unreadable, and then `trouble` says why."""

    def __init__(self) -> None:
        self.slots: Slots | None = None
        self.pods: tuple[PodObject, ...] | None = None
        self.trouble: KubeError | None = None
        self._read: set[str] = set()

    def missing(self, wanted: Sequence[str]) -> list[str]:
        """What of `wanted` has not been tried yet."""
        return [name for name in wanted if name not in self._read]

    def read(self, names: Sequence[str], reader: NodeReader, slots: SlotReader, own: tuple[str, str] | None) -> None:
        """Read `names`; our `own` pod (namespace, name) is never among the pods."""
        self._read.update(names)
        if "slots" in names:
            self.slots, self.trouble = slots.read(), slots.trouble
        if "pods" in names:
            try:
                self.pods = tuple(pod for pod in reader.pods() if (pod.namespace, pod.name) != own)
            except KubeError as error:
                self.trouble = error

    def forget_slots(self) -> None:
        """Another node was faster: they have to be read again."""
        self._read.discard("slots")
