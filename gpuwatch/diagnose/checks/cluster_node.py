"""The Node object: whether work is scheduled here, what prevents it, and whether gpuwatch's own marks are true."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.model import CheckStage, ClusterFacts
from gpuwatch.health.checks import CHECKS
from gpuwatch.kube.objects import CONDITION, TAINT
from gpuwatch.model.clock import unix_time
from gpuwatch.model.finding import Response
from gpuwatch.remediation.model import LABELS, Ownership
from gpuwatch.remediation.planning.evidence import in_force
from gpuwatch.remediation.planning.labels import outdated, values
from gpuwatch.remediation.planning.ownership import ClaimState, opted_out, other_controller, read_claim, recorded_faults
from gpuwatch.remediation.planning.policy import Policy

SILENT_SECONDS = 1800.0
"""A remediator that works refreshes its condition every 5 or 10 minutes."""

RELEASE = "gpuwatch node release --node {node}"
STATUS = "gpuwatch node status --node {node}"
CONDITIONS = "kubectl describe node {node}"
BAD = {"Ready": "True", "NetworkUnavailable": "False", "MemoryPressure": "False", "DiskPressure": "False",
       "PIDPressure": "False"}  # fmt: skip
"""Condition -> its status on a healthy node."""


def check_taint(context: CheckContext) -> CheckVerdict:
    """gpuwatch's own taint, if there is one, against the present findings."""
    cluster = context.facts.cluster
    if cluster is None or context.facts.view is None:
        return skipped("not read")
    node, state = cluster.node, read_claim(cluster.node)
    if node.taint is None:
        return passed("no taint of gpuwatch")
    mark = f"{TAINT}={node.taint.value}:{node.taint.effect}"
    if state.claim is not ClaimState.APPLIED or state.owner is None:
        message = f"the taint {mark} has no owner annotation of this Node: gpuwatch did not set it, or lost track of it"
        return failed(message, remedy=NOT_OURS, commands=(f"kubectl taint node {{node}} {TAINT}-",))
    if state.owner.by == "operator":
        return warned(f"a person took this node out of use: {state.owner.held or 'no reason given'}", remedy=MANUAL)
    if opted_out(node):
        return failed("the node has opted out of gpuwatch, but its taint is still there")
    return _for_a_fault(context, cluster, state.owner)


def _for_a_fault(context: CheckContext, cluster: ClusterFacts, owner: Ownership) -> CheckVerdict:
    """A taint that the remediator set."""
    began = recorded_faults(cluster.node)
    there = {finding.key for finding in context.facts.view.judgement.findings} if context.facts.view else set()
    named = ", ".join(fault.place for fault in began) or owner.value
    if any(fault.key in there for fault in began):
        return passed(f"tainted for {named}, which is still there")
    if owner.held is not None:
        return warned(f"tainted for {named}; only an operator releases it: {owner.held}", remedy=HELD)
    are_past = any(fault.xid is not None or fault.check.startswith(("xid", "sxid")) for fault in began)
    if are_past and not context.facts.agent:  # only an agent that ran at that time has the XIDs
        return warned(
            f"tainted for {named}; without the agent it is not known whether that is over", remedy=UNKNOWN_WITHOUT_AGENT
        )
    silent = _silent(cluster, context.facts.at)
    if silent is None:
        return warned(f"tainted for {named}, of which nothing is seen any more", remedy=SOON)
    return failed(f"tainted for {named}, of which nothing is seen any more, and {silent}")


def _silent(cluster: ClusterFacts, at: float) -> str | None:
    """Why it seems that no remediator works on this Node; None: one does."""
    condition = cluster.node.condition
    if condition is None:
        return f"there is no condition {CONDITION}: no remediator works here"
    written = unix_time(condition.last_heartbeat)
    age = None if written is None else (cluster.at or at) - written
    if age is None or age < SILENT_SECONDS:
        return None
    return f"the remediator has not written for {age / 60:.0f} min"


def check_conditions(context: CheckContext) -> CheckVerdict:
    """Conditions of the kubelet and the network; L09 judges gpuwatch's own."""
    node = context.facts.cluster.node if context.facts.cluster else None
    if node is None or not node.conditions:
        return skipped("the Node has no conditions")
    wrong = {c.type: c for c in node.conditions if c.type in BAD and c.status != BAD[c.type]}
    if not wrong:
        return passed("Ready")
    evidence = {name: f"{c.status} ({c.reason}): {c.message}" for name, c in wrong.items()}
    message = "; ".join(f"{c.type} is {c.status} ({c.reason or 'no reason given'})" for c in wrong.values())
    return (failed if wrong.keys() & {"Ready", "NetworkUnavailable"} else warned)(message, evidence)


