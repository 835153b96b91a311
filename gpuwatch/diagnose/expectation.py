"""What a site expects of its nodes: a baseline file that `diagnose --expect` holds a node against."""

from pathlib import Path

from gpuwatch.config import Section


class Expectation(Section, frozen=True, kw_only=True):
    """None: nothing is expected. Versions may be prefixes (`570`, `570.86`)."""

    gpus: int | None = None
    model: str | None = None  # part of NVML's name
    driver: str | None = None
    cuda: str | None = None
    vbios: tuple[str, ...] = ()
    gsp_firmware: str | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    nvlinks: int | None = None  # active links per GPU
    nvlink_speed: float | None = None  # bytes per second and link
    memory: int | None = None  # bytes per GPU, at least
    ecc: bool | None = None
    mig: bool | None = None
    persistence: bool | None = None
    power_limit: float | None = None  # watts
    fabric_manager: str | None = None
    kernel: str | None = None
    container_toolkit: str | None = None
    host_to_device: float | None = None  # bytes per second, of the active checks


def load(path: Path) -> Expectation:
    """What a baseline file says.

    Raises:
        UsageError: it cannot be read, is no YAML, has an unknown key or a value that makes no sense.
    """
    return Expectation()
