"""NVSwitches, RDMA adapters, the ConnectX that manages switches, and the fabric manager with its log and package.

Up to Hopper an NVSwitch is a PCI device of its own. Those of NVLink 5 (HGX B200 and newer) are visible only through
functions of a ConnectX-7 whose vital product data contain SW_MNG; nvidia-fabricmanager-start.sh looks for the same.

NVIDIA's package is nvidia-fabricmanager-BRANCH up to 575 and nvidia-fabricmanager from 580 on. The GPU operator's
driver container has one of its own, whose files are below /run/nvidia/driver. A database of RPMs is no text: there
only the log has a version.
"""

import contextlib
import re
from collections import deque
from pathlib import Path

from gpuwatch.diagnose.host.host_root import names, package_versions
from gpuwatch.host.plain_file import opened, text
from gpuwatch.model.snapshot import Record

NVIDIA, MELLANOX = "0x10de", "0x15b3"
_BRIDGE_CLASS = "0x0680"  # PCI: other bridge
_ETHERNET, _INFINIBAND = "0x0200", "0x0207"
_MANAGES_SWITCHES = b"SW_MNG"
_VPD_BYTES = 1024
"""The device returns its product data a few bytes at a time; the field is near their start."""

ROOTS = ("run/nvidia/driver", "")
"""Where the fabric manager may be installed, below the host's root; a driver container's is the one that runs."""

LOG = "var/log/fabricmanager.log"
PACKAGES = r"nvidia-fabricmanager(?:-\d+)?"

_LOG_BYTES = 8 << 20
_LONGEST = 300
_VERSION = rb"(\d{3,4}(?:\.\d{1,4}){1,3})"
_STARTED = re.compile(
    rb"Fabric Manager version (?:is : )?"
    + _VERSION
    + rb"(?=\s)|fabric manager NVIDIA GPU driver interface version "
    + _VERSION
    + rb" (?:don't|doesn't) match"
)
_ERROR = re.compile(rb"^.*(?:\[ERROR\]|don't match|failed with error).*$", re.MULTILINE)
_STAMP = re.compile(rb"^(?:\[[^\]\n]{1,64}\]\s*)+")
_PACKAGE_VERSION = re.compile(r"(?:\d+:)?(\d{3,4}(?:\.\d{1,4}){1,3})", re.ASCII)


class Adapter(Record, frozen=True, kw_only=True):
    """One function of a network adapter that can do RDMA. `driver`: mlx5_core, efa, ...; None: nothing is bound.
    `infiniband`: its link is InfiniBand, not Ethernet; `rdma`: its devices for RDMA, mlx5_0 for one;
    `manages_switches`: it carries no user data.
    """

    address: str
    driver: str | None = None
    infiniband: bool = False
    rdma: tuple[str, ...] = ()
    virtual: bool = False
    manages_switches: bool = False


class FabricManager(Record, frozen=True, kw_only=True):
    """`logged`: version of its last start; `error`: the last one in its log since then; `packaged`: version of the
    installed package.
    """

    logged: str | None = None
    error: str | None = None
    packaged: str | None = None


def nvswitches(devices: list[Path]) -> int:
    """NVSwitches on the PCI bus."""
    return sum(text(f / "vendor") == NVIDIA and (text(f / "class") or "").startswith(_BRIDGE_CLASS) for f in devices)


def adapters(devices: list[Path]) -> tuple[Adapter, ...]:
    """Functions of ConnectX, and of any other adapter with an InfiniBand device."""
    found: list[Adapter] = []
    for folder in devices:
        kind = (text(folder / "class") or "")[:6]
        rdma = tuple(names(folder / "infiniband"))
        is_connectx = text(folder / "vendor") == MELLANOX
        if kind not in (_ETHERNET, _INFINIBAND) or not (is_connectx or rdma):
            continue
        vpd = b""
        if is_connectx and kind == _INFINIBAND:
            try:
                with opened(folder / "vpd", buffering=0) as file:
                    vpd = file.read(_VPD_BYTES) or b""
            except OSError:  # only root may read it, and some functions have none
                pass
        driver = folder / "driver"
        found.append(
            Adapter(
                address=folder.name,
                driver=driver.readlink().name if driver.is_symlink() else None,
                infiniband=kind == _INFINIBAND,
                rdma=rdma,
                virtual=(folder / "physfn").exists(),
                manages_switches=_MANAGES_SWITCHES in vpd,
            )
        )
    return tuple(found)


def user_mad(sys: Path) -> bool:
    """Whether user space can send InfiniBand management datagrams: the purpose of the module ib_umad."""
    return any(name.startswith("umad") for name in names(sys / "class/infiniband_mad"))


def fabric_manager(root: Path) -> FabricManager:
    """From the log that was written last, and the newest package of the first of ROOTS that has one. Never raises."""
    logs: list[tuple[float, Path]] = []
    packaged: str | None = None
    for at in ROOTS:
        with contextlib.suppress(OSError):
            logs.append(((root / at / LOG).stat().st_mtime, root / at / LOG))
        found = map(_PACKAGE_VERSION.match, package_versions(root / at, PACKAGES).values())
        versions = [match[1] for match in found if match]
        newest = max(versions, key=lambda version: tuple(map(int, version.split("."))), default=None)
        packaged = packaged or newest
    log = b""
    if logs:
        with contextlib.suppress(OSError), opened(max(logs)[1]) as file:
            file.seek(max(0, file.seek(0, 2) - _LOG_BYTES))
            log = file.read(_LOG_BYTES)
    logged, error = parse_log(log)
    return FabricManager(logged=logged, error=error, packaged=packaged)


def parse_log(log: bytes) -> tuple[str | None, str | None]:
    """Version of the last start and the last error since, from `[Nov 21 2025 19:45:01] [INFO] [tid 1101] Fabric Manager
    version 570.86.15 is running with the following configuration options`.
    """
    version, error, since = None, None, 0
    if starts := deque(_STARTED.finditer(log), maxlen=1):
        since = log.rfind(b"\n", 0, starts[0].start()) + 1
        version = next((group.decode() for group in starts[0].groups() if group), None)
    if errors := deque(_ERROR.finditer(log, since), maxlen=1):
        line = _STAMP.sub(b"", errors[0].group().strip())[:_LONGEST].decode(errors="replace")
        error = " ".join("".join(c if c.isprintable() else " " for c in line).split())
    return version, error
