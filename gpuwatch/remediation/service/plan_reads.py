"""What is read besides the Node and the View, and only when it is needed: the budget, the node's pods, our own pod."""

import logging
from collections.abc import Callable, Set
from contextlib import suppress

from msgspec.structs import replace

from gpuwatch.kube.devices import NOT_SERVED
from gpuwatch.kube.errors import AlreadyExists, KubeError
from gpuwatch.kube.objects import TAINT, DraState, LeaseObject, PodObject
from gpuwatch.kube.reader import NodeReader
from gpuwatch.model.clock import Clock
from gpuwatch.model.errors import UsageError
from gpuwatch.remediation.planning.inputs import NEEDS, Need
from gpuwatch.remediation.planning.slots import Slots
from gpuwatch.remediation.service.slots import SlotReader

log = logging.getLogger(__name__)

SERVED_SECONDS = 3600.0
"""Seconds for which a cluster without DeviceTaintRules is not asked again: another version or a gate brings them."""

CANNOT_RETURN = (
    f"gpuwatch's own pod does not tolerate the taint {TAINT}, so once it ends on a tainted Node it cannot come back to "
    "release the Node; let it tolerate every taint (operator: Exists)"
)


class DeviceReader:
    """Devices for resource claims, and rules about them. Whether a cluster serves such rules is asked at rest: the
    nodes of a fleet that fell sick would otherwise all ask at once, each twice before its taint.
    """

    def __init__(self, reader: NodeReader, clock: Clock) -> None:
        self._reader, self._clock = reader, clock
        self._served, self._asked = True, float("-inf")

    def read(self) -> DraState:
        """As they are now. Raises KubeError."""
        if not self._served and self._clock.monotonic() - self._asked < SERVED_SECONDS:
            return DraState(why=NOT_SERVED)
        return self._reader.devices()

    def refresh(self) -> None:
        """Ask whether the cluster serves rules, when it is time, before it is needed."""
        if self._clock.monotonic() - self._asked > SERVED_SECONDS / 2:
            self._served, self._asked = True, self._clock.monotonic()  # without an answer it is asked when it is needed
            with suppress(KubeError):
                self._served = bool(self._reader.rules_version())


class PlanReads:
    """Budget, pods and devices of one cycle, each read at most once. None: not read, or unreadable, for the reason
    `error`. `unread`: what may still be read.
    """

    def __init__(self, unread: frozenset[Need] = NEEDS) -> None:
        self.unread = unread
        self.slots: Slots | None = None
        self.pods: tuple[PodObject, ...] | None = None
        self.devices: DraState | None = None
        self.error: KubeError | None = None
        self._has_lost = False

    def read(
        self,
        names: Set[str],
        reader: NodeReader,
        slots: SlotReader,
        devices: DeviceReader,
        own: tuple[str, str] | None,
    ) -> None:
        """Read `names`; our `own` pod (namespace, name) is never among the pods."""
        self.unread -= names
        if "slots" in names:
            self.slots, self.error = slots.read(), slots.error
        if "pods" in names:
            try:
                self.pods = tuple(pod for pod in reader.pods() if (pod.namespace, pod.name) != own)
            except KubeError as error:
                self.error = error

        if "devices" in names:
            try:
                self.devices = devices.read()
            except KubeError as error:
                self.error = error

    def lost_slot(self, name: str, error: KubeError) -> None:
        """Another node was faster. The first slot that it created meanwhile counts as used. Else the slots have to be
        read again, where the next plan asks for them: one that was changed may still be ours, and after a second lost
        slot more of them may be used.
        """
        if self._has_lost or not isinstance(error, AlreadyExists) or self.slots is None or self.slots.leases is None:
            self.slots = None
            self.unread |= {"slots"}
            return
        self._has_lost = True
        lost = LeaseObject(name=name, holder="another node")
        self.slots = replace(self.slots, leases=(*self.slots.leases, lost))


class OwnPod:
    """The remediator's own pod under its own taint. `pod` is (namespace, name), None outside of pods; `effect` that of
    the taint.
    """

    def __init__(self, pod: tuple[str, str] | None, effect: str) -> None:
        self._pod, self._effect = pod, effect
        self._stays = self._return_checked = False
        self.remarks: tuple[str, ...] = ()

    def check(self, reader: Callable[[], NodeReader]) -> None:
        """Refuse a taint with NoExecute that would evict this very pod.

        Raises:
            UsageError: the pod does not tolerate it.
            KubeError: its tolerations cannot be read now.
        """
        pod = self._pod
        if self._effect != "NoExecute" or pod is None or self._stays:
            return
        if not reader().tolerates(*pod):
            raise UsageError(
                "remediation.effect is NoExecute",
                f"that would evict this very pod, {'/'.join(pod)}, and nothing could take the taint away again",
                "let it tolerate every taint (operator: Exists), or set NoSchedule",
            )
        self._stays = True

    def check_return(self, reader: NodeReader) -> None:
        """Once: warn when the pod could not come back to a tainted Node."""
        if self._return_checked or self._pod is None:
            return
        self._return_checked = True
        try:
            comes_back = reader.tolerates(*self._pod, effect="NoSchedule")
        except KubeError as error:
            log.info("cannot read whether this pod tolerates the taint %s; %s", TAINT, error)
            return
        if not comes_back:
            self.remarks = (CANNOT_RETURN,)
            log.warning("%s", CANNOT_RETURN)
