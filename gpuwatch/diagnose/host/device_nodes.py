"""The device files through which programs and containers reach the driver."""

import contextlib
import os
import stat
from pathlib import Path

from gpuwatch.host.pci import driver_gpus
from gpuwatch.host.plain_file import text
from gpuwatch.model.snapshot import Record

_FOLDERS = ("nvidia-caps", "nvidia-caps-imex-channels")


class DeviceNode(Record, frozen=True, kw_only=True):
    """One file below /dev. `major` and `minor` None: it is no character device."""

    major: int | None = None
    minor: int | None = None
    mode: int = 0o666
    uid: int = 0


class DeviceNodes(Record, frozen=True, kw_only=True):
    """`files` by path below /dev (`nvidia0`, `nvidia-caps/nvidia-cap1`, `nvidia-caps-imex-channels/channel0`);
    `char_links`: `195:0` -> target, of /dev/char; `majors`: name -> number, of /proc/devices; `capabilities`: path
    below /proc/driver/nvidia/capabilities -> its minor; `gpus`: PCI address -> minor, of the GPUs the driver has;
    `excluded`: addresses of those it withholds from all programs.
    """

    files: dict[str, DeviceNode] = {}
    char_links: dict[str, str] = {}
    majors: dict[str, int] = {}
    capabilities: dict[str, int] = {}
    gpus: dict[str, int] = {}
    excluded: tuple[str, ...] = ()


def device_nodes(dev: Path, proc: Path) -> DeviceNodes:
    """Read what can be read.

    Raises:
        OSError: `dev` cannot be listed.
    """
    names = [name for name in sorted(os.listdir(dev)) if name.startswith(("nvidia", "gdrdrv"))]
    names += [f"{folder}/{name}" for folder in _FOLDERS for name in _listed(dev / folder)]
    files: dict[str, DeviceNode] = {}
    for name in names:
        try:
            found = (dev / name).stat()
        except OSError:
            continue
        if not stat.S_ISDIR(found.st_mode):
            is_device = stat.S_ISCHR(found.st_mode)
            files[name] = DeviceNode(
                major=os.major(found.st_rdev) if is_device else None,
                minor=os.minor(found.st_rdev) if is_device else None,
                mode=stat.S_IMODE(found.st_mode),
                uid=found.st_uid,
            )
    char_links: dict[str, str] = {}
    for name in _listed(dev / "char"):
        with contextlib.suppress(OSError):
            char_links[name] = os.readlink(dev / "char" / name)
    capabilities: dict[str, int] = {}  # `gpu0/mig/gi1/access` -> 12
    folder = proc / "driver/nvidia/capabilities"
    for place in (Path(parent, name) for parent, _, names in os.walk(folder) for name in names):
        minor = capability_minor(text(place) or "")
        if minor is not None:
            capabilities[str(place.relative_to(folder))] = minor
    gpus = driver_gpus(proc / "driver/nvidia/gpus")
    return DeviceNodes(
        files=files,
        char_links={name: target for name, target in char_links.items() if "nvidia" in target},
        majors=majors(text(proc / "devices") or ""),
        capabilities=dict(sorted(capabilities.items())),
        gpus={gpu.address: gpu.minor for gpu in gpus if gpu.minor is not None and not gpu.excluded},
        excluded=tuple(gpu.address for gpu in gpus if gpu.excluded),
    )


def majors(content: str) -> dict[str, int]:
    """Character devices of /proc/devices; of a name that has several numbers the last one."""
    characters = content.partition("Character devices:")[2].partition("Block devices:")[0]
    rows = (line.split() for line in characters.splitlines())
    return {row[1]: int(row[0]) for row in rows if len(row) == 2 and row[0].isdecimal()}


def capability_minor(content: str) -> int | None:
    """`DeviceFileMinor: 30` of a capability's file."""
    for line in content.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "DeviceFileMinor" and value.strip().isdecimal():
            return int(value)
    return None


def _listed(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
