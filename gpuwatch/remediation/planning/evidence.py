"""What a View proves: that it is of this Node's machine, which faults are in force, and whether there is evidence
that the node is healthy again.

Missing data proves neither: an old View, a GPU that cannot be read and a failing monitor add nothing and clear nothing.
"""

import math

from gpuwatch.kube.objects import NodeObject
from gpuwatch.model.finding import Health, Response
from gpuwatch.model.snapshot import GpuState, Record, Snapshot
from gpuwatch.model.text import visible
from gpuwatch.model.view import STALE_INTERVALS, View
from gpuwatch.remediation.model import Blocked, BlockReason, Fault, Ownership
from gpuwatch.remediation.planning.ownership import (
    MAX_FAULTS,
    MAX_MESSAGE,
    ClaimState,
    acknowledged,
    read_claim,
    recorded_faults,
)
from gpuwatch.remediation.planning.policy import Policy

FRESH_SECONDS = 10.0
"""A View is fresh for STALE_INTERVALS of its intervals, and at least for so many seconds."""


class Observation(Record, frozen=True, kw_only=True):
    """The newest View, how many seconds ago it was published, and for how long `is_clean` has held unbroken; both by a
    monotonic clock. `remarks`: problems of the remediator's own pod, for the condition's message.
    """

    view: View | None = None
    age: float = math.inf
    clean_for: float = 0.0
    remarks: tuple[str, ...] = ()


def identity_mismatch(node: NodeObject, view: View) -> Blocked | None:
    """Why nothing may be written to this Node; None when it is the View's machine beyond doubt.

    Boot id, machine id and system uuid must agree wherever both sides know them, and one must be known to both: names
    are set by people, and two machines made from one image share theirs.
    """
    here, there, agent_node = view.snapshot.host, node.host, view.snapshot.node
    pairs = (
        ("boot id", here.boot_id, there.boot_id),
        ("machine id", here.machine_id, there.machine_id),
        ("system uuid", here.system_uuid, there.system_uuid),
    )
    known = [(name, a, b) for name, a, b in pairs if a and b]
    message = ""
    if agent_node and agent_node.split(".")[0].lower() != node.name.split(".")[0].lower():
        message = f"the agent runs on {agent_node}, not on node {node.name}; give both the same NODE_NAME"
    if not known:
        message = f"neither boot id nor machine id can be compared with node {node.name}; mount the host's /proc"
    for name, a, b in reversed(known):
        if a.strip().lower() != b.strip().lower():
            message = f"node {node.name} has the {name} {b}, this machine {a}; check NODE_NAME"
    return Blocked(reason=BlockReason.IDENTITY, message=message) if message else None


def seconds_fresh(observation: Observation) -> float:
    """Seconds until the View is too old to act on; 0 or less: it is already, or there is none."""
    if observation.view is None:
        return 0.0
    return max(STALE_INTERVALS * observation.view.snapshot.interval, FRESH_SECONDS) - observation.age


def is_fresh(observation: Observation) -> bool:
    """Whether the View is recent enough to act on."""
    return seconds_fresh(observation) > 0


def is_clean(observation: Observation, node: NodeObject, policy: Policy) -> bool:
    """Whether right now a fresh View of this machine proves that nothing keeps the node from work."""
    return not missing_evidence(observation, node, policy)


def missing_evidence(observation: Observation, node: NodeObject, policy: Policy) -> tuple[str, ...]:
    """What is missing for that proof, as sentences; empty: nothing."""
    view = observation.view
    if view is None or not is_fresh(observation):
        return ("no fresh view of the GPUs",)
    if (other := identity_mismatch(node, view)) is not None:
        return (other.message,)
    state = read_claim(node)
    began = recorded_faults(node) if state.claim is ClaimState.APPLIED else ()
    still = tuple(fault for fault in began if policy.answer(fault.check, fault.xid).reaches(Response.TAINT))
    overruled, keys, sick = acknowledged(node), {fault.key for fault in still}, {f.gpu for f in still if f.gpu}
    message = tuple(
        f"{fault.place} is still there"
        for fault in in_force(view, policy, Response.CONDITION)
        if fault.last > overruled.get(fault.key, -1.0)  # in the way: what taints, or concerns a GPU that had a fault
        and (fault.response.reaches(Response.TAINT) or fault.key in keys or fault.gpu in sick)
    )
    if still or not began:  # when the policy no longer taints for what was found, its GPUs need no proof
        message += _unproven_gpus(view, still, state.owner)
    return tuple(dict.fromkeys(message))  # several XIDs of one GPU are reported once