def check_other_controllers(context: CheckContext) -> CheckVerdict:
    """Cordons, deletions and other controllers."""
    cluster = context.facts.cluster
    if cluster is None:
        return skipped("not read")
    owner = read_claim(cluster.node).owner
    cordoned = owner is not None and owner.cordoned
    controller = other_controller(cluster.node, cordoned=cordoned, more=context.config.remediation.foreign)
    if controller is None:
        return passed("the node is in service: neither cordoned nor used by another controller")
    can_lift = cluster.node.unschedulable and not cordoned
    commands = (CONDITIONS, "kubectl uncordon {node}") if can_lift else None
    waiting = f"{len(cluster.pending)} pods of the cluster wait for GPUs" if cluster.pending else ""
    return warned(controller, {"waiting": waiting} if waiting else {}, commands=commands)


def check_own_marks(context: CheckContext) -> CheckVerdict:
    """Condition and labels of a remediator that may be gone."""
    cluster, view = context.facts.cluster, context.facts.view
    if cluster is None or view is None:
        return skipped("not read")
    node = cluster.node
    if node.condition is None and LABELS not in node.annotations:
        return skipped("gpuwatch has written nothing on this Node")
    if not context.config.remediation.heartbeat:
        return skipped("it cannot be known whether a remediator works: remediation.heartbeat is 0")
    silent = _silent(cluster, context.facts.at)
    if silent is None:
        return passed("a remediator keeps them up to date")
    policy = Policy.compile(context.config.remediation, CHECKS, context.config.checks.xids)
    wrong = outdated(node, values(view, degraded=bool(in_force(view, policy, Response.CONDITION))))
    untrue = f"; no longer true: {', '.join(f'{key}={value}' for key, value in sorted(wrong.items()))}" if wrong else ""
    return warned(f"{silent}{untrue}", wrong)


NOT_OURS = (
    "No new GPU work comes here while it is there, and gpuwatch leaves alone what it did not put there. If there "
    "is no reason for it, remove it."
)
MANUAL = "No new work comes here until a person releases the node. When the reason is gone, release it."
HELD = "Have the GPU looked at: the fault came back too often, or is not cured by a reset. Then release the node."
UNKNOWN_WITHOUT_AGENT = (
    "Ask the agent of this node (gpuwatch status). If everything is healthy and no remediator works here, release the "
    "node."
)
SOON = "The remediator releases the node by itself after remediation.recovery_hold (5 min). If not, release it."

NODE: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "L04", CheckStage.CLUSTER, "gpuwatch's taint stands for a fault that is there",
        how="Node taint gpuwatch.io/gpu-fault, annotations gpuwatch.io/owner and gpuwatch.io/faults, findings of the "
        "View",
        remedy="Nothing removes this taint: start the remediator again (mode enforce), which releases the node after "
        "its hold, or release the node by hand.",
        commands=(STATUS, RELEASE),
        judge=check_taint, needs=("N03", "N04"), reads=("cluster", "view"),
    ),
    DiagnosticCheck(
        "L06", CheckStage.CLUSTER, "the Node is Ready",
        how="Node conditions Ready, NetworkUnavailable, MemoryPressure, DiskPressure, PIDPressure",
        remedy="The control plane gets no report, or a bad one, from this node's kubelet: check that it runs, and "
        "read its log. Under DiskPressure or MemoryPressure pods are evicted: free space first.",
        commands=(CONDITIONS, "systemctl status kubelet", "journalctl -u kubelet --since -15min"),
        judge=check_conditions, needs=("K01",), reads=("cluster",),
    ),
    DiagnosticCheck(
        "L07", CheckStage.CLUSTER, "no other controller has taken the node out of service",
        how="spec.unschedulable, deletion, and the labels, annotations and taints of other controllers",
        remedy="New work is kept away on purpose. Ask who did it, or wait for that controller; gpuwatch does not act "
        "meanwhile.",
        commands=(CONDITIONS,),
        judge=check_other_controllers, reads=("cluster",),
    ),
    DiagnosticCheck(
        "L09", CheckStage.CLUSTER, "what gpuwatch says of the node is kept up to date",
        how="time of the condition GPUHealthy; labels listed in the annotation gpuwatch.io/labels against the View",
        remedy="Labels and a condition are no longer renewed, but still used. Start the remediator again (mode "
        "enforce), or remove what it left.",
        commands=(STATUS, f"{RELEASE} --forget"),
        judge=check_own_marks, needs=("N03", "N04"), reads=("cluster", "view"),
    ),
)  # fmt: skip
