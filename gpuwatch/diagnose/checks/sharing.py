"""GPUs cut or shared: MIG, MPS, time-slicing."""

import re
from collections import Counter
from collections.abc import Iterator

from gpuwatch.diagnose.check import (
    CheckContext,
    CheckVerdict,
    DiagnosticCheck,
    failed,
    gpu_list,
    passed,
    skipped,
    warned,
)
from gpuwatch.diagnose.checks.nvswitch import UNSEEN
from gpuwatch.diagnose.checks.remedies import DRAIN, RESET
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.model.snapshot import Gpu
from gpuwatch.model.workload import Workload

CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
STRATEGY, PRODUCT = "nvidia.com/mig.strategy", "nvidia.com/gpu.product"
SINGLE, NONE = "single", "none"
AT_WORK = ("pending", "rebooting")
_OF_ONE_PROFILE = re.compile(r"all-((?:\d+c\.)?\d+g\.\d+gb(?:[.+][a-z.+-]+)?)", re.ASCII)
_GPU_INSTANCE = re.compile(r"gpu(\d+)/mig/gi(\d+)/access", re.ASCII)


def labels(context: CheckContext) -> dict[str, str]:
    """The node's; empty without a cluster."""
    return context.node_labels


def pending(context: CheckContext) -> CheckVerdict:
    """M01."""
    capable = [gpu for gpu in context.gpus if gpu.mig_enabled is not None]
    words = {at: finding.message for at, finding in context.findings("mig_pending") if at is not None}
    for gpu in capable:
        if gpu.mig_pending is not None and gpu.mig_pending != gpu.mig_enabled:
            wanted = "on" if gpu.mig_pending else "off"
            words.setdefault(gpu.identity.index, f"MIG mode is to be {wanted} after the next reset")
    if not words:
        on = sum(bool(gpu.mig_enabled) for gpu in capable)
        return passed(f"MIG is on at {on} of {len(capable)} GPUs") if capable else skipped("no GPU can do MIG")
    gpus = tuple(sorted(words))
    evidence = {f"gpu {index}": said for index, said in sorted(words.items())}
    return failed(f"{gpu_list(gpus)}: {words[gpus[0]]}", evidence, gpus=gpus)


def configuration(context: CheckContext) -> CheckVerdict:
    """M02."""
    state, config = labels(context).get(STATE), labels(context).get(CONFIG, "none")
    if state is None:
        return skipped("no mig-manager: the node has no label mig.config.state")
    message = f"mig.config.state is {state} (mig.config: {config})"
    if state == "failed":
        return failed(message)
    return (
        warned(message, remedy="Wait; if this lasts for more than 10 minutes, read mig-manager's log.")
        if (state in AT_WORK)
        else passed(message)
    )


def instances(context: CheckContext) -> CheckVerdict:
    """M03."""
    capable = [gpu for gpu in context.gpus if gpu.mig_enabled is not None]
    if not capable:
        return skipped("no GPU can do MIG")
    config = labels(context).get(CONFIG, "") if labels(context).get(STATE, "success") == "success" else ""
    broken = {gpu.identity.index: said for gpu in capable if (said := _broken(context, gpu) or _other(gpu, config))}
    empty = {gpu.identity.index: "MIG is on, but nothing is cut" for gpu in capable if gpu.mig_enabled and not gpu.mig}
    words = broken or ({} if config == "all-enabled" else empty)
    if words:
        gpus = tuple(sorted(words))
        evidence = {f"gpu {index}": said for index, said in sorted(words.items())}
        say = failed if broken else warned
        return say(f"{gpu_list(gpus)}: {words[gpus[0]]}", evidence, gpus=gpus)
    cut = [gpu for gpu in capable if gpu.mig]
    whole = ", ".join(f"gpu {gpu.identity.index}: {_profiles(gpu)}" for gpu in cut)
    return passed(whole) if cut else skipped("MIG is off")


