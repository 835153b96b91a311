"""GPUs cut or shared: MIG mode and instances against what the cluster asks for, MPS, time-slicing."""

import re
from collections import Counter

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.nvswitch import PROCESSES_NOT_READ
from gpuwatch.diagnose.checks.per_gpu import gpu_list, verdict_on_gpus
from gpuwatch.diagnose.checks.remedies import DRAIN, RESET
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.model.snapshot import Gpu

CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
SHARING_STRATEGY, MPS_CAPABLE = "nvidia.com/gpu.sharing-strategy", "nvidia.com/mps.capable"
_OF_ONE_PROFILE = re.compile(r"all-((?:\d+c\.)?\d+g\.\d+gb(?:[.+][a-z.+-]+)?)", re.ASCII)
_GPU_INSTANCE = re.compile(r"gpu(\d+)/mig/gi(\d+)/access", re.ASCII)
FULL = 0.95
"""Share of a GPU's usable memory beyond which the next allocation will most likely fail."""
GIB = 1 << 30
MIG_MANAGER = "kubectl get pods -A -l app=nvidia-mig-manager --field-selector spec.nodeName={node}"
MPS_DAEMON = "kubectl get pods -A -o wide --field-selector spec.nodeName={node} | grep mps-control-daemon"


def check_pending(context: CheckContext) -> CheckVerdict:
    capable = [gpu for gpu in context.gpus if gpu.mig_enabled is not None]
    problems = {at: finding.message for at, finding in context.findings("mig_pending") if at is not None}
    for gpu in capable:
        if gpu.mig_pending is not None and gpu.mig_pending != gpu.mig_enabled:
            wanted = "on" if gpu.mig_pending else "off"
            problems.setdefault(gpu.identity.index, f"MIG mode is to be {wanted} after the next reset")
    if problems:
        return verdict_on_gpus(dict(sorted(problems.items())), fatal=True)
    on = sum(bool(gpu.mig_enabled) for gpu in capable)
    return passed(f"MIG is on at {on} of {len(capable)} GPUs") if capable else skipped("no GPU can do MIG")


def check_configuration(context: CheckContext) -> CheckVerdict:
    state, config = context.facts.node_labels.get(STATE), context.facts.node_labels.get(CONFIG, "none")
    if state is None:
        return skipped("no mig-manager: the node has no label mig.config.state")
    message = f"mig.config.state is {state} (mig.config: {config})"
    if state == "failed":
        return failed(message)
    if state in ("pending", "rebooting"):
        return warned(message, remedy="Wait; if this lasts for more than 10 minutes, read mig-manager's log.")
    return passed(message)


def check_instances(context: CheckContext) -> CheckVerdict:
    labels = context.facts.node_labels
    capable = [gpu for gpu in context.gpus if gpu.mig_enabled is not None]
    if not capable:
        return skipped("no GPU can do MIG")
    config = labels.get(CONFIG, "") if labels.get(STATE, "success") == "success" else ""
    broken: dict[int, str] = {}
    for gpu in capable:
        if problem := _without_compute_instance(context, gpu) or _other_than_label(gpu, config):
            broken[gpu.identity.index] = problem
    empty = {gpu.identity.index: "MIG is on, but nothing is cut" for gpu in capable if gpu.mig_enabled and not gpu.mig}
    problems = broken or ({} if config == "all-enabled" else empty)
    if problems:
        return verdict_on_gpus(dict(sorted(problems.items())), fatal=bool(broken))
    profiles = [f"gpu {gpu.identity.index}: {_profiles(gpu)}" for gpu in capable if gpu.mig]
    return passed(", ".join(profiles)) if profiles else skipped("MIG is off")


def _without_compute_instance(context: CheckContext, gpu: Gpu) -> str:
    """GPU instances that the driver shows and that have no compute instance; NVML has no device for them."""
    paths = context.facts.nodes.capabilities if context.facts.nodes else {}
    idle: list[int] = []
    for path in paths:
        match = _GPU_INSTANCE.fullmatch(path)
        if match and int(match[1]) == gpu.identity.minor:
            prefix = f"{path.removesuffix('access')}ci"
            if int(match[2]) not in {m.gi for m in gpu.mig} and not any(p.startswith(prefix) for p in paths):
                idle.append(int(match[2]))
    names = ", ".join(map(str, sorted(idle)))
    return f"GPU instance {names} has no compute instance" if idle and gpu.mig_enabled else ""


