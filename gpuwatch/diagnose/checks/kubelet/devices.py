"""Devices that the kubelet allocates: their number, their health, and that pods use only those they were given."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.kubelet.capacity import (
    DOMAIN,
    expected_devices,
    gpus_without_device,
    healthy_devices,
    is_shared,
    nvidia_resources,
)
from gpuwatch.diagnose.checks.per_gpu import gpu_list
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.model.text import shell_word
from gpuwatch.model.workload import DeviceUse, Workload
from gpuwatch.workloads.devices import is_ambiguous, parse_device_id

NO_KUBELET = "no kubelet on this machine"
DEPLOY = f"{DOMAIN}/gpu.deploy.device-plugin"
RESTART_PLUGIN = "kubectl delete pod -A --field-selector spec.nodeName={node} -l app=nvidia-device-plugin-daemonset"
PLUGIN_LOG = "kubectl -n gpu-operator logs -l app=nvidia-device-plugin-daemonset --all-containers --tail=100"
SHOW_NODE = 'kubectl get node {node} -o jsonpath=\'{.status.capacity}{"\\n"}{.status.allocatable}{"\\n"}\''
GROUND = ("N02", "N03", "N04", "G05", "M01", "M02", "M03", "M04", "K02")
"""GPUs that are lost, after a fatal XID or amid a change of MIG are rightly not advertised."""
MPS = "nvidia-cuda-mps"


def _exempt(facts: NodeFacts) -> str | None:
    """Why there are no devices to count."""
    kubelet, cluster = facts.kubelet, facts.cluster
    if kubelet is not None and not kubelet.present:
        return NO_KUBELET
    counted = nvidia_resources(cluster.node.capacity) if cluster else {}
    if not any(counted.values()) and kubelet is not None and kubelet.dra and not kubelet.plugins:
        return f"devices are given by claims ({kubelet.dra[0]}), not counted"
    switched = facts.node_labels.get(DEPLOY, "true")
    if cluster is not None and not any(counted.values()) and switched == "false":
        return f"no device plugin is wanted here: label {DEPLOY}=false"
    if cluster is not None and not counted and any(name.startswith("nvidia.com/") for name in cluster.node.capacity):
        return f"advertised under other names: {', '.join(sorted(cluster.node.capacity))}"
    return None


def check_capacity(context: CheckContext) -> CheckVerdict:
    """Node.status.capacity against GPUs and MIG instances, times the slots of each."""
    cluster, view = context.facts.cluster, context.facts.view
    reason = _exempt(context.facts)
    if reason or cluster is None or view is None:
        return skipped(reason or "not read")
    there = nvidia_resources(cluster.node.capacity)
    wanted = expected_devices(view.snapshot.gpus, context.facts.node_labels, there)
    if wanted is None:
        return skipped("MIG is on, and the Node has no label nvidia.com/mig.strategy that says how it is advertised")
    wrong = {name: count for name, count in wanted.items() if there.get(name, 0) != count}
    if not wrong:
        return passed(_counts(there))
    name, count = next(iter(wrong.items()))
    gpus = gpus_without_device(context.facts, view.snapshot.gpus)
    evidence = {each: f"capacity {there.get(each, 0)}, by NVML {wanted[each]}" for each in wrong}
    return failed(f"{name}: capacity {there.get(name, 0)}, by NVML {count}", evidence, gpus=gpus)


def check_allocatable(context: CheckContext) -> CheckVerdict:
    """Allocatable against capacity; without the API the kubelet's checkpoint against NVML."""
    facts = context.facts
    if reason := _exempt(facts):
        return skipped(reason)
    gpus = facts.view.snapshot.gpus if facts.view else ()
    registered = healthy_devices(facts)
    if facts.cluster is not None:
        there, wanted = nvidia_resources(facts.cluster.node.allocatable), nvidia_resources(facts.cluster.node.capacity)
    elif registered is not None and facts.view is not None:
        there = {name: len(ids) for name, ids in registered.items()}
        wanted = expected_devices(gpus, {}, there) or there
    else:
        return skipped(f"not read: {facts.unread.get('cluster', 'neither the Node nor the checkpoint of the kubelet')}")
    short = {name: count for name, count in wanted.items() if there.get(name, 0) < count}
    if not short:
        return passed(_counts(there))
    name, count = next(iter(short.items()))
    missing = gpus_without_device(facts, gpus)
    unhealthy = f"; the device plugin calls {gpu_list(missing)} unhealthy" if missing else ""
    evidence = {each: f"{there.get(each, 0)} of {short[each]}" for each in short}
    pods = (facts.cluster.pods or ()) if facts.cluster else ()
    plugin = next((pod for pod in pods if "device-plugin" in pod.name and "nvidia" in pod.name), None)
    restart = (
        () if plugin is None else (f"kubectl -n {shell_word(plugin.namespace)} delete pod {shell_word(plugin.name)}",)
    )
    commands = ("dmesg -T | grep -i xid", SHOW_NODE, *(restart or (RESTART_PLUGIN,)))
    message = f"{name}: {there.get(name, 0)} of {count} allocatable{unhealthy}"
    return failed(message, evidence, gpus=missing, commands=commands)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "no devices"


