"""The kernel log since the driver was last loaded, and the GPU that each of its lines is about."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from gpuwatch.diagnose.check import CheckContext
from gpuwatch.diagnose.host.kernel_text import KernelMessage
from gpuwatch.host.pci import BusGpu
from gpuwatch.model import pci
from gpuwatch.model.snapshot import GpuState

_PROBING = "nvidia-nvlink: Nvlink Core is being initialized"
_LOADING = "NVRM: loading NVIDIA UNIX"
_ADDRESS = re.compile(pci.PATTERN, re.ASCII)


class GpuLogLine(NamedTuple):
    """`key`: `0000:3b:00`; `gpu`: NVML's index, None where NVML does not list the GPU; `when`: `12 s after boot`."""

    text: str
    key: str | None
    gpu: int | None
    when: str

    @property
    def name(self) -> str:
        """`GPU 3 (0000:3b:00)`, or without its index."""
        return f"GPU {self.key}" if self.gpu is None else f"GPU {self.gpu} ({self.key})"


def lines_since_load(context: CheckContext) -> tuple[KernelMessage, ...]:
    """Lines since the driver was last loaded, its probing for GPUs included; all of them if it was not."""
    lines = context.facts.kernel_log or ()
    start, is_probing = 0, False
    for number, line in enumerate(lines):
        if line.text.startswith(_PROBING):
            start, is_probing = number, True
        elif line.text.startswith(_LOADING):
            start, is_probing = start if is_probing else number, False
    return lines[start:]


def matching_lines(context: CheckContext, *patterns: str) -> Iterator[GpuLogLine]:
    """Lines since the driver was loaded that begin with one of these patterns, each with the first GPU in its text."""
    pattern = re.compile("|".join(patterns), re.ASCII | re.DOTALL)
    for line in lines_since_load(context):
        if pattern.match(line.text):
            match = _ADDRESS.search(line.text)
            key = pci.pci_key(match[0]) if match else None
            when = "" if line.at is None else f"{line.at:.0f} s after boot"
            yield GpuLogLine(line.text, key, index_by_address(context).get(key or ""), when)


def index_by_address(context: CheckContext) -> dict[str, int]:
    """Match key of a PCI address -> NVML index, of every GPU that NVML ever listed.

    GPUs that NVML cannot identify have an index and no address; they get the remaining addresses, in the bus's order.
    """
    view = context.facts.view
    if view is None:
        return {}
    known = {pci.pci_key(s.identity.pci_bus_id) or "": s.identity.index for s in view.snapshot.statuses}
    nodes = context.facts.nodes
    there = (*(gpu.address for gpu in context.facts.bus or ()), *(nodes.gpus if nodes else ()))
    left = sorted({pci.pci_key(address) or "" for address in there} - known.keys() - {""})
    if len(left) == len(view.snapshot.unanswered):
        known |= dict(zip(left, sorted(view.snapshot.unanswered), strict=True))
    return {key: index for key, index in known.items() if key}


def readable_addresses(context: CheckContext) -> frozenset[str]:
    """Match keys of the GPUs that NVML can read now."""
    view = context.facts.view
    fresh = (s for s in view.snapshot.statuses if s.state is GpuState.FRESH) if view else ()
    return frozenset(key for status in fresh if (key := pci.pci_key(status.identity.pci_bus_id)))


def nvml_works(context: CheckContext) -> bool:
    """Whether a new process reads a GPU of this machine: then the driver is loaded, whatever the files show. A running
    agent does not count: it may still use files that have been replaced since.
    """
    facts = context.facts
    return facts.live and not facts.plain and not facts.agent and bool(readable_addresses(context))


def unreadable_gpus(context: CheckContext) -> tuple[BusGpu, ...]:
    """GPUs on the bus that NVML cannot read or does not list."""
    readable = readable_addresses(context)
    return tuple(gpu for gpu in context.facts.bus or () if pci.pci_key(gpu.address) not in readable)


def selected_gpus(context: CheckContext) -> tuple[BusGpu, ...]:
    """The selected GPUs on the bus; one that NVML does not list has no index and is always included."""
    known = index_by_address(context)
    return tuple(
        gpu
        for gpu in context.facts.bus or ()
        if (key := pci.pci_key(gpu.address) or "") not in known or context.selects(known[key])
    )


def gpu_name(context: CheckContext, gpu: BusGpu) -> str:
    """`GPU 3 (0000:3b:00.0)`, or without its index."""
    index = index_by_address(context).get(pci.pci_key(gpu.address) or "")
    return f"GPU {gpu.address}" if index is None else f"GPU {index} ({gpu.address})"


def nvml_indexes(context: CheckContext, gpus: tuple[BusGpu, ...]) -> tuple[int, ...]:
    """NVML indexes of these GPUs, as far as they have one."""
    known = index_by_address(context)
    return tuple(sorted(known[key] for gpu in gpus if (key := pci.pci_key(gpu.address) or "") in known))