def strategy(context: CheckContext) -> CheckVerdict:
    """M04, as the device plugin and GPU feature discovery demand it."""
    cluster, cut = context.facts.cluster, [gpu for gpu in context.gpus if gpu.mig_enabled]
    if not cut:
        return skipped("MIG is off")
    wanted = labels(context).get(STRATEGY) or ((cluster and cluster.plugin_environment) or {}).get("MIG_STRATEGY")
    if wanted is None:
        return skipped("not seen: the MIG strategy, for want of a label and of the device plugin's pod")
    wrong = _wrong_single(context, cut) if wanted == SINGLE else ""
    if not wrong and labels(context).get(PRODUCT, "").endswith("MIG-INVALID"):
        wrong = f"the label gpu.product ends in MIG-INVALID (strategy {wanted})"
    gpus = tuple(gpu.identity.index for gpu in cut)
    if wrong:
        return failed(wrong, gpus=gpus)
    if wanted == NONE:
        return warned(f"strategy none, but MIG is on at {gpu_list(gpus)}: handed out whole, of no use")
    return passed(f"{wanted}: {', '.join(_names(cut)) or 'nothing is cut'}")


def _wrong_single(context: CheckContext, cut: list[Gpu]) -> str:
    whole = tuple(gpu.identity.index for gpu in context.gpus if not gpu.mig_enabled)
    if len(_names(cut)) > 1:
        return f"strategy single, but the instances are {' and '.join(_names(cut))}"
    return f"strategy single, but MIG is off at {gpu_list(whole)}" if whole else ""


def _names(cut: list[Gpu]) -> list[str]:
    return sorted({instance.profile or "?" for gpu in cut for instance in gpu.mig})


def _broken(context: CheckContext, gpu: Gpu) -> str:
    """GPU instances that the driver shows and that have no compute instance; NVML has no device for them."""
    used = {instance.gi for instance in gpu.mig}
    idle = sorted(gi for gi in _gpu_instances(context, gpu) if gi not in used)
    return f"GPU instance {', '.join(map(str, idle))} has no compute instance" if idle and gpu.mig_enabled else ""


def _gpu_instances(context: CheckContext, gpu: Gpu) -> Iterator[int]:
    paths = context.facts.nodes.capabilities if context.facts.nodes else {}
    for path in paths:
        match = _GPU_INSTANCE.fullmatch(path)
        if match and int(match[1]) == gpu.identity.minor:
            folder = path.removesuffix("access")
            if not any(other.startswith(f"{folder}ci") for other in paths):
                yield int(match[2])


def _other(gpu: Gpu, config: str) -> str:
    """What is not as a configuration of NVIDIA's own asks for; names that a site has given say nothing."""
    if config == "all-disabled":
        return "MIG is on, but the label asks for all-disabled" if gpu.mig_enabled else ""
    asked = _OF_ONE_PROFILE.fullmatch(config)
    if asked is None:
        return ""
    if gpu.mig and {(instance.profile or "").replace("+", ".") for instance in gpu.mig} == {asked[1]}:
        return ""
    return f"{_profiles(gpu) or 'nothing is cut'}, but the label asks for {config}"


def _profiles(gpu: Gpu) -> str:
    counts = Counter(instance.profile or "?" for instance in gpu.mig)
    return ", ".join(f"{count}x {profile}" for profile, count in sorted(counts.items()))


SHARING_STRATEGY, MPS_CAPABLE = "nvidia.com/gpu.sharing-strategy", "nvidia.com/mps.capable"
DAEMON = "nvidia-cuda-mps-control"
FULL = 0.95
"""Share of a GPU's usable memory beyond which the next allocation will most likely fail."""
GIB = 1 << 30


