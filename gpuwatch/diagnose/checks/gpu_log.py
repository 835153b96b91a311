"""What the kernel log tells a diagnosis: the lines of the driver's present life, and which GPU each is about."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from gpuwatch.diagnose.check import CheckContext
from gpuwatch.diagnose.host.kernel_text import KernelLine
from gpuwatch.host.pci import BusGpu
from gpuwatch.model import pci
from gpuwatch.model.snapshot import GpuState

_PROBING = "nvidia-nvlink: Nvlink Core is being initialized"
_LOADING = "NVRM: loading NVIDIA UNIX"
_ADDRESS = re.compile(pci.PATTERN, re.ASCII)


class GpuLine(NamedTuple):
    """`key`: `0000:3b:00`; `gpu`: NVML's index, None where NVML does not know the GPU; `when` in words."""

    text: str
    key: str | None
    gpu: int | None
    when: str

    @property
    def name(self) -> str:
        """For people."""
        return f"GPU {self.key}" if self.gpu is None else f"GPU {self.gpu} ({self.key})"


def present_life(context: CheckContext) -> tuple[KernelLine, ...]:
    """Lines since the driver was last loaded, its look for GPUs included; all of them if it was not."""
    lines = context.facts.kernel_log or ()
    start, is_probing = 0, False
    for number, line in enumerate(lines):
        if line.text.startswith(_PROBING):
            start, is_probing = number, True
        elif line.text.startswith(_LOADING):
            start, is_probing = start if is_probing else number, False
    return lines[start:]


def said(context: CheckContext, *patterns: str) -> Iterator[GpuLine]:
    """Lines of the present life that begin with one of these patterns."""
    pattern = re.compile("|".join(patterns), re.ASCII | re.DOTALL)
    return (gpu_line(context, line) for line in present_life(context) if pattern.match(line.text))


def gpu_line(context: CheckContext, line: KernelLine) -> GpuLine:
    """The line, and the GPU whose address it names first."""
    match = _ADDRESS.search(line.text)
    key = pci.pci_key(match[0]) if match else None
    when = "" if line.at is None else f"{line.at:.0f} s after boot"
    return GpuLine(line.text, key, indexes(context).get(key or ""), when)


def indexes(context: CheckContext) -> dict[str, int]:
    """Match key of a PCI address -> NVML index, of every GPU NVML ever knew.

    GPUs that do not tell NVML who they are have an index and no address; they are those left over, in the bus' order.
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


def answering(context: CheckContext) -> frozenset[str]:
    """Match keys of the GPUs that NVML can read now."""
    view = context.facts.view
    fresh = (s for s in view.snapshot.statuses if s.state is GpuState.FRESH) if view else ()
    return frozenset(key for status in fresh if (key := pci.pci_key(status.identity.pci_bus_id)))


def nvml_works(context: CheckContext) -> bool:
    """Whether a process that was started just now reads a GPU of this machine: whatever the files seem to say, the
    driver is there. A running agent may still live on what has been replaced since.
    """
    facts = context.facts
    return facts.live and not facts.plain and not facts.agent and bool(answering(context))


def silent_gpus(context: CheckContext) -> tuple[BusGpu, ...]:
    """GPUs on the bus that NVML cannot read, or of which nobody knows."""
    fine = answering(context)
    return tuple(gpu for gpu in context.facts.bus or () if pci.pci_key(gpu.address) not in fine)


def meant_gpus(context: CheckContext) -> tuple[BusGpu, ...]:
    """GPUs on the bus that were asked for; one that NVML does not know cannot be left out by its index."""
    known = indexes(context)
    return tuple(
        gpu
        for gpu in context.facts.bus or ()
        if (key := pci.pci_key(gpu.address) or "") not in known or context.means(known[key])
    )


def named(context: CheckContext, gpu: BusGpu) -> str:
    """`GPU 3 (0000:3b:00.0)`, or without its index."""
    index = indexes(context).get(pci.pci_key(gpu.address) or "")
    return f"GPU {gpu.address}" if index is None else f"GPU {index} ({gpu.address})"


def blamed(context: CheckContext, gpus: tuple[BusGpu, ...]) -> tuple[int, ...]:
    """Their NVML indexes, as far as they have one."""
    known = indexes(context)
    return tuple(sorted(known[key] for gpu in gpus if (key := pci.pci_key(gpu.address) or "") in known))