def _other_than_label(gpu: Gpu, config: str) -> str:
    """How the GPU differs from a configuration of NVIDIA's own; a site's own names are not judged."""
    if config == "all-disabled":
        return "MIG is on, but the label asks for all-disabled" if gpu.mig_enabled else ""
    asked = _OF_ONE_PROFILE.fullmatch(config)
    if asked is None or {(instance.profile or "").replace("+", ".") for instance in gpu.mig} == {asked[1]}:
        return ""
    return f"{_profiles(gpu) or 'nothing is cut'}, but the label asks for {config}"


def _profiles(gpu: Gpu) -> str:
    counts = Counter(instance.profile or "?" for instance in gpu.mig)
    return ", ".join(f"{count}x {profile}" for profile, count in sorted(counts.items()))


def check_strategy(context: CheckContext) -> CheckVerdict:
    """By the rules of the device plugin and of GPU feature discovery."""
    cluster, cut = context.facts.cluster, [gpu for gpu in context.gpus if gpu.mig_enabled]
    if not cut:
        return skipped("MIG is off")
    plugin = (cluster.plugin_environment if cluster else None) or {}
    wanted = context.facts.node_labels.get("nvidia.com/mig.strategy") or plugin.get("MIG_STRATEGY")
    if wanted is None:
        return skipped("the MIG strategy is not known: there is no label, and no pod of the device plugin")
    profiles = sorted({instance.profile or "?" for gpu in cut for instance in gpu.mig})
    whole = tuple(gpu.identity.index for gpu in context.gpus if not gpu.mig_enabled)
    gpus, wrong = tuple(gpu.identity.index for gpu in cut), ""
    if wanted == "single" and len(profiles) > 1:
        wrong = f"strategy single, but the instances are {' and '.join(profiles)}"
    elif wanted == "single" and whole:
        wrong = f"strategy single, but MIG is off at {gpu_list(whole)}"
    elif context.facts.node_labels.get("nvidia.com/gpu.product", "").endswith("MIG-INVALID"):
        wrong = f"the label gpu.product ends in MIG-INVALID (strategy {wanted})"
    if wrong:
        return failed(wrong, gpus=gpus)
    if wanted == "none":
        return warned(f"strategy none, but MIG is on at {gpu_list(gpus)}: handed out whole, of no use")
    return passed(f"{wanted}: {', '.join(profiles) or 'nothing is cut'}")


def check_mps(context: CheckContext) -> CheckVerdict:
    """GPU feature discovery sets mps.capable only where the device plugin is to share by MPS."""
    services, labels = context.facts.services, context.facts.node_labels
    runs = services.runs("nvidia-cuda-mps-control") if services else None
    if services is None or runs is None:
        return skipped(PROCESSES_NOT_READ)
    if labels.get(SHARING_STRATEGY) != "mps" and labels.get(MPS_CAPABLE) != "true":
        if runs:
            return passed("a daemon runs, though the cluster advertises no MPS")
        was_asked = context.facts.cluster is not None
        return skipped("no GPU is shared by MPS" if was_asked else "no MPS daemon; the Node's labels were not read")
    if not runs:
        return failed("GPUs are advertised as shared by MPS, but no MPS control daemon runs")
    if services.sockets is not None and not any("mps" in path for path in services.sockets):
        return failed("an MPS control daemon runs, but its pipe is not below /run/nvidia/mps")
    return passed("the control daemon runs")


def check_oversubscription(context: CheckContext) -> CheckVerdict:
    """Judged by memory in use, not by what is requested: slots have no size."""
    if context.facts.node_labels.get(SHARING_STRATEGY) == "mps":
        return skipped("MPS limits the memory of each")
    devices = context.facts.view.attribution.devices if context.facts.view else ()
    texts: dict[int, str] = {}
    full: list[int] = []
    for gpu in context.gpus:
        sharers = {holder.workload for d in devices if d.gpu == gpu.identity.uuid for holder in d.holders}
        if gpu.mig_enabled or len(sharers) < 2:
            continue
        index, memory = gpu.identity.index, gpu.memory
        usable = (memory.total or 0) - (memory.reserved or 0)
        texts[index] = f"{len(sharers)} sharers"
        if memory.used is not None and memory.total is not None:
            texts[index] += f" hold {memory.used / GIB:.1f} of {usable / GIB:.1f} GiB"
        if memory.used is not None and usable > 0 and memory.used / usable >= FULL:
            full.append(index)
    if not texts:
        return skipped("no GPU is held by several workloads")
    evidence = {f"gpu {index}": text for index, text in texts.items()}
    if full:
        return warned(f"{gpu_list(tuple(full))}: {texts[full[0]]}", evidence, gpus=tuple(full))
    return passed(f"{gpu_list(tuple(texts))}, {next(iter(texts.values()))}", evidence)


