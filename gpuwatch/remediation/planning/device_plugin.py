"""Restarts a device plugin that still withholds a GPU which has recovered: its pod on this Node is evicted.

The problem. NVIDIA's plugin withholds a GPU after some XIDs and offers it again only after a restart, so a GPU that was
repaired stays idle until a person deletes the plugin's pod. Running pods keep their GPUs, and the plugin's DaemonSet
creates another pod. But a plugin that starts offers every GPU, sick ones too. Under our taint it would not even start:
its DaemonSet does not tolerate that taint. And it may withhold a GPU again for a reason that gpuwatch cannot read.

So it is restarted on a Node without a quarantine, when only the plugin's own list has been wrong for the recovery hold,
and that list names no other GPU. And it is restarted at most once in two days, as the name of its Event is remembered;
where that memory was lost, the pod must be at least a day old.
"""

from gpuwatch.kube.objects import PodObject
from gpuwatch.model.finding import Severity
from gpuwatch.model.text import visible
from gpuwatch.remediation.model import BlockReason, CreateEvent, Evict
from gpuwatch.remediation.planning.draining import OVER
from gpuwatch.remediation.planning.inputs import PlanDraft, PlanInputs, blocked, digest
from gpuwatch.remediation.planning.ownership import ClaimState
from gpuwatch.remediation.planning.quarantine import new_is_barred

WITHHELD = "gpu_not_allocatable"
MIN_AGE = 86400.0
"""Least age of the plugin's pod in seconds; its creation is by the API server's clock, the present by ours."""


def restart_plugin(inputs: PlanInputs, draft: PlanDraft) -> PlanDraft:
    """The draft of a Node in service with the eviction of the plugin's pod, where `restart_plugin` asks for it."""
    config, view, now = inputs.policy.config, inputs.view, inputs.now
    findings = view.judgement.findings
    found = {each.gpu: each.since or now for each in findings if each.check == WITHHELD}
    in_service = inputs.is_fresh and inputs.claim is ClaimState.NONE and not draft.quarantined
    if not (config.restart_plugin and found and view.attribution.withheld and in_service):
        return draft
    others = [each for each in findings if each.check != WITHHELD and each.severity is not Severity.INFO]
    proven = {each.gpu for each in view.validations if each.passed and each.boot_id == view.snapshot.host.boot_id}
    name, hold = digest("restart_plugin", inputs.node.uid), config.recovery_hold
    namespace, _, daemon_set = config.restart_plugin.partition("/")
    pod = next((each for each in inputs.pods or () if _is_of(each, namespace, daemon_set)), None)
    is_old = pod is not None and (pod.created or now) < min(*found.values(), now - MIN_AGE)
    table = (
        (BlockReason.MODE, config.mode != "enforce", f"mode is {config.mode}"),
        (BlockReason.RATE, name in inputs.memory.announced, "it was, within two days"),
        (BlockReason.HOLD, bool(others) or set(view.attribution.withheld) != set(found), "it would count in sick ones"),
        (BlockReason.HOLD, inputs.observation.clean_for < hold, f"all must be healthy for {hold:.0f} s"),
        (
            BlockReason.VALIDATION,
            config.validate == "active" and not proven.issuperset(found),
            "it has not been proven",
        ),
        (BlockReason.MAINTENANCE, not inputs.policy.may_drain(now), "only in the windows of remediation.drain.windows"),
        (BlockReason.RATE, inputs.pods is not None and not is_old, "no pod here, or started since or within a day"),
    )
    why = f"{config.restart_plugin} counts out a healthy GPU and is not restarted: "
    obstacles = [blocked(reason, why + detail) for reason, holds, detail in table if holds]
    obstacles += new_is_barred(inputs, cordoned=False)
    if obstacles or (pod is not None and pod.deleting):
        return draft.replace(blocked=(*draft.blocked, *obstacles))
    if pod is None:
        return draft.replace(needs=draft.needs | {"pods"})
    gpus = ", ".join(sorted(map(str, found)))
    message = f"{pod.path} is asked to leave, to be restarted: it counts out {gpus}, which gpuwatch finds healthy"
    about = (pod.namespace, pod.name, pod.uid)
    event = CreateEvent(name=name, reason="GPUPluginRestart", message=visible(message), warning=False, pod=about)
    return draft.replace(message=f"{draft.message}; {message}", after=(*draft.after, event, Evict(pod=pod)))


def _is_of(pod: PodObject, namespace: str, daemon_set: str) -> bool:
    owner = (pod.namespace, pod.controller, pod.controller_name)
    return owner == (namespace, "DaemonSet", daemon_set) and pod.phase not in OVER
