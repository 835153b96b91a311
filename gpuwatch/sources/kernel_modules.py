"""The kernel's side of the driver: which modules are loaded, which are installed, and what may keep them out."""

from pathlib import Path

from gpuwatch.model.snapshot import Record


class Module(Record, frozen=True, kw_only=True):
    """One line of /proc/modules."""

    size: int
    references: int | None = None
    state: str = "Live"


class Kernel(Record, frozen=True, kw_only=True):
    """`driver` and `flavor` (open | proprietary) from /proc/driver/nvidia/version, `module` from
    /sys/module/nvidia/version; `installed` maps kernel releases below /lib/modules to the nvidia module found there.
    None: cannot be read, or is not there.
    """

    release: str | None = None
    cmdline: str | None = None
    modules: dict[str, Module] | None = None
    driver: str | None = None
    flavor: str | None = None
    module: str | None = None
    params: dict[str, str] = {}  # /proc/driver/nvidia/params
    installed: dict[str, str] | None = None
    secure_boot: bool | None = None
    blacklisted: tuple[str, ...] | None = None  # by /etc/modprobe.d and the kernel command line


def kernel(root: Path, proc: Path, sys: Path) -> Kernel:
    """Read what can be read."""
    return Kernel()
