"""Where the driver's user-space half is installed: the host itself, or the root of a driver container."""

import os
import re
from pathlib import Path

from gpuwatch.model.snapshot import Record

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


class DriverRoot(Record, frozen=True, kw_only=True):
    """`path` on the host (`/`, `/run/nvidia/driver`); `libraries`: soname -> version of the file behind it, such as
    `libnvidia-ml.so.1` -> `570.86.15`, or an empty text where its name does not tell; `firmware`: driver version -> GSP
    images; `devices`: it has device files of its own.
    """

    path: str
    libraries: dict[str, str] = {}
    smi: bool = False
    modprobe: bool = False  # nvidia-modprobe: loads modules and makes device files at first use
    firmware: dict[str, tuple[str, ...]] = {}
    devices: bool = False


def driver_roots(root: Path) -> tuple[DriverRoot, ...]:
    """Every place where some of it was found, the host itself first."""
    found = (_driver_root(root / path.lstrip("/"), path) for path in _ROOTS)
    return tuple(place for place in found if place.libraries or place.smi)


def library(root: Path, name: str = "libnvidia-ml.so.1") -> Path | None:
    """The file of the first place that has this library; None: it is nowhere."""
    files = (root / place.lstrip("/") / folder / name for place in _ROOTS for folder in _LIBRARIES)
    return next((file for file in files if file.exists()), None)


def _driver_root(base: Path, path: str) -> DriverRoot:
    return DriverRoot(
        path=path,
        libraries=_libraries(base),
        smi=_has_program(base, "nvidia-smi"),
        modprobe=_has_program(base, "nvidia-modprobe"),
        firmware=_firmware(base),
        devices=(base / "dev/nvidiactl").exists(),
    )


def _libraries(base: Path) -> dict[str, str]:
    """From the first folder that has each, as the dynamic linker would."""
    found: dict[str, str] = {}
    for folder in _LIBRARIES:
        for name in _NAMES:
            version = None if name in found else _version(base, Path(folder, name))
            if version is not None:
                found[name] = version
    return found


def _version(base: Path, library: Path) -> str | None:
    """By the name of the file at the end of its links; None: there is no such file."""
    place = library
    for _ in range(_MOST_LINKS):
        try:
            target = Path(os.readlink(base / place))
        except OSError:
            break
        place = Path(str(target).lstrip("/")) if target.is_absolute() else place.parent / target
    if not (base / place).is_file():
        return None
    match = _VERSION.search(place.name) or _beside(base / library)
    return match[1] if match else ""


def _beside(library: Path) -> re.Match[str] | None:
    """Of a library that was copied instead of linked."""
    stem = library.name.removesuffix(".1")
    found = (_VERSION.fullmatch(file.name, len(stem) - 3) for file in sorted(library.parent.glob(f"{stem}.*")))
    return next((match for match in found if match), None)


def _has_program(base: Path, name: str) -> bool:
    return any((base / folder / name).exists() for folder in _PROGRAMS)


def _firmware(base: Path) -> dict[str, tuple[str, ...]]:
    """`570.86.15` -> gsp_ga10x.bin, gsp_tu10x.bin; folders of nouveau's firmware have names of chips."""
    found: dict[str, tuple[str, ...]] = {}
    for place in _FIRMWARE:
        for folder in sorted((base / place).glob("[0-9]*.[0-9]*")):
            images = tuple(sorted(file.name for file in folder.glob("gsp*.bin*")))
            if images:
                found.setdefault(folder.name, images)
    return found
