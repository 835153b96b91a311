"""Scope of a quarantine: the whole node, or only its sick GPUs, where the platform itself keeps new work from them.

The problem. A taint for one sick GPU of eight keeps new pods from the other seven GPUs, too. Where NVIDIA's device
plugin reports the GPU unhealthy, the kubelet gives it to no pod any more, and a taint has only disadvantages.

What does not work. To predict whether the plugin does so: it skips some XIDs, it can be configured to skip all, and it
starts with an empty list. To wait for it before any taint: meanwhile pods start on the sick GPU.

The solution. The kubelet's list of allocatable devices shows what holds now. A node is tainted at once; when the list
lacks every sick GPU, and the Node's own figures agree, the taint goes and the claim stays (`Ownership.scope`), with its
slot of the budget, its evictions and its release. Where pods get GPUs by resource claims, DeviceTaintRules do
what the plugin does, and no taint is needed at all. Where a sick GPU is offered again or a pod is started on it, the
node is tainted again, and this quarantine tries the scope `gpu` no more (`distrusted`).
"""

from collections.abc import Sequence

from gpuwatch.kube.objects import DeviceRule
from gpuwatch.model.finding import Health, Remedy
from gpuwatch.model.view import View
from gpuwatch.remediation.model import Fault
from gpuwatch.remediation.planning.evidence import fault_age
from gpuwatch.remediation.planning.inputs import PlanInputs

PLUGIN_SECONDS = 30.0
"""The device plugin reports within so many seconds, and the agent asks the kubelet every 10 to 14 s."""

REBOOTS = (Remedy.RESET_GPU, Remedy.REBOOT_NODE)
"""Remedies for which a node is handed over."""


def why_node(inputs: PlanInputs, faults: Sequence[Fault]) -> str:
    """Why these faults take the whole node, as a clause; empty: the platform keeps new work from each of their GPUs."""
    if why := why_widened(inputs, faults):
        return why
    node, ruled = inputs.node, {device.gpu for device in inputs.devices.devices} if inputs.devices else set()
    gpus = {fault.gpu for fault in faults} - ruled
    if gpus and inputs.view.attribution.withheld is None:
        return "the kubelet does not report which GPUs it may give to pods" + (
            f", and {inputs.devices.why}" if inputs.devices and inputs.devices.why else ""
        )
    if sum(node.capacity.values()) - sum(node.allocatable.values()) < len(gpus):
        return "the Node's status.allocatable has not dropped, so the kubelet's list is not trusted"
    return ""


def why_widened(inputs: PlanInputs, faults: Sequence[Fault]) -> str:
    """What proves that more than the GPUs of these faults has to be taken out, as a clause; empty: nothing does.
    Missing data, as while the kubelet restarts, proves nothing.
    """
    withheld = inputs.view.attribution.withheld
    for fault in faults:
        if why := _not_one_gpu(inputs, fault):
            return why
        if withheld is not None and fault.gpu not in withheld:
            return f"pods are still given the GPU of {fault.place}"
    return ""


def device_rules(inputs: PlanInputs, faults: Sequence[Fault], owner: str) -> tuple[DeviceRule, ...]:
    """A DeviceTaintRule for each device that is a sick GPU, or an instance of one."""
    checks = {fault.gpu: fault.check for fault in reversed(faults)}
    return tuple(
        DeviceRule(
            name=f"gpuwatch-{inputs.node.name}-{device.name}",
            owner=owner,
            pool=device.pool,
            device=device.name,
            value=checks[device.gpu],
            effect=inputs.policy.config.device_effect,
        )
        for device in (inputs.devices.devices if inputs.devices else ())
        if device.gpu in checks
    )


def over_gpu_budget(inputs: PlanInputs, faults: Sequence[Fault]) -> str:
    """Why no further GPU may be taken out by rules; empty: it may."""
    limit, state = inputs.policy.config.budget.max_unavailable_gpus, inputs.devices
    wanted = device_rules(inputs, faults, "")
    if limit is None or state is None or not wanted:
        return ""
    out = {(rule.pool, rule.device) for rule in state.rules} | {(rule.pool, rule.device) for rule in wanted}
    if len(out) <= limit:
        return ""
    return f"{len(out) - len(wanted)} of {limit} GPUs that may be out of service at once are; waiting for one"


def on_this_node(view: View | None) -> str:
    """What scope `gpu` means on the node of a View (None: no agent answers), as a sentence."""
    if view is None:
        return "not known: no agent answers here; run this on a GPU node"
    withheld = view.attribution.withheld
    if withheld is None:
        return "node, as the kubelet does not report which GPUs it may give to pods; gpu for GPUs of resource claims"
    out = [str(each.identity.index) for each in view.snapshot.statuses if each.identity.uuid in withheld]
    now = f"GPU {', '.join(out)} is out now" if out else "none is out now"
    return f"gpu, once the device plugin has taken the sick GPU out ({now}), and node until then"


def open_faults(inputs: PlanInputs, faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """Of a quarantine's faults, those that are still there, or whose GPU is not known to be healthy."""
    judgement = inputs.view.judgement
    present = {finding.key for finding in judgement.findings}
    return tuple(f for f in faults if f.key in present or judgement.gpus.get(f.gpu or "") is not Health.HEALTHY)


def waits_for_plugin(inputs: PlanInputs, faults: Sequence[Fault]) -> str:
    """Why a taint that ends running work has to wait; empty: it need not. Each fault must be of one GPU, and young."""
    if inputs.policy.config.effect != "NoExecute" or inputs.view.attribution.withheld is None:
        return ""
    snapshot = inputs.view.snapshot
    if any(_not_one_gpu(inputs, each) or fault_age(each, snapshot) >= PLUGIN_SECONDS for each in faults):
        return ""
    return (
        f"effect NoExecute ends the work of the healthy GPUs, too: waits {PLUGIN_SECONDS:.0f} s for the device plugin"
    )


def _not_one_gpu(inputs: PlanInputs, fault: Fault) -> str:
    """Why a fault concerns more than its GPU, whatever the platform does; empty: it does not."""
    handover = inputs.policy.config.handover
    if fault.gpu is None:
        return f"{fault.check} is a fault of the node"
    if inputs.policy.scope(fault.check) == "node":
        return f"the scope of {fault.check} is node"
    if (handover.annotation or handover.sentinel) and fault.remedy in REBOOTS:
        return f"{fault.check} is handed over for a reboot, which takes the whole node"
    return ""
