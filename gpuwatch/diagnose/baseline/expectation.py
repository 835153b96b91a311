"""What a site expects of its nodes: a baseline file that `diagnose --expect` compares a node with."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.config import Section
from gpuwatch.config.errors import first_wrong
from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import UsageError


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
    power_budget: float | None = None  # watts, that the limits of all GPUs together may not exceed
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
"""Key -> smallest and largest value that make sense."""

SWITCHES = {"on": True, "off": False}

HELP = "docs/baseline.md lists the keys"


def load(path: Path) -> Expectation:
    """The expectations of a baseline file.

    Raises:
        UsageError: it cannot be read, is no YAML, has an unknown key or a value that makes no sense.
    """
    from gpuwatch.config.yaml import read

    found = read(path, "baseline", "--expect")
    return parse({} if found.value is None else found.value, str(path), found.at)


def parse(document: Any, origin: str, at: Callable[[str], str] | None = None) -> Expectation:
    """Turn a decoded document into expectations; `origin` names it in errors, and `at` the place of a key in it. One
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
