"""The links of GPUs to each other and to other nodes: NVLink, RDMA adapters, IMEX."""

import re

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.nvswitch import COMPLETED, PROCESSES_NOT_READ, has_switches
from gpuwatch.diagnose.checks.per_gpu import gpu_list
from gpuwatch.diagnose.checks.remedies import DRAIN, KERNEL_LOG
from gpuwatch.diagnose.host.fabric import Adapter
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.health.gpu_history import link_errors


def check_links(context: CheckContext) -> CheckVerdict:
    """Without NVSwitches, links may be unconnected by design, and only the agent's findings count."""
    linked = {gpu.identity.index: gpu for gpu in context.gpus if gpu.nvlinks and not gpu.mig_enabled}
    if not linked:
        return skipped("NVLinks rest while MIG is on" if any(gpu.nvlinks for gpu in context.gpus) else "no NVLink")
    problems = {at: finding.message for at, finding in context.findings("nvlink_down") if at is not None}
    up = {
        index: sum(bool(link.active) for link in gpu.nvlinks)
        for index, gpu in linked.items()
        if all(link.active is not None for link in gpu.nvlinks)
    }
    for index, gpu in linked.items():
        most = max(
            (up[i] for i, other in linked.items() if other.identity.name == gpu.identity.name and i in up), default=0
        )
        is_switched = has_switches(context.facts.services) or gpu.fabric.state == COMPLETED
        if is_switched and up.get(index, most) < most:
            problems.setdefault(index, f"fewer NVLinks are up than of the node's other GPUs, which have {most}")
    if not problems:
        counts = sorted(set(up.values()))
        return passed(f"{' or '.join(map(str, counts)) or 'unknown'} links per GPU")
    texts = {
        index: f"{problem} ({up[index]} of {len(linked[index].nvlinks)} links)" if index in up else problem
        for index, problem in sorted(problems.items())
    }
    dead = tuple(index for index in texts if up.get(index) == 0)
    gpus = dead or tuple(texts)
    answer = failed if dead else warned
    evidence = {f"gpu {index}": text for index, text in texts.items()}
    return answer(f"{gpu_list(gpus)}: {texts[gpus[0]]}", evidence, gpus=gpus)


def check_link_errors(context: CheckContext) -> CheckVerdict:
    """Findings of the agent within an hour, and errors that were added between the two samples."""
    linked = [gpu for gpu in context.gpus if gpu.nvlinks]
    if not linked:
        return skipped("no NVLink")
    problems = {at: finding.message for at, finding in context.findings("nvlink_errors") if at is not None}
    before = {gpu.identity.uuid: gpu for gpu in context.facts.earlier.snapshot.gpus} if context.facts.earlier else {}
    for gpu in linked:
        known = {link.link: link_errors(link) for link in before.get(gpu.identity.uuid, gpu).nvlinks}
        grown = {link.link: link_errors(link) - known.get(link.link, 0) for link in gpu.nvlinks}
        worst = max(grown, key=lambda link: grown[link])
        if grown[worst] > 0:  # a counter that was reset has less than before
            count = sum(errors for errors in grown.values() if errors > 0)
            problems.setdefault(gpu.identity.index, f"{count} NVLink errors while we looked, most on link {worst}")
    if problems:
        gpus = tuple(sorted(problems))
        evidence = {f"gpu {index}": problems[index] for index in gpus}
        return warned(f"{gpu_list(gpus)}: {problems[gpus[0]]}", evidence, gpus=gpus)
    total = sum(link_errors(link) for gpu in linked for link in gpu.nvlinks)
    return passed(f"{total} since the driver was loaded" if total else "none")


PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")
OPTIONAL_MODULES = ("gdrdrv", "nvidia_fs")
DMA_BUF_KERNEL = (5, 12)
MULTI_NODE = ("GB200", "GB300")
"""Part of NVML's name of GPUs whose NVLinks lead to other nodes."""
CHANNELS = "nvidia-caps-imex-channels/"
DOMAINS = "compute-domain.nvidia.com"
MANY = 4
"""Ethernet adapters that can do RDMA: fewer are a server's plain network, this many are there for RDMA."""