def check_allocations(context: CheckContext) -> CheckVerdict:
    """Every device given to a pod exists, and no exclusive device was given twice."""
    view = context.facts.view
    if reason := _unattributed(context.facts):
        return skipped(reason)
    attribution = view.attribution if view else None
    if attribution is None:
        return skipped("not read")
    unknown = [each for each in attribution.unknown_devices if parse_device_id(each) is not None]
    ambiguous = [each for each in unknown if view and is_ambiguous(each, view.snapshot.gpus)]
    if stale := [each for each in unknown if each not in ambiguous]:
        others = f" and {len(stale) - 1} more" if len(stale) > 1 else ""
        return failed(
            f"a container was given {stale[0]}{others}, which this node does not have",
            {each: "allocated, not in NVML" for each in stale},
        )
    if ambiguous:
        return skipped(f"the driver does not report where MIG instances lie: {ambiguous[0]} may be one of several")
    pods = (context.facts.cluster.pods or ()) if context.facts.cluster else ()
    phases = {pod.path: pod.phase for pod in pods}
    twice: dict[DeviceUse, list[str]] = {}
    for device in attribution.devices:  # finished pods, which old kubelets still list, are left out
        given = [h for h in device.holders if h.resource and is_shared(context.facts, h.resource) is False]
        names = list(dict.fromkeys(f"{h.workload.namespace}/{h.workload.pod}" for h in given))
        names = [name for name in names if phases.get(name) not in ("Succeeded", "Failed")]
        if len(names) > 1:
            twice[device] = names
    if not twice:
        held = sum(1 for device in attribution.devices if device.allocated)
        return passed(f"{held} of {len(attribution.devices)} devices given to pods")
    device, names = next(iter(twice.items()))
    message = f"{device.mig or device.gpu} was given to {' and '.join(names)}"
    evidence = {each.mig or each.gpu: ", ".join(pods) for each, pods in twice.items()}
    answer = failed if all(phases.get(name) == "Running" for name in names) else warned
    commands = ("kubectl get pods -A -o wide",)
    return answer(message, evidence, gpus=_indexes(context, twice), remedy=DOUBLE, commands=commands)


DOUBLE = (
    "The kubelet has lost track of its devices, most likely while its checkpoint was broken (K06). Delete the younger "
    "of the pods; if it comes back onto the same GPU, drain the node and restart the kubelet."
)


def check_unassigned_processes(context: CheckContext) -> CheckVerdict:
    """Processes of pods on devices that the kubelet gave to other pods or to none."""
    view = context.facts.view
    reason = _unattributed(context.facts)
    if reason or view is None:
        return skipped(reason or "not read")
    servers = {o.workload for o in view.owners if o.workload and (o.name or "").startswith(MPS[:15])}
    owned = {(w.namespace, w.pod) for w in servers}
    found: dict[DeviceUse, list[Workload]] = {}
    for device in view.attribution.devices:
        unassigned = [h.workload for h in device.holders if h.resource is None]
        if unassigned := [w for w in unassigned if (w.namespace, w.pod) not in owned]:
            found[device] = unassigned
    if not found:
        return passed("processes are where their pods were given devices")
    gpus = _indexes(context, found)
    first = next(iter(found.values()))[0]
    evidence = {d.mig or d.gpu: ", ".join(map(_named, workloads)) for d, workloads in found.items()}
    return warned(f"{_named(first)} uses {gpu_list(gpus)}, which it was not given", evidence, gpus=gpus)