def mps(context: CheckContext) -> CheckVerdict:
    """M05. GPU feature discovery sets mps.capable only where the device plugin is to share by MPS."""
    services, cluster = context.facts.services, context.facts.cluster
    runs = services.runs(DAEMON) if services else None
    wanted = labels(context).get(SHARING_STRATEGY) == "mps" or labels(context).get(MPS_CAPABLE) == "true"
    if services is None or runs is None:
        return skipped(UNSEEN)
    if not wanted:
        if runs:
            return passed("a daemon runs, though the cluster advertises no MPS")
        return skipped("nobody shares by MPS" if cluster else "no MPS daemon; the cluster was not asked for its labels")
    if not runs:
        return failed("GPUs are advertised as shared by MPS, but no MPS control daemon runs")
    if services.sockets is not None and not any("mps" in path for path in services.sockets):
        return failed("an MPS control daemon runs, but its pipe is not below /run/nvidia/mps")
    return passed("the control daemon runs")


def oversubscription(context: CheckContext) -> CheckVerdict:
    """M06. What is in use counts, not what is requested: slots have no size."""
    if labels(context).get(SHARING_STRATEGY) == "mps":
        return skipped("MPS limits the memory of each")
    shared = {
        gpu.identity.index: gpu for gpu in context.gpus if not gpu.mig_enabled and len(_sharers(context, gpu)) > 1
    }
    if not shared:
        return skipped("no GPU is held by several workloads")
    full = tuple(index for index, gpu in shared.items() if (_used(gpu) or 0.0) >= FULL)
    evidence = {f"gpu {index}": _words(context, gpu) for index, gpu in shared.items()}
    if full:
        return warned(f"{gpu_list(full)}: {_words(context, shared[full[0]])}", evidence, gpus=full)
    return passed(f"{gpu_list(tuple(shared))}, {_words(context, next(iter(shared.values())))}", evidence)


def _sharers(context: CheckContext, gpu: Gpu) -> set[Workload]:
    view = context.facts.view
    rows = view.attribution.devices if view else ()
    return {holder.workload for row in rows if row.gpu == gpu.identity.uuid for holder in row.holders}


def _used(gpu: Gpu) -> float | None:
    usable = (gpu.memory.total or 0) - (gpu.memory.reserved or 0)
    return gpu.memory.used / usable if gpu.memory.used is not None and usable > 0 else None


def _words(context: CheckContext, gpu: Gpu) -> str:
    sharers, memory = len(_sharers(context, gpu)), gpu.memory
    if memory.used is None or memory.total is None:
        return f"{sharers} sharers"
    usable = memory.total - (memory.reserved or 0)
    return f"{sharers} sharers hold {memory.used / GIB:.1f} of {usable / GIB:.1f} GiB"


MIG_MANAGER = "kubectl get pods -A -l app=nvidia-mig-manager --field-selector spec.nodeName={node}"
MPS_DAEMON = "kubectl get pods -A -o wide --field-selector spec.nodeName={node} | grep mps-control-daemon"

