"""The nvidia kernel module on the disk: for which kernels it is there, and whether DKMS could build it for this one.

`modprobe` takes a module only from the folder of the running kernel, and only when `modules.dep` there lists it.
"""

import re
from pathlib import Path
from typing import BinaryIO

from gpuwatch.diagnose.host.elf import section
from gpuwatch.host.plain_file import plain, text
from gpuwatch.model.snapshot import Record

_MODULES = "lib/modules"
_DKMS = "var/lib/dkms/nvidia"
_LISTED = re.compile(r"^(\S*\bnvidia\.ko(?:\.(?:gz|xz|zst))?):", re.ASCII | re.MULTILINE)
_SIGNED = b"~Module signature appended~\n"


class InstalledModule(Record, frozen=True, kw_only=True):
    """One nvidia.ko. `path` below the host's root; the rest is None where the file is compressed or cannot be read.
    `release`: the kernel it was built for; `license`: `NVIDIA` of the proprietary one, `Dual MIT/GPL` of the open one.
    """

    path: str
    version: str | None = None
    release: str | None = None
    license: str | None = None
    signed: bool | None = None


def installed_modules(root: Path) -> dict[str, InstalledModule | None] | None:
    """Kernel release below /lib/modules -> its nvidia module, None where it has none. None: no kernel is there."""
    try:
        folders = sorted(folder for folder in (root / _MODULES).iterdir() if (folder / "modules.dep").exists())
    except OSError:
        return None
    return {folder.name: _module(root, folder) for folder in folders} or None


def has_headers(root: Path, release: str) -> bool:
    """Whether modules can be built for this kernel: `build` in its folder leads somewhere."""
    build = root / _MODULES / release / "build"
    try:
        target = build.readlink()
    except OSError:
        return build.is_dir()
    return (root / str(target).lstrip("/") if target.is_absolute() else build).exists()


def dkms_versions(root: Path) -> tuple[str, ...]:
    """Versions of the driver that DKMS knows, whatever it has built of them."""
    try:
        return tuple(sorted(entry.name for entry in (root / _DKMS).iterdir() if entry.name[:1].isdecimal()))
    except OSError:
        return ()


def _module(root: Path, folder: Path) -> InstalledModule | None:
    match = _LISTED.search(text(folder / "modules.dep") or "")
    if match is None:
        return None
    path = Path(_MODULES, folder.name, match[1]) if not match[1].startswith("/") else Path(match[1].lstrip("/"))
    try:
        with open(root / path, "rb", opener=plain) as file:
            return _described(f"/{path}", file)
    except OSError:
        return InstalledModule(path=f"/{path}")


def _described(path: str, file: BinaryIO) -> InstalledModule:
    info = section(file, ".modinfo")
    if info is None:
        return InstalledModule(path=path)
    pairs = (row.decode("utf-8", "replace").partition("=") for row in info.split(b"\0"))
    facts = {name: value for name, _, value in pairs}
    file.seek(-len(_SIGNED), 2)
    return InstalledModule(
        path=path,
        version=facts.get("version"),
        release=facts.get("vermagic", "").partition(" ")[0] or None,
        license=facts.get("license"),
        signed=file.read() == _SIGNED,
    )
