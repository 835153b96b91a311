"""What a node's GPUs are, in words that fit a label: model and memory, and how they are linked."""

import re
from collections.abc import Sequence

from gpuwatch.model.snapshot import Gpu

GIB = 2**30
MAX_VALUE = 63
"""Of a label's value, in bytes."""

SIZES = (
    4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 128, 141, 144, 180, 186, 192, 288,
)  # fmt: skip
"""Gigabytes by which NVIDIA sells GPUs."""

SHORT = 0.925
"""Least share of that which NVML tells: GDDR with ECC keeps a sixteenth for itself, and firmware something more."""

_NO_MODEL = re.compile(
    r"NVIDIA|Tesla|GeForce|Quadro|GRID|SXM\d*( AC)?|PCIe|PCI-E|NVL|HBM\d\w*|\d+GB|Graphics|Device", re.I
)
_NO_VALUE = re.compile(r"[^a-z0-9.]+")


def gpu_class(gpus: Sequence[Gpu]) -> str | None:
    """`h100-80`, `l40s-48`, `rtx-4080-super-16`; `mixed` for several; None where NVML names none of them."""
    named = [gpu for gpu in gpus if gpu.identity.name]
    sized = [gpu for gpu in named if gpu.memory.total]
    classes = {_class(gpu.identity.name or "", gpu.memory.total) for gpu in sized or named}
    return next(iter(classes)) if len(classes) == 1 else "mixed" if classes else None


def nvlink(gpus: Sequence[Gpu], *, missing: int = 0) -> str:
    """`full`: every link of every GPU is up; `none`: not one is, or there are none; else `partial`. `missing`: GPUs
    that should be there, too.
    """
    links = [link.active for gpu in gpus for link in gpu.nvlinks]
    if not any(links):
        return "none"
    return "full" if all(links) and all(gpu.nvlinks for gpu in gpus) and not missing else "partial"


def _class(name: str, memory: int | None) -> str:
    model = _NO_VALUE.sub("-", _NO_MODEL.sub(" ", name).lower()).strip("-.") or "gpu"
    size = "" if not memory else f"-{_size(memory)}"
    return f"{model[: MAX_VALUE - len(size)].rstrip('-.')}{size}"


def _size(memory: int) -> int:
    """The size it is sold by, else what it has, in GiB."""
    there = memory / GIB
    return next((size for size in SIZES if SHORT * size <= there <= 1.01 * size), max(1, round(there)))
