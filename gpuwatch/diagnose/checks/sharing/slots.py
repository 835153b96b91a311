"""Judges GPUs that several workloads share without being cut: MPS and time-slicing."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, failed, gpu_list, passed, skipped, warned
from gpuwatch.diagnose.checks.fabric.switches import UNSEEN
from gpuwatch.diagnose.checks.sharing.mig import labels
from gpuwatch.model.snapshot import Gpu
from gpuwatch.model.workload import Workload

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
