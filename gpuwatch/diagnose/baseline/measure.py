"""What a baseline may expect of GPUs and node, as it is found, and a baseline made from a node that is well."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.diagnose.baseline.expectation import Expectation
from gpuwatch.diagnose.baseline.inventory import active_links
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.snapshot import Driver, Gpu

FLOOR = 0.9
"""A copy is expected to reach this share of the slowest one measured: runs differ by a few percent."""


def slowest_link(gpu: Gpu) -> float | None:
    """Bytes per second."""
    speeds = (link.speed_bytes_per_second for link in active_links(gpu.nvlinks))
    return min((each for each in speeds if each is not None), default=None)


def driver(facts: NodeFacts) -> Driver:
    """Versions by NVML; unknown without a View."""
    return (facts.view.snapshot.driver if facts.view else None) or Driver()


def toolkit(facts: NodeFacts) -> str | None:
    """The oldest version of the container toolkit found."""
    return min(filter(None, facts.runtime.toolkit.values()), default=None) if facts.runtime else None


def check_baseline(target: Path) -> None:
    """Check that a new file can be made there, before anything is gathered.

    Raises:
        UsageError: its folder is not there, or there is such a file: people edit a baseline by hand.
    """
    if target.is_file():
        raise UsageError(f"{target} is there already", "nothing is overwritten", "move it away, or name another file")
    if target.is_dir() or not target.parent.is_dir():
        why = "it is a folder" if target.is_dir() else f"there is no folder {target.parent}"
        raise UsageError(f"cannot write {target}", why, "name a new file")


PER_GPU: dict[str, Callable[[Gpu], Any]] = {
    "model": lambda gpu: gpu.identity.name,
    "gsp_firmware": lambda gpu: gpu.identity.gsp_firmware,
    "inforom": lambda gpu: gpu.identity.inforom_image,
    "ecc": lambda gpu: gpu.ecc.enabled,
    "mig": lambda gpu: gpu.mig_enabled,
    "persistence": lambda gpu: gpu.persistence_mode,
    "power_limit": lambda gpu: gpu.power.limit_configured,
}
"""A baseline made here has them only where all GPUs agree."""

LEAST: dict[str, Callable[[Gpu], Any]] = {
    "pcie_generation": lambda gpu: gpu.pcie.generation_max,
    "pcie_width": lambda gpu: gpu.pcie.width,
    "memory": lambda gpu: gpu.memory.total,
    "nvlinks": lambda gpu: len(active_links(gpu.nvlinks)),
    "nvlink_speed": slowest_link,
}
"""The smallest that any GPU has is expected of all."""

GPU_VALUES: dict[str, Callable[[Gpu], Any]] = {**PER_GPU, **LEAST, "vbios": lambda gpu: gpu.identity.vbios}
"""Key -> what a GPU has of it; None: unknown."""

NODE_VALUES: dict[str, Callable[[NodeFacts], Any]] = {
    "driver": lambda facts: driver(facts).version,
    "cuda": lambda facts: driver(facts).cuda,
    "kernel": lambda facts: facts.kernel.release if facts.kernel else None,
    "container_toolkit": toolkit,
    "fabric_manager": lambda facts: facts.services.fabric_manager if facts.services else None,
}
"""Key -> what the node has of it; None: unknown."""

COPIES = ("host_to_device", "device_to_host", "peer_bandwidth")


def measured(facts: NodeFacts) -> Expectation:
    """The properties of this node; bandwidths only after active checks.

    Raises:
        GpuwatchError: no GPU was found.
    """
    gpus = facts.view.snapshot.gpus if facts.view else ()
    if not gpus:
        why = facts.unread.get("view", "no GPU answers")
        raise GpuwatchError("a baseline needs a GPU", why, "take a node that works")
    runs = facts.active.runs if facts.active else ()
    values = {key: [value(gpu) for gpu in gpus] for key, value in (PER_GPU | LEAST).items()}
    rates = {key: [rate for run in runs if (rate := getattr(run, key)) is not None] for key in COPIES}
    floors: dict[str, Any] = {key: float(round(min(known) * FLOOR)) for key, known in rates.items() if known}
    return Expectation(
        gpus=len(gpus),
        vbios=tuple(sorted({gpu.identity.vbios for gpu in gpus if gpu.identity.vbios})),
        **{key: value(facts) for key, value in NODE_VALUES.items()},
        **{key: values[key][0] if len(set(values[key])) == 1 else None for key in PER_GPU},
        **{key: None if None in values[key] else min(values[key]) or None for key in LEAST},
        **floors,
    )


def text(expectation: Expectation, node: str | None) -> str:
    """The YAML file, without the keys that have no expectation."""
    import yaml

    plain = {key: value for key, value in msgspec.to_builtins(expectation).items() if value not in (None, [], ())}
    head = (
        f"# `gpuwatch diagnose --expect FILE` compares a node with this; made from {node or 'a node'}.\n"
        '# Take out what need not be the same everywhere, and shorten versions to what matters: "570" fits 570.86.15.\n'
        "# Units: bytes, bytes per second, watts.\n"
    )
    return head + yaml.safe_dump(plain, sort_keys=False)