def check_peer_memory(context: CheckContext) -> CheckVerdict:
    kernel, adapters = context.facts.kernel, _data_adapters(context)
    ours = [adapter for adapter in adapters if adapter.rdma and adapter.driver == "mlx5_core"]
    others = sorted({adapter.driver for adapter in adapters if adapter.rdma and adapter.driver} - {"mlx5_core"})
    if not ours:
        return skipped(f"driver {', '.join(others)} has its own way to GPU memory" if others else "no RDMA adapter")
    if kernel is None or kernel.modules is None:
        return skipped("not read: the loaded modules")
    loaded = next((name for name in PEER_MODULES if name in kernel.modules), None)
    evidence = {"adapters": ", ".join(name for adapter in ours for name in adapter.rdma)}
    if loaded:
        return passed(loaded, evidence)
    version = re.match(r"(\d{1,3})\.(\d{1,4})", kernel.release or "")  # 5, 15 of 5.15.0-113-generic
    if kernel.flavor == "open" and version and tuple(map(int, version.groups())) >= DMA_BUF_KERNEL:
        return passed(f"dma-buf: open kernel modules, Linux {kernel.release}", evidence)
    if not is_wanted(ours):
        return skipped(f"{_rdma(ours)} for Ethernet, as any server has; nothing says that RDMA is wanted")
    evidence |= {"modules": kernel.flavor or "unknown", "kernel": kernel.release or "unknown"}
    return warned(f"{_rdma(ours)}, but no way to GPU memory: nvidia_peermem is not loaded", evidence)


def check_adapter_drivers(context: CheckContext) -> CheckVerdict:
    services, adapters = context.facts.services, [a for a in _data_adapters(context) if not a.virtual]
    if services is not None and services.network_driver_ready is False:
        return warned("the network operator's driver container is not ready", {"missing": ".driver-ready"})
    if services is None or services.adapters is None:
        return skipped("the PCI bus cannot be read")
    if not adapters:
        return skipped("no RDMA adapter")
    unbound = [adapter.address for adapter in adapters if adapter.driver is None]
    if unbound:
        return warned(f"adapter {', '.join(unbound)} has no driver")
    dumb = [adapter.address for adapter in adapters if adapter.driver == "mlx5_core" and not adapter.rdma]
    if dumb and is_wanted(adapters):
        return warned(f"adapter {', '.join(dumb)} has no InfiniBand device: mlx5_ib is not loaded")
    modules = context.facts.kernel.modules if context.facts.kernel else None
    more = [name for name in OPTIONAL_MODULES if name in (modules or {})]
    return passed(", ".join((_rdma(adapters), *more)))


def check_imex(context: CheckContext) -> CheckVerdict:
    joined = [gpu for gpu in context.gpus if gpu.fabric.state == COMPLETED]
    if not any(model in (gpu.identity.name or "") for gpu in joined for model in MULTI_NODE):
        return skipped("NVLink does not leave this node, as far as GPUs are registered with a fabric")
    services, nodes, kubelet = context.facts.services, context.facts.nodes, context.facts.kubelet
    runs = services.runs("nvidia-imex") if services else None
    if runs is None or nodes is None:
        return skipped(PROCESSES_NOT_READ if runs is None else "not read: the device files")
    channels = sum(path.startswith(CHANNELS) for path in nodes.files)
    if runs and channels:
        return passed(f"nvidia-imex runs, {channels} channel{'s' if channels > 1 else ''}")
    if kubelet is not None and DOMAINS in kubelet.dra:
        return passed("NVIDIA's DRA driver starts it when a job asks for a ComputeDomain")
    if not runs and not channels:
        return warned("neither nvidia-imex nor an IMEX channel is there")
    return warned(
        "nvidia-imex runs, but there is no channel" if runs else "there are channels, but no nvidia-imex runs"
    )