SHARING: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "M01", CheckStage.SHARING, "no change of MIG mode waits for a reset",
        how="nvmlDeviceGetMigMode: current and pending; finding mig_pending",
        remedy="The mode changes only by a reset with no program on the GPU. Drain the node, stop DCGM, "
        "nvidia-persistenced and the pods of device plugin and exporters, then reset; in a virtual machine "
        "reboot. To keep the old mode: nvidia-smi -i {gpu} -mig 0 (or 1). With the GPU operator leave it to "
        "mig-manager: set the label nvidia.com/mig.config.",
        commands=(DRAIN, RESET, "nvidia-smi -i {gpu} --query-gpu=mig.mode.current,mig.mode.pending --format=csv"),
        judge=check_pending, needs=("N04",), reads=("view",), each=True,
    ),
    DiagnosticCheck(
        "M02", CheckStage.SHARING, "mig-manager has done what the label asks for",
        how="node label nvidia.com/mig.config.state",
        remedy="Read mig-manager's log: most often a program had a GPU open, or the ConfigMap lacks the "
        "configuration. Correct it and let it try again: set the label nvidia.com/mig.config to another "
        "configuration and back.",
        commands=(MIG_MANAGER, "kubectl logs -n gpu-operator -l app=nvidia-mig-manager --tail=50", "nvidia-smi"),
        judge=check_configuration, needs=("N02",), reads=("cluster",),
    ),
    DiagnosticCheck(
        "M03", CheckStage.SHARING, "MIG instances are whole, and those the label asks for",
        how="MIG devices by NVML; GPU instances of /proc/driver/nvidia/capabilities; node label nvidia.com/mig.config",
        remedy="Cutting was done by hand or interrupted, and the missing instances cannot be allocated. When the GPU "
        "is free, cut it again: with the GPU operator set the label nvidia.com/mig.config to another "
        "configuration and back; else nvidia-mig-parted apply, or nvidia-smi mig -cci for a GPU instance "
        "without compute instance. Then restart the device plugin.",
        commands=("nvidia-smi mig -lgi", "nvidia-smi mig -lci", "nvidia-smi mig -cci -i {gpu}"),
        judge=check_instances, needs=("N04", "M01", "M02"), reads=("view",), each=True,
    ),
    DiagnosticCheck(
        "M04", CheckStage.SHARING, "the MIG strategy fits how GPUs are cut",
        how="node label nvidia.com/mig.strategy, else MIG_STRATEGY of the device plugin, against the MIG devices; "
        "nvidia.com/gpu.product ending in MIG-INVALID",
        remedy="With the strategy single the device plugin advertises nothing unless all GPUs are cut into one "
        "profile. Use the strategy mixed (GPU operator: mig.strategy=mixed of the ClusterPolicy; device "
        "plugin: MIG_STRATEGY=mixed), or cut all alike by the label nvidia.com/mig.config.",
        commands=("nvidia-smi -L",
                  "kubectl get node {node} -L nvidia.com/mig.strategy,nvidia.com/gpu.product,nvidia.com/mig.config"),
        judge=check_strategy, needs=("N02", "M01", "M02"), reads=("view", "cluster"),
    ),
    DiagnosticCheck(
        "M05", CheckStage.SHARING, "the MPS control daemon runs where GPUs are shared by MPS",
        how="node labels nvidia.com/gpu.sharing-strategy and nvidia.com/mps.capable; the process "
        "nvidia-cuda-mps-control; its pipe below /run/nvidia/mps",
        remedy="Pods with such a slot fail in cuInit, or wait. Restart this node's MPS control daemon of the device "
        "plugin, then the device plugin. It runs only on nodes labelled nvidia.com/mps.capable=true, and not "
        "with MIG.",
        commands=(MPS_DAEMON, "ls -lR /run/nvidia/mps"),
        judge=check_mps, needs=("D01",), reads=("services",),
    ),
    DiagnosticCheck(
        "M06", CheckStage.SHARING, "the memory of time-sliced GPUs is enough for those who share it",
        how="memory in use against the total of GPUs that several workloads hold",
        remedy="Time-slicing does not divide memory: the next allocation fails with out of memory. Configure fewer "
        "replicas in the device plugin, move a pod, or limit each (PyTorch: "
        "torch.cuda.set_per_process_memory_fraction). MIG and MPS divide memory.",
        commands=("gpuwatch get processes", "nvidia-smi"),
        judge=check_oversubscription, needs=("N04",), reads=("view",), each=True,
    ),
)  # fmt: skip
