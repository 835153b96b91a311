"""Gives back everything of ours on a Node, whatever state it is in: what an uninstall does last."""

from pathlib import Path

from gpuwatch.config import RemediationConfig
from gpuwatch.kube.errors import Conflict
from gpuwatch.kube.objects import NodeObject
from gpuwatch.kube.reader import OwnNode
from gpuwatch.kube.transport import Transport
from gpuwatch.model.clock import Clock
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.remediation.model import Plan
from gpuwatch.remediation.planning.manual_quarantine import QuarantineRequest, release
from gpuwatch.remediation.planning.slots import Slots, held_slots
from gpuwatch.remediation.service.executor import PlanExecutor, PlanOutcome
from gpuwatch.remediation.service.memory import load_memory
from gpuwatch.remediation.service.node_writer import NodeWriter
from gpuwatch.remediation.service.reboot_sentinel import set_sentinel
from gpuwatch.remediation.service.slots import SlotWriter
from gpuwatch.storage.audit import ActionStore, Audit

TRIES = 10
WISH = "gpuwatch is taken off this node"


def give_back(
    config: RemediationConfig, place: OwnNode, transport: Transport, clock: Clock, ledger: ActionStore
) -> PlanOutcome:
    """Take off taint, cordon, labels, annotations, condition, slot and file, as far as they are ours; what was done.

    Raises:
        GpuwatchError: something of ours had to be left there.
    """
    also = (config.handover.annotation,) if config.handover.annotation else ()
    writer = NodeWriter(transport, place.node, also=also)
    namespace = config.budget.namespace or place.namespace
    slots = SlotWriter(writer, clock, config.budget.slot_seconds, namespace)
    actuator = PlanExecutor(writer, slots, Audit(ledger, clock, actor="operator"), clock)
    for sentinel in {config.handover.sentinel, load_memory(ledger).sentinel} - {"", None}:
        set_sentinel(Path(str(sentinel)), wanted=False)
    for _ in range(TRIES):
        node = writer.node()
        outcome = actuator.execute(_plan(node, writer, namespace, clock), node)
        failed: GpuwatchError | None = next((each.error for each in outcome.steps if each.error is not None), None)
        if not isinstance(failed, Conflict):
            break
    if failed is not None:
        raise failed
    return outcome


def _plan(node: NodeObject, writer: NodeWriter, namespace: str, clock: Clock) -> Plan:
    leases = held_slots(Slots(leases=writer.leases(namespace)), node.name)
    return release(node, QuarantineRequest(at=clock.time(), reason=WISH), leases, forget=True)
