"""Judges the ways to other nodes: RDMA adapters, their way to GPU memory, IMEX."""

import re

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, passed, skipped, warned
from gpuwatch.diagnose.checks.fabric.switches import COMPLETED, UNSEEN
from gpuwatch.diagnose.host.fabric_devices import Adapter

PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")
OPTIONAL_MODULES = ("gdrdrv", "nvidia_fs")
DMA_BUF_KERNEL = (5, 12)
MULTI_NODE = ("GB200", "GB300")
"""Part of NVML's name of GPUs whose NVLink leads to other nodes."""
CHANNELS = "nvidia-caps-imex-channels/"
DOMAINS = "compute-domain.nvidia.com"
MANY = 4
"""Ethernet adapters that can do RDMA: fewer are a server's plain network, more are there for it."""


def peer_memory(context: CheckContext) -> CheckVerdict:
    """F05."""
    kernel, adapters = context.facts.kernel, _data_adapters(context)
    ours = [adapter for adapter in adapters if adapter.rdma and adapter.driver == "mlx5_core"]
    others = sorted({adapter.driver for adapter in adapters if adapter.rdma and adapter.driver} - {"mlx5_core"})
    if not ours:
        return skipped(f"driver {', '.join(others)} has its own way to GPU memory" if others else "no RDMA adapter")
    if kernel is None or kernel.modules is None:
        return skipped("not seen: the loaded modules")
    loaded = next((name for name in PEER_MODULES if name in kernel.modules), None)
    evidence = {"adapters": ", ".join(name for adapter in ours for name in adapter.rdma)}
    if loaded:
        return passed(loaded, evidence)
    if kernel.flavor == "open" and _version(kernel.release) >= DMA_BUF_KERNEL:
        return passed(f"dma-buf: open kernel modules, Linux {kernel.release}", evidence)
    if not is_wanted(ours):
        return skipped(f"{_rdma(ours)} for Ethernet, as any server has; nothing says that RDMA is wanted")
    evidence |= {"modules": kernel.flavor or "unknown", "kernel": kernel.release or "unknown"}
    return warned(f"{_rdma(ours)}, but no way to GPU memory: nvidia_peermem is not loaded", evidence)


def adapter_drivers(context: CheckContext) -> CheckVerdict:
    """F06."""
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


def imex(context: CheckContext) -> CheckVerdict:
    """F07."""
    joined = [gpu for gpu in context.gpus if gpu.fabric.state == COMPLETED]
    if not any(model in (gpu.identity.name or "") for gpu in joined for model in MULTI_NODE):
        return skipped("NVLink does not leave this node, as far as GPUs are registered with a fabric")
    services, nodes, kubelet = context.facts.services, context.facts.nodes, context.facts.kubelet
    runs = services.runs("nvidia-imex") if services else None
    if runs is None or nodes is None:
        return skipped(UNSEEN if runs is None else "not seen: the device files")
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
    """Those for user data."""
    services = context.facts.services
    return [a for a in (services.adapters if services else None) or () if not a.manages_switches]


def is_wanted(adapters: list[Adapter]) -> bool:
    """Whether these adapters are there for RDMA, and not a server's plain network."""
    return any(adapter.infiniband for adapter in adapters) or len(adapters) >= MANY


def _rdma(adapters: list[Adapter]) -> str:
    return f"{len(adapters)} RDMA adapter{'s' if len(adapters) != 1 else ''}"


def _version(release: str | None) -> tuple[int, ...]:
    """`5.15.0-113-generic` -> (5, 15)."""
    match = re.match(r"(\d{1,3})\.(\d{1,4})", release or "")
    return tuple(map(int, match.groups())) if match else (0,)