SHARING: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "M01", CheckStage.SHARING, "no change of MIG mode waits for a reset",
        how="nvmlDeviceGetMigMode: current and pending; finding mig_pending",
        failure="GPU 3: MIG mode is to be on after the next reset",
        remedy="The mode changes only when the GPU is reset while nobody has it open. Drain the node, stop DCGM, "
        "nvidia-persistenced and the pods of device plugin and exporters, then reset; in a virtual machine reboot. To "
        "stay as it is instead, set the mode back: nvidia-smi -i {gpu} -mig 0 (or 1). With the GPU operator, leave it "
        "to mig-manager: set the label nvidia.com/mig.config.",
        commands=(DRAIN, RESET, "nvidia-smi -i {gpu} --query-gpu=mig.mode.current,mig.mode.pending --format=csv"),
        judge=pending, needs=("N04",), reads=("view",), each=True,
    ),
    DiagnosticCheck(
        "M02", CheckStage.SHARING, "mig-manager has done what the label asks for",
        how="node label nvidia.com/mig.config.state",
        failure="mig.config.state is failed (mig.config: all-1g.10gb)",
        remedy="Read mig-manager's log: most often somebody had a GPU open, or the ConfigMap has no such "
        "configuration. Mend it, then have it try again: set the label nvidia.com/mig.config to another configuration "
        "and back.",
        commands=(MIG_MANAGER, "kubectl logs -n gpu-operator -l app=nvidia-mig-manager --tail=50", "nvidia-smi"),
        judge=configuration, needs=("N02",), reads=("cluster",),
    ),
    DiagnosticCheck(
        "M03", CheckStage.SHARING, "MIG instances are whole, and those the label asks for",
        how="MIG devices by NVML; GPU instances of /proc/driver/nvidia/capabilities; node label nvidia.com/mig.config",
        failure="GPU 0: GPU instance 2 has no compute instance | GPU 3: 2x 3g.40gb, but the label asks for all-1g.10gb",
        remedy="Somebody cut by hand, or cutting was broken off. Nobody can be given what is missing. When no work is "
        "left on the GPU, cut it anew: with the GPU operator set the label nvidia.com/mig.config to another "
        "configuration and back; without it nvidia-mig-parted apply, or nvidia-smi mig -cci for a GPU instance "
        "without compute instance. Then restart the device plugin.",
        commands=("nvidia-smi mig -lgi", "nvidia-smi mig -lci", "nvidia-smi mig -cci -i {gpu}"),
        judge=instances, needs=("N04", "M01", "M02"), reads=("view",), each=True,
    ),
    DiagnosticCheck(
        "M04", CheckStage.SHARING, "the MIG strategy fits how GPUs are cut",
        how="node label nvidia.com/mig.strategy, else MIG_STRATEGY of the device plugin, against the MIG devices; "
        "nvidia.com/gpu.product ending in MIG-INVALID",
        failure="strategy single, but the instances are 1g.10gb and 3g.40gb",
        remedy="With the strategy single every GPU of the node must be cut, and all into the same profile: else the "
        "device plugin advertises nothing. Take the strategy mixed (GPU operator: mig.strategy=mixed of the "
        "ClusterPolicy; device plugin: MIG_STRATEGY=mixed), or cut all GPUs alike by the label nvidia.com/mig.config.",
        commands=(
            "nvidia-smi -L",
            "kubectl get node {node} -L nvidia.com/mig.strategy,nvidia.com/gpu.product,nvidia.com/mig.config",
        ),
        judge=strategy, needs=("N02", "M01", "M02"), reads=("view", "cluster"),
    ),
    DiagnosticCheck(
        "M05", CheckStage.SHARING, "the MPS control daemon runs where GPUs are shared by MPS",
        how="node labels nvidia.com/gpu.sharing-strategy and nvidia.com/mps.capable; the process "
        "nvidia-cuda-mps-control; its pipe below /run/nvidia/mps",
        failure="GPUs are advertised as shared by MPS, but no MPS control daemon runs",
        remedy="Pods that get such a slot fail in cuInit, or wait. Look at the device plugin's MPS control daemon of "
        "this node and restart it, then the device plugin. It runs only on nodes with the label "
        "nvidia.com/mps.capable=true, and not together with MIG.",
        commands=(MPS_DAEMON, "ls -lR /run/nvidia/mps"),
        judge=mps, needs=("D01",), reads=("services",),
    ),
    DiagnosticCheck(
        "M06", CheckStage.SHARING, "the memory of time-sliced GPUs is enough for those who share it",
        how="memory in use against the total of GPUs that several workloads hold",
        failure="GPU 0: 3 sharers hold 44.1 of 44.4 GiB",
        remedy="Time-slicing does not divide memory: the next allocation of any of them ends in out of memory. Give "
        "the GPU fewer replicas in the device plugin's configuration, let one of them go elsewhere, or let each limit "
        "itself (for PyTorch: torch.cuda.set_per_process_memory_fraction). MIG or MPS divide memory.",
        commands=("gpuwatch get processes", "nvidia-smi"),
        judge=oversubscription, needs=("N04",), reads=("view",), each=True,
    ),
)  # fmt: skip
