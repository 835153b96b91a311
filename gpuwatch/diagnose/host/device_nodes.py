"""The device files through which programs and containers reach the driver."""

import os
import stat
from collections.abc import Iterator
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
    `excluded`: addresses of those it lets nobody use.
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
    files, gpus = dict(_nodes(dev, names)), driver_gpus(proc / "driver/nvidia/gpus")
    for folder in _FOLDERS:
        files |= _nodes(dev, [f"{folder}/{name}" for name in _listed(dev / folder)])
    return DeviceNodes(
        files=files,
        char_links={name: link for name in _listed(dev / "char") if (link := _nvidia_link(dev / "char" / name))},
        majors=majors(text(proc / "devices") or ""),
        capabilities=_capabilities(proc / "driver/nvidia/capabilities"),
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


def _nodes(dev: Path, names: list[str]) -> Iterator[tuple[str, DeviceNode]]:
    for name in names:
        try:
            found = (dev / name).stat()
        except OSError:
            continue
        if stat.S_ISDIR(found.st_mode):
            continue
        is_device = stat.S_ISCHR(found.st_mode)
        yield (
            name,
            DeviceNode(
                major=os.major(found.st_rdev) if is_device else None,
                minor=os.minor(found.st_rdev) if is_device else None,
                mode=stat.S_IMODE(found.st_mode),
                uid=found.st_uid,
            ),
        )


def _nvidia_link(link: Path) -> str | None:
    try:
        target = os.readlink(link)
    except OSError:
        return None
    return target if "nvidia" in target else None


def _capabilities(folder: Path) -> dict[str, int]:
    """`gpu0/mig/gi1/access` -> 12"""
    found: dict[str, int] = {}
    for place, _, names in os.walk(folder):
        for name in names:
            minor = capability_minor(text(Path(place, name)) or "")
            if minor is not None:
                found[str(Path(place, name).relative_to(folder))] = minor
    return dict(sorted(found.items()))


def _listed(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