def _data_adapters(context: CheckContext) -> list[Adapter]:
    """Adapters that carry user data."""
    services = context.facts.services
    return [a for a in (services.adapters if services else None) or () if not a.manages_switches]


def is_wanted(adapters: list[Adapter]) -> bool:
    """Whether these adapters are there for RDMA, and not a server's plain network."""
    return any(adapter.infiniband for adapter in adapters) or len(adapters) >= MANY


def _rdma(adapters: list[Adapter]) -> str:
    return f"{len(adapters)} RDMA adapter{'s' if len(adapters) != 1 else ''}"


LINKS: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "F03", CheckStage.FABRIC, "every NVLink that leads somewhere is up",
        how="nvmlDeviceGetNvLinkState of every link; finding nvlink_down; with NVSwitches the other GPUs' number",
        remedy="Look for XIDs 74 and 144-150 and for SXids in the kernel log. Drain the node and reset all GPUs of "
        "the board together (nvidia-smi -r). If a link stays down, reseat the bridge or the GPU, then replace "
        "it.",
        commands=("nvidia-smi nvlink -s -i {gpu}", KERNEL_LOG, DRAIN, "nvidia-smi --gpu-reset"),
        judge=check_links, needs=("N04", "F01"), reads=("view",), each=True,
    ),
    DiagnosticCheck(
        "F04", CheckStage.FABRIC, "NVLink error counters stand still",
        how="error counters of every NVLink, twice; finding nvlink_errors",
        remedy="Correcting errors costs speed, and the link often dies later. When its work is done, drain the node "
        "and reset the GPUs; if errors rise again, reseat the GPU or the bridge, then replace it.",
        commands=("nvidia-smi nvlink -e -i {gpu}", DRAIN, "nvidia-smi --gpu-reset"),
        judge=check_link_errors, needs=("N04",), reads=("view",), each=True,
    ),
    DiagnosticCheck(
        "F05", CheckStage.FABRIC, "RDMA adapters can reach GPU memory",
        how="nvidia_peermem in /proc/modules, or open kernel modules on Linux 5.12 or newer (dma-buf), where an mlx5 "
        "adapter has an InfiniBand device",
        remedy="Traffic between nodes takes the slow way through host memory. Load the module, also at boot, after "
        "the RDMA modules. With the GPU operator: driver.rdma.enabled=true.",
        commands=("modprobe nvidia-peermem", "echo nvidia-peermem > /etc/modules-load.d/nvidia-peermem.conf"),
        judge=check_peer_memory, needs=("D01",), reads=("services", "kernel"),
    ),
    DiagnosticCheck(
        "F06", CheckStage.FABRIC, "RDMA adapters have their driver",
        how="PCI functions of ConnectX, their bound driver and InfiniBand devices; "
        "/run/mellanox/drivers/.driver-ready of the network operator",
        remedy="Load the adapter's modules and read the kernel log. With the network operator: look at this node's "
        "driver pod (mofed); with RDMA the GPU operator's driver pod waits for it.",
        commands=("modprobe mlx5_core", "modprobe mlx5_ib", "dmesg -T | grep -i mlx5", "rdma link"),
        judge=check_adapter_drivers, reads=("services",),
    ),
    DiagnosticCheck(
        "F07", CheckStage.FABRIC, "IMEX is there where NVLink spans nodes",
        how="on GB200 and GB300: the process nvidia-imex, and /dev/nvidia-caps-imex-channels",
        remedy="Jobs of several nodes cannot share GPU memory over NVLink. With NVIDIA's DRA driver look at the job's "
        "ComputeDomain, which brings both. Else on every node of the domain: fill "
        "/etc/nvidia-imex/nodes_config.cfg and start the service; `options nvidia NVreg_CreateImexChannel0=1` "
        "makes channel 0.",
        commands=("systemctl status nvidia-imex", "nvidia-imex-ctl -N", "ls -l /dev/nvidia-caps-imex-channels"),
        judge=check_imex, needs=("D01",), reads=("services", "view"),
    ),
)  # fmt: skip