def unvalidated(view: View, began: tuple[Fault, ...], policy: Policy) -> tuple[str, ...]:
    """With `validate: active`: GPUs of the quarantine that have not passed the active checks since their fault, in this
    boot, as sentences. A fault of the node, or of a GPU that is no longer there, concerns every GPU.
    """
    still = [fault for fault in began if policy.answer(fault.check, fault.xid).reaches(Response.TAINT)]
    if policy.config.validate != "active" or not still:
        return ()
    known = {status.identity.uuid: status.identity.index for status in view.snapshot.statuses}
    proofs = {each.gpu: each for each in view.validations if each.boot_id == view.snapshot.host.boot_id}
    found: list[str] = []
    for uuid, index in known.items():
        since = [fault.last for fault in still if fault.gpu == uuid or fault.gpu not in known]
        proof = proofs.get(uuid)
        if since and (proof is None or proof.at <= max(since)):
            found.append(f"GPU {index} has not passed active checks since its fault")
        elif since and proof is not None and not proof.passed:
            found.append(f"GPU {index} failed {visible(proof.message)[:MAX_MESSAGE]}")
    return tuple(found)


def in_force(view: View, policy: Policy, least: Response) -> tuple[Fault, ...]:
    """The findings to which the policy answers with `least` or more, the strongest answer first."""
    indices = {status.identity.uuid: status.identity.index for status in view.snapshot.statuses}
    found: dict[str, Fault] = {}
    for finding in view.judgement.findings:
        response = policy.response(finding)
        if response.reaches(least):
            found[finding.key] = Fault(
                key=finding.key,
                check=finding.check,
                response=response,
                remedy=finding.remedy,
                gpu=finding.gpu,
                index=indices.get(finding.gpu or ""),
                xid=finding.xid,
                since=finding.since,
                last=finding.latest,
                message=visible(finding.message)[:MAX_MESSAGE],
            )
    return tuple(sorted(found.values(), key=rank))


def rank(fault: Fault) -> tuple[int, str]:
    """The order in which faults are listed, and kept where there is no room for all: strongest answer first."""
    return -list(Response).index(fault.response), fault.key


def merge_faults(old: tuple[Fault, ...], new: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """The faults of a quarantine: none is dropped while it lasts, unless there are more than MAX_FAULTS. A known one is
    replaced only by one with a stronger response.
    """
    merged = {fault.key: fault for fault in old}
    for fault in new:
        known = merged.get(fault.key)
        if known is None or (fault.response.reaches(known.response) and fault.response is not known.response):
            merged[fault.key] = fault
    return tuple(sorted(merged.values(), key=rank)[:MAX_FAULTS])


def fault_age(fault: Fault, snapshot: Snapshot) -> float:
    """Seconds for which a fault had been there when the snapshot was made; 0 where that is not known."""
    return 0.0 if fault.since is None else max(0.0, snapshot.at - fault.since)


def _unproven_gpus(view: View, began: tuple[Fault, ...], owner: Ownership | None) -> tuple[str, ...]:
    """GPUs not proven healthy, of those that had a fault, or of all when the node had one; and how many are missing."""
    snapshot = view.snapshot
    present = {gpu.identity.uuid for gpu in snapshot.gpus}
    statuses = {status.identity.uuid: status.state for status in snapshot.statuses}
    sick = {fault.gpu for fault in began if fault.gpu}
    wanted = sick if began and all(fault.gpu for fault in began) else sick | set(statuses)
    well = {
        uuid
        for uuid in present
        if statuses.get(uuid) is GpuState.FRESH and view.judgement.gpus.get(uuid, Health.UNKNOWN) is not Health.UNKNOWN
    }
    need = snapshot.expected_gpus if snapshot.expected_gpus is not None else owner.gpus if owner else 0
    if not present and not need:
        return ("no GPU has been read",)
    message = () if len(present) >= need else (f"{len(present)} of {need} GPUs are there",)
    # A GPU that has gone for good can only have been replaced while the machine was off.
    boot, before = snapshot.host.boot_id, owner.boot_id if owner else None
    rebooted = boot is not None and before is not None and boot != before
    replaced = rebooted and len(well) >= max(need, 1) and well == set(statuses)
    return message + tuple(f"{uuid} is not proven healthy" for uuid in sorted(wanted - well) if not replaced)
