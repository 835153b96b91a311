"""The restart of a device plugin that counts out a GPU which is well again: its pod on this Node is evicted.

The problem. NVIDIA's plugin takes a GPU out after some XIDs and takes it back only when it starts anew, so a GPU that
was repaired stays idle until a person deletes a pod. The eviction itself is harmless: pods that run keep their GPUs,
and the plugin's DaemonSet makes another pod. What comes back is the harm: a plugin that starts counts every GPU in.

So nothing is done while the plugin keeps out one GPU that gpuwatch does not find well, or while anything else asks for
a condition. And it must not become a loop, where a GPU is counted out again for what gpuwatch cannot read: a pod that
is younger than the finding, or than a day, is left alone. The pod's own age is the record, so none can be lost.
"""

from gpuwatch.kube.objects import PodObject
from gpuwatch.model.finding import Response
from gpuwatch.model.text import visible
from gpuwatch.remediation.model import BlockReason, CreateEvent, Evict
from gpuwatch.remediation.planning.draining import OVER
from gpuwatch.remediation.planning.evidence import in_force
from gpuwatch.remediation.planning.inputs import PlanDraft, PlanInputs, blocked, digest
from gpuwatch.remediation.planning.node_events import not_yet_created
from gpuwatch.remediation.planning.ownership import ClaimState
from gpuwatch.remediation.planning.quarantine import new_is_barred

COUNTED_OUT = "gpu_not_allocatable"
MIN_AGE = 86400.0
"""Seconds that a plugin's pod has run at least, by the API server's clock for its start and ours for now."""


def restart_plugin(inputs: PlanInputs, draft: PlanDraft) -> PlanDraft:
    """The draft with the eviction of the plugin's pod, where `restart_plugin` asks for it.

    Not in a quarantine of one GPU: no taint would keep pods from it until its hold and its proof are over.
    """
    wanted, view = inputs.policy.config.restart_plugin, inputs.view
    found = [finding for finding in view.judgement.findings if finding.check == COUNTED_OUT]
    tainted = inputs.claim is ClaimState.APPLIED and draft.owner is not None and draft.owner.scope == "node"
    if not (wanted and found and inputs.is_fresh and (tainted or inputs.claim is ClaimState.NONE)):
        return draft
    others = [fault for fault in in_force(view, inputs.policy, Response.CONDITION) if fault.check != COUNTED_OUT]
    if others or set(view.attribution.withheld or ()) != {finding.gpu for finding in found}:
        message = f"{wanted} is not restarted while other GPUs are not well: it would give them to pods again"
        return draft.replace(blocked=(*draft.blocked, blocked(BlockReason.HOLD, message)))
    barred = new_is_barred(inputs, cordoned=tainted)
    if inputs.policy.config.mode != "enforce":  # which has no right to read pods
        barred = (blocked(BlockReason.MODE, f"{wanted} would be restarted: it counts out a GPU that is well"), *barred)
    if barred:
        return draft.replace(blocked=(*draft.blocked, *barred))
    if inputs.pods is None:
        return draft.replace(wants=draft.wants | {"pods"})
    since = max(finding.since or inputs.now for finding in found)
    pod = next((each for each in inputs.pods if _is_of(each, wanted) and each.phase not in OVER), None)
    if pod is None or (pod.created or since) >= min(since, inputs.now - MIN_AGE):
        why = "has no pod on this node" if pod is None else "started there since, or less than a day ago"
        message = f"{wanted} counts out a GPU that is well, and {why}: it is not restarted, a person should look"
        return draft.replace(blocked=(*draft.blocked, blocked(BlockReason.RATE, message)))
    gpus = ", ".join(sorted(str(finding.gpu) for finding in found))
    message = f"{pod.path} is asked to leave, to start anew: it counts out {gpus}, which gpuwatch finds well"
    event = CreateEvent(
        name=digest("restart_plugin", pod.uid),
        reason="GPUPluginRestart",
        message=visible(message),
        warning=False,
        pod=(pod.namespace, pod.name, pod.uid),
    )
    steps = () if pod.deleting else (*not_yet_created((event,), inputs.memory), Evict(pod=pod))
    return draft.replace(message=f"{draft.message}; {message}", after=(*draft.after, *steps))


def _is_of(pod: PodObject, daemon_set: str) -> bool:
    return pod.controller == "DaemonSet" and f"{pod.namespace}/{pod.controller_name}" == daemon_set
