"""A baseline made of a node that is as it should be: what it is becomes what is expected of others."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.diagnose.baseline.expectation import Expectation
from gpuwatch.diagnose.baseline.inventory import active
from gpuwatch.diagnose.checks.baseline_compare import driver, slowest_link, toolkit
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.snapshot import Gpu

FLOOR = 0.9
"""A copy is expected to reach this share of the slowest one measured: runs differ by a few percent."""


def check_baseline(target: Path) -> None:
    """Before anything is looked at: can a new file be made there?

    Raises:
        UsageError: its folder is not there, or there is such a file: people shorten a baseline by hand.
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
"""Expected only where all GPUs agree."""

LEAST: dict[str, Callable[[Gpu], Any]] = {
    "pcie_generation": lambda gpu: gpu.pcie.generation_max,
    "pcie_width": lambda gpu: gpu.pcie.width,
    "memory": lambda gpu: gpu.memory.total,
    "nvlinks": lambda gpu: len(active(gpu.nvlinks)) or None,
    "nvlink_speed": slowest_link,
}
"""The smallest that any GPU has is expected of all."""

COPIES = ("host_to_device", "device_to_host", "peer_bandwidth")


def measured(facts: NodeFacts) -> Expectation:
    """What this node is; bandwidths only after active checks.

    Raises:
        GpuwatchError: no GPU was seen.
    """
    gpus = facts.view.snapshot.gpus if facts.view else ()
    if not gpus:
        why = facts.unread.get("view", "no GPU answers")
        raise GpuwatchError("there is nothing to make a baseline of", why, "take a node that works")
    runs = facts.active.runs if facts.active else ()
    return Expectation(
        gpus=len(gpus),
        driver=driver(facts).version,
        cuda=driver(facts).cuda,
        vbios=tuple(sorted({gpu.identity.vbios for gpu in gpus if gpu.identity.vbios})),
        kernel=facts.kernel.release if facts.kernel else None,
        container_toolkit=toolkit(facts),
        fabric_manager=facts.services.fabric_manager if facts.services else None,
        **{key: _agreed(map(value, gpus)) for key, value in PER_GPU.items()},
        **{key: _least(map(value, gpus)) for key, value in LEAST.items()},
        **{key: _floor(getattr(run, key) for run in runs) for key in COPIES},
    )


def text(expectation: Expectation, node: str | None) -> str:
    """The YAML file, without the keys of which nothing is expected."""
    import yaml

    plain = {key: value for key, value in msgspec.to_builtins(expectation).items() if value not in (None, [], ())}
    head = (
        f"# What `gpuwatch diagnose --expect FILE` holds a node against; made of {node or 'a node'}.\n"
        '# Take out what need not be the same everywhere, and shorten versions to what matters: "570" fits 570.86.15.\n'
        "# Units: bytes, bytes per second, watts.\n"
    )
    return head + yaml.safe_dump(plain, sort_keys=False)


def _agreed(values: Iterable[Any]) -> Any:
    different = set(values)
    return different.pop() if len(different) == 1 else None


def _least(values: Iterable[Any]) -> Any:
    known = list(values)
    return None if None in known else min(known)


def _floor(values: Iterable[float | None]) -> Any:
    known = [value for value in values if value is not None]
    return float(round(min(known) * FLOOR)) if known else None
