"""The driver's user-space half: its libraries, programs and firmware, and the device files through which programs and
containers reach it. It is installed on the host itself, or in the root of a driver container.
"""

import contextlib
import os
import re
import stat
from itertools import islice, product
from pathlib import Path

from gpuwatch.diagnose.host.host_root import names
from gpuwatch.host.pci import driver_gpus
from gpuwatch.host.plain_file import text
from gpuwatch.model.snapshot import Record
from gpuwatch.model.text import number

_ROOTS = ("/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia", "/opt/nvidia/driver", "/usr/local/nvidia")
"""The host; the GPU operator's driver container; Google's Container-Optimized OS; others."""
_LIBRARIES = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib64/nvidia",
    "usr/lib",
    "usr/local/nvidia/lib64",
    "usr/local/lib",
    "lib/x86_64-linux-gnu",
    "lib64",
    "run/opengl-driver/lib",
    "x86_64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla",
    "usr/local/glibc/usr/lib",
)
_NAMES = ("libnvidia-ml.so.1", "libcuda.so.1", "libnvidia-ptxjitcompiler.so.1")
_PROGRAMS = ("usr/bin", "bin", "usr/local/bin", "usr/local/nvidia/bin", "run/current-system/sw/bin")
_FIRMWARE = (
    "lib/firmware/nvidia",
    "usr/lib/firmware/nvidia",
    "firmware/nvidia",
    "run/current-system/firmware/nvidia",
    "x86_64-bottlerocket-linux-gnu/sys-root/usr/lib/firmware/nvidia",
)
_VERSION = re.compile(r"\.so\.(\d{2,4}(?:\.\d{1,4}){1,3})", re.ASCII)
_MOST_LINKS = 8
_MOST_LEVELS, _MOST_CAPABILITIES = 6, 4096
_DEVICE_FOLDERS = ("nvidia-caps", "nvidia-caps-imex-channels")


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
    paths = [name for name in sorted(path.name for path in dev.iterdir()) if name.startswith(("nvidia", "gdrdrv"))]
    paths += [f"{folder}/{name}" for folder in _DEVICE_FOLDERS for name in names(dev / folder)]
    files: dict[str, DeviceNode] = {}
    for name in paths:
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
    for name in names(dev / "char"):
        with contextlib.suppress(OSError):
            char_links[name] = str((dev / "char" / name).readlink())
    capabilities: dict[str, int] = {}  # `gpu0/mig/gi1/access` -> 12
    folder = proc / "driver/nvidia/capabilities"
    levels = ("/".join("*" * depth) for depth in range(2, _MOST_LEVELS + 1))
    for place in islice((found for level in levels for found in folder.glob(level)), _MOST_CAPABILITIES):
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
    return {row[1]: major for row in rows if len(row) == 2 and (major := number(row[0])) is not None}


def capability_minor(content: str) -> int | None:
    """`DeviceFileMinor: 30` of a capability's file."""
    for line in content.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "DeviceFileMinor" and (minor := number(value.strip())) is not None:
            return minor
    return None


class DriverRoot(Record, frozen=True, kw_only=True):
    """`path` on the host (`/`, `/run/nvidia/driver`); `libraries`: soname -> version of the file behind it, such as
    `libnvidia-ml.so.1` -> `570.86.15`, empty where its name has none; `firmware`: driver version -> GSP
    images; `devices`: it has device files of its own.
    """

    path: str
    libraries: dict[str, str] = {}
    smi: bool = False
    modprobe: bool = False  # nvidia-modprobe: loads modules and makes device files at first use
    firmware: dict[str, tuple[str, ...]] = {}
    devices: bool = False


def driver_roots(root: Path) -> tuple[DriverRoot, ...]:
    """Every place that has libraries or nvidia-smi, the host itself first."""
    bases = ((root / path.lstrip("/"), path) for path in _ROOTS)
    found = (driver_root(base, path) for base, path in bases if base.is_dir())
    return tuple(place for place in found if place.libraries or place.smi)


def driver_root(base: Path, path: str) -> DriverRoot:
    """The place `path`, which is at `base` here. Libraries come from the first folder that has each, as the dynamic
    linker takes them; firmware folders that are named by chips are nouveau's.
    """
    libraries: dict[str, str] = {}
    for place, name in product((place for place in _LIBRARIES if (base / place).is_dir()), _NAMES):
        version = None if name in libraries else _library_version(base, Path(place, name))
        if version is not None:
            libraries[name] = version
    firmware: dict[str, tuple[str, ...]] = {}
    for folder in (folder for place in _FIRMWARE for folder in sorted((base / place).glob("[0-9]*.[0-9]*"))):
        images = tuple(sorted(file.name for file in folder.glob("gsp*.bin*")))
        if images:
            firmware.setdefault(folder.name, images)
    programs = {name for name in ("nvidia-smi", "nvidia-modprobe") for at in _PROGRAMS if (base / at / name).exists()}
    return DriverRoot(
        path=path,
        libraries=libraries,
        smi="nvidia-smi" in programs,
        modprobe="nvidia-modprobe" in programs,
        firmware=firmware,
        devices=(base / "dev/nvidiactl").exists(),
    )


def _library_version(base: Path, library: Path) -> str | None:
    """From the name of the file at the end of its links, empty where it has none; None: there is no such file."""
    place = library
    for _ in range(_MOST_LINKS):
        try:
            target = (base / place).readlink()
        except OSError:
            break
        place = Path(str(target).lstrip("/")) if target.is_absolute() else place.parent / target
    if not (base / place).is_file():
        return None
    match = _VERSION.search(place.name)
    if match is None:  # a library that was copied instead of linked: by a file beside it
        stem = library.name.removesuffix(".1")
        beside = sorted((base / library).parent.glob(f"{stem}.*"))
        match = next(filter(None, (_VERSION.fullmatch(file.name, len(stem) - 3) for file in beside)), None)
    return match[1] if match else ""