def _named(workload: Workload) -> str:
    return f"{workload.namespace}/{workload.pod}" if workload.pod else f"pod {workload.pod_uid}"


def _indexes(
    context: CheckContext, devices: dict[DeviceUse, list[str]] | dict[DeviceUse, list[Workload]]
) -> tuple[int, ...]:
    index = {status.identity.uuid: status.identity.index for status in context.statuses}
    return tuple(sorted({index[device.gpu] for device in devices if device.gpu in index}))


def _unattributed(facts: NodeFacts) -> str | None:
    """Why the kubelet's allocations are not known; None: they are."""
    if facts.kubelet is not None and not facts.kubelet.present:
        return NO_KUBELET
    sources = facts.view.snapshot.sources if facts.view else ()
    asked = next((source for source in sources if source.name == "podresources"), None)
    if asked is None or asked.up:
        return None if asked else "the kubelet was not asked which pods have devices"
    return f"not read: {asked.reason}" if asked.reason else "the kubelet did not report which pods have devices"


KUBELET_DEVICES: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "K03", CheckStage.KUBELET, "the Node's capacity is what NVML counts",
        how="Node.status.capacity nvidia.com/*; NVML's GPUs and MIG instances by nvidia.com/mig.strategy, times "
        "nvidia.com/<resource>.replicas",
        remedy="The device plugin looks at the GPUs only when it starts. Once all GPUs are healthy, restart its pod "
        "here; running pods keep their GPUs.",
        commands=(SHOW_NODE, RESTART_PLUGIN, PLUGIN_LOG),
        judge=check_capacity, needs=GROUND, reads=("cluster", "view"),
    ),
    DiagnosticCheck(
        "K04", CheckStage.KUBELET, "all devices are allocatable",
        how="Node.status.allocatable against capacity; RegisteredDevices of kubelet_internal_checkpoint tells which "
        "are healthy",
        remedy="The device plugin keeps a GPU unhealthy after a critical XID. Find the XID in the kernel log, do what "
        "it asks for (gpuwatch xid explain), then restart the plugin's pod here.",
        commands=("dmesg -T | grep -i xid", SHOW_NODE, RESTART_PLUGIN),
        judge=check_allocatable, needs=(*GROUND, "K03"),
    ),
    DiagnosticCheck(
        "K05", CheckStage.KUBELET, "pods hold devices that exist, one pod each",
        how="pod-resources List against NVML's uuids; one holder for a device that is not shared",
        remedy="The pod's device is gone: MIG was cut again, or a GPU was replaced. Delete the pod; the next one gets "
        "an existing device.",
        commands=("gpuwatch get pods", "kubectl get pods -A -o wide --field-selector spec.nodeName={node}"),
        judge=check_allocations, needs=("K01", "N03", "N04"), reads=("view",),
    ),
    DiagnosticCheck(
        "K09", CheckStage.KUBELET, "pods use only the GPUs they were given",
        how="NVML's processes, their cgroups, and pod-resources List",
        remedy="The pod got the GPU past the scheduler: NVIDIA_VISIBLE_DEVICES=all, privileged, or /dev of the host. "
        "Inform its owner. To forbid it: accept-nvidia-visible-devices-envvar-when-unprivileged = false in the "
        "toolkit's config.toml, with a device plugin that passes devices as volume mounts or by CDI.",
        commands=("gpuwatch get processes", "kubectl get pods -A -o wide --field-selector spec.nodeName={node}"),
        judge=check_unassigned_processes, needs=("K01", "N04"), reads=("view",),
    ),
)  # fmt: skip
