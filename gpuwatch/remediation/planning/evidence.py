"""What a View proves: that it is of this Node's machine, which faults are in force, and whether there is evidence
that the node is healthy again.

Missing data proves neither: an old View, a GPU that cannot be read and a failing monitor add nothing and clear nothing.
"""

import math

from gpuwatch.kube.objects import NodeObject
from gpuwatch.model.finding import Finding, Health, Response
from gpuwatch.model.snapshot import GpuState, Record, Snapshot
from gpuwatch.model.view import View
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


def identity_mismatch(node: NodeObject, view: View) -> Blocked | None:
    """Why nothing may be written to this Node; None when it is this machine beyond doubt.

    Boot id, machine id and system uuid must agree wherever both sides know them, and one must be known to both: names
    are set by people, and two machines made from one image share theirs.
    """
    here, there = view.snapshot.host, node.host
    pairs = {
        "boot id": (here.boot_id, there.boot_id),
        "machine id": (here.machine_id, there.machine_id),
        "system uuid": (here.system_uuid, there.system_uuid),
    }
    known = {name: (a, b) for name, (a, b) in pairs.items() if a and b}
    for name, (a, b) in known.items():
        if a.strip().lower() != b.strip().lower():
            return _blocked(f"node {node.name} has the {name} {b}, this machine {a}; check NODE_NAME")
    if not known:
        return _blocked(f"neither boot id nor machine id can be compared with node {node.name}; mount the host's /proc")
    told = view.snapshot.node
    if told and told.split(".")[0].lower() != node.name.split(".")[0].lower():
        return _blocked(f"the agent runs on {told}, not on node {node.name}; give both the same NODE_NAME")
    return None


def _blocked(message: str) -> Blocked:
    return Blocked(reason=BlockReason.IDENTITY, message=message)


FRESH_INTERVALS = 3
FRESH_SECONDS = 10.0


class Observation(Record, frozen=True, kw_only=True):
    """What the remediator has before its eyes: the newest View, how many seconds ago it was published, and for how long
    `is_clean` has been true without a break. Both spans by a clock that does not jump. `remarks`: what is wrong with
    the remediator's own place, for the condition's message.
    """

    view: View | None = None
    age: float = math.inf
    clean_for: float = 0.0
    remarks: tuple[str, ...] = ()


def is_fresh(observation: Observation) -> bool:
    """Whether the View tells of now."""
    if observation.view is None:
        return False
    return observation.age < max(FRESH_INTERVALS * observation.view.snapshot.interval, FRESH_SECONDS)


def is_clean(observation: Observation, node: NodeObject, policy: Policy) -> bool:
    """Whether right now a fresh View of this machine proves that nothing keeps the node from work."""
    return not missing_evidence(observation, node, policy)


def missing_evidence(observation: Observation, node: NodeObject, policy: Policy) -> tuple[str, ...]:
    """What is missing of that proof, as a sentence; empty: nothing."""
    if observation.view is None or not is_fresh(observation):
        return ("no fresh view of the GPUs",)
    if (other := identity_mismatch(node, observation.view)) is not None:
        return (other.message,)
    state = read_claim(node)
    began = recorded_faults(node) if state.claim is ClaimState.APPLIED else ()
    still = tuple(fault for fault in began if policy.answer(fault.check, fault.xid).reaches(Response.TAINT))
    message = _findings(observation.view, still, policy, acknowledged(node))
    if still or not began:  # when the policy no longer taints for what was found, its GPUs need no proof
        message += _gpus(observation.view, still, state.owner)
    return message


def in_force(view: View, policy: Policy, least: Response) -> tuple[Fault, ...]:
    """The findings to which the policy answers with `least` or more, the strongest answer first."""
    indices = {status.identity.uuid: status.identity.index for status in view.snapshot.statuses}
    answers = ((finding, policy.response(finding)) for finding in view.judgement.findings)
    found = [_fault(f, response, indices.get(f.gpu or "")) for f, response in answers if response.reaches(least)]
    return tuple(sorted({fault.key: fault for fault in found}.values(), key=rank))


def rank(fault: Fault) -> tuple[int, str]:
    """The order in which faults are told, and kept where there is no room for all: strongest answer first."""
    return -list(Response).index(fault.response), fault.key


def merge_faults(old: tuple[Fault, ...], new: tuple[Fault, ...]) -> tuple[Fault, ...]:
    """Faults that a quarantine is about: none is forgotten while it lasts, as far as there is room. A known one changes
    only when a stronger answer is asked for.
    """
    merged = {fault.key: fault for fault in old}
    for fault in new:
        known = merged.get(fault.key)
        if known is None or (fault.response.reaches(known.response) and fault.response is not known.response):
            merged[fault.key] = fault
    return tuple(sorted(merged.values(), key=rank)[:MAX_FAULTS])


def fault_age(fault: Fault, snapshot: Snapshot) -> float:
    """For how long a fault has been there when the snapshot was made."""
    return 0.0 if fault.since is None else max(0.0, snapshot.at - fault.since)


def _fault(finding: Finding, response: Response, index: int | None) -> Fault:
    return Fault(
        key=finding.key,
        check=finding.check,
        response=response,
        remedy=finding.remedy,
        gpu=finding.gpu,
        index=index,
        xid=finding.xid,
        since=finding.since,
        last=finding.latest,
        message=finding.message[:MAX_MESSAGE],
    )


def _findings(view: View, began: tuple[Fault, ...], policy: Policy, overruled: dict[str, float]) -> tuple[str, ...]:
    """Findings in the way: any that taints and no person has overruled; any condition of a GPU that had a fault."""
    keys, sick = {fault.key for fault in began}, {fault.gpu for fault in began if fault.gpu}
    found = (
        f"{fault.place} is still there"
        for fault in in_force(view, policy, Response.CONDITION)
        if fault.last > overruled.get(fault.key, -1.0)
        and (fault.response.reaches(Response.TAINT) or fault.key in keys or fault.gpu in sick)
    )
    return tuple(dict.fromkeys(found))  # several XIDs of one GPU are one thing to say


def _gpus(view: View, began: tuple[Fault, ...], owner: Ownership | None) -> tuple[str, ...]:
    """GPUs without proof: those that had a fault, or all of them when the node had; and those that are not there."""
    snapshot = view.snapshot
    present = {gpu.identity.uuid for gpu in snapshot.gpus}
    statuses = {status.identity.uuid: status.state for status in snapshot.statuses}
    wanted = {f.gpu for f in began if f.gpu} if began and all(f.gpu for f in began) else set(statuses)
    wanted |= {fault.gpu for fault in began if fault.gpu}
    well = {
        uuid
        for uuid in present
        if statuses.get(uuid) is GpuState.FRESH and view.judgement.gpus.get(uuid, Health.UNKNOWN) is not Health.UNKNOWN
    }
    need = snapshot.expected_gpus if snapshot.expected_gpus is not None else owner.gpus if owner else 0
    message = () if len(present) >= need else (f"{len(present)} of {need} GPUs are there",)
    replaced = _is_new_boot(view, owner) and len(well) >= max(need, 1) and well == set(statuses)
    unproven = sorted(uuid for uuid in wanted - well if not (replaced and uuid not in statuses))
    if not present and not message:
        return ("no GPU has been read",)
    return message + tuple(f"{uuid} has not been seen well" for uuid in unproven)


def _is_new_boot(view: View, owner: Ownership | None) -> bool:
    """A GPU that has gone for good can only have been replaced while the machine was off."""
    here = view.snapshot.host.boot_id
    return owner is not None and None not in (here, owner.boot_id) and here != owner.boot_id
