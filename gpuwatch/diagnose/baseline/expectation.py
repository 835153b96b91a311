"""What a site expects of its nodes: a baseline file that `diagnose --expect` compares a node with; and a baseline made
from a healthy node.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.config import Section
from gpuwatch.config.errors import first_wrong
from gpuwatch.diagnose.baseline.inventory import active_links
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.snapshot import Driver, Gpu


class Expectation(Section, frozen=True, kw_only=True):
    """None: nothing is expected. Versions may be prefixes (`570`, `570.86`); base units."""

    gpus: int | None = None
    model: str | None = None  # part of NVML's name
    driver: str | None = None
    cuda: str | None = None
    vbios: tuple[str, ...] = ()  # any of these
    gsp_firmware: str | None = None
    inforom: str | None = None  # image version
    pcie_generation: int | None = None
    pcie_width: int | None = None
    nvlinks: int | None = None  # active links per GPU
    nvlink_speed: float | None = None  # bytes per second and link
    memory: int | None = None  # bytes per GPU, at least
    ecc: bool | None = None
    mig: bool | None = None
    persistence: bool | None = None
    power_limit: float | None = None  # watts
    power_budget: float | None = None  # watts; the limits of all GPUs together may not exceed it
    fabric_manager: str | None = None
    kernel: str | None = None
    container_toolkit: str | None = None
    host_to_device: float | None = None  # bytes per second, at least; of the active checks
    device_to_host: float | None = None
    peer_bandwidth: float | None = None


RANGES: dict[str, tuple[float, float]] = {
    "gpus": (0, 1024),
    "pcie_generation": (1, 8),
    "pcie_width": (1, 32),
    "nvlinks": (0, 64),
    "nvlink_speed": (1, 1e15),
    "memory": (1, 1 << 60),
    "power_limit": (1, 100_000),
    "power_budget": (1, 1_000_000),
    "host_to_device": (1, 1e15),
    "device_to_host": (1, 1e15),
    "peer_bandwidth": (1, 1e15),
}
"""Key -> smallest and largest plausible value."""

SWITCHES = {"on": True, "off": False}

HELP = "docs/baseline.md lists the keys"


def load(path: Path) -> Expectation:
    """The expectations of a baseline file.

    Raises:
        UsageError: it cannot be read, is no YAML, has an unknown key or an implausible value.
    """
    from gpuwatch.config.yaml import read

    found = read(path, "baseline", "--expect")
    return parse({} if found.value is None else found.value, str(path), found.at)


def parse(document: Any, origin: str, at: Callable[[str], str] | None = None) -> Expectation:
    """Turn a decoded document into expectations; errors name `origin`, or the place of a key in it by `at`. One
    VBIOS needs no list, and `ecc: on` is what nvidia-smi prints.

    Raises:
        UsageError: unknown key (the nearest known one is named) or wrong value.
    """
    if not isinstance(document, dict):
        raise UsageError(f"{origin} is no baseline", "the top level is not a mapping", HELP)
    texts = {key: value for key, value in document.items() if isinstance(value, str)}
    switches = {key: SWITCHES.get(texts[key], texts[key]) for key in ("ecc", "mig", "persistence") if key in texts}
    document = document | switches | ({"vbios": [texts["vbios"]]} if "vbios" in texts else {})
    if (wrong := first_wrong(document, Expectation)) is not None:
        what = f"unknown key {wrong.path}" if wrong.unknown else f"wrong value at {wrong.path}"
        value, hint = document.get(wrong.path), HELP
        if isinstance(value, int | float) and not isinstance(value, bool):  # YAML reads 570.10 as the number 570.1
            hint = f'write a version in quotes: "{value}"'
        raise UsageError(f"{what} in {at(wrong.path) if at else origin}", wrong.why, wrong.hint or hint)
    expectation = msgspec.convert(document, prepared(Expectation))
    for key, (low, high) in RANGES.items():
        value = getattr(expectation, key)
        if value is not None and not low <= value <= high:
            place = at(key) if at else origin
            raise UsageError(f"wrong value at {key} in {place}", f"{value} makes no sense", f"use {low:g} to {high:g}")
    return expectation


FLOOR = 0.9
"""A copy is expected to reach this share of the slowest one measured: runs differ by a few percent."""


def slowest_link(gpu: Gpu) -> float | None:
    """The lowest speed of its active NVLinks, bytes per second; None: unknown."""
    speeds = (link.speed_bytes_per_second for link in active_links(gpu.nvlinks))
    return min((each for each in speeds if each is not None), default=None)


def driver(facts: NodeFacts) -> Driver:
    """Versions that NVML reports; unknown without a View."""
    return (facts.view.snapshot.driver if facts.view else None) or Driver()


def toolkit(facts: NodeFacts) -> str | None:
    """The oldest version of the container toolkit found."""
    return min(filter(None, facts.runtime.toolkit.values()), default=None) if facts.runtime else None


def check_baseline(target: Path) -> None:
    """Check that a new file can be made there, before anything is gathered.

    Raises:
        UsageError: its folder is absent, or the file exists: operators edit a baseline by hand.
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
"""A measured baseline contains these only where all GPUs agree."""

LEAST: dict[str, Callable[[Gpu], Any]] = {
    "pcie_generation": lambda gpu: gpu.pcie.generation_max,
    "pcie_width": lambda gpu: gpu.pcie.width,
    "memory": lambda gpu: gpu.memory.total,
    "nvlinks": lambda gpu: len(active_links(gpu.nvlinks)),
    "nvlink_speed": slowest_link,
}
"""A measured baseline expects the smallest value of any GPU from all."""

GPU_VALUES: dict[str, Callable[[Gpu], Any]] = {**PER_GPU, **LEAST, "vbios": lambda gpu: gpu.identity.vbios}
"""Key -> a GPU's value; None: unknown."""

NODE_VALUES: dict[str, Callable[[NodeFacts], Any]] = {
    "driver": lambda facts: driver(facts).version,
    "cuda": lambda facts: driver(facts).cuda,
    "kernel": lambda facts: facts.kernel.release if facts.kernel else None,
    "container_toolkit": toolkit,
    "fabric_manager": lambda facts: facts.services.fabric_manager if facts.services else None,
}
"""Key -> the node's value; None: unknown."""

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
