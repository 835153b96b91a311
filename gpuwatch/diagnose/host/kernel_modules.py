"""The kernel's side of the driver: which modules are loaded, which are installed, and what may keep them out.

`modprobe` takes a module only from the folder of the running kernel, and only when `modules.dep` there lists it. The
section `.modinfo` of a module's ELF file describes it.
"""

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from gpuwatch.diagnose.host import host_root
from gpuwatch.host.machine import first_line
from gpuwatch.host.plain_file import content, entries, opened, text
from gpuwatch.model.snapshot import Record
from gpuwatch.model.text import number

_RELEASE = re.compile(r"\b\d{3,4}\.\d{2,3}(?:\.\d{2,3})?\b", re.ASCII)
_PARAMETER = re.compile(r"\b(?:modprobe\.|module_|rd\.driver\.)blacklist=(\S+)", re.ASCII)
_MODPROBE = ("etc/modprobe.d", "run/modprobe.d", "usr/local/lib/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d")
_SECURE_BOOT = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_MODULES = "lib/modules"
_DKMS = "var/lib/dkms/nvidia"
_LISTED = re.compile(r"^(\S*\bnvidia\.ko(?:\.(?:gz|xz|zst))?):", re.ASCII | re.MULTILINE)
_SIGNED = b"~Module signature appended~\n"

_ELF_HEADER = struct.Struct("<16s24xQ10xHHH")  # identification, section table's offset, entry size, entries, names
_ELF_SECTION = struct.Struct("<I20xQQ")  # name, offset, size; the rest of an entry is not needed
_ELF_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian: all machines NVIDIA's driver runs on
_LONGEST_ELF_SECTION = 1_048_576
_MOST_SECTIONS = 16_384


class InstalledModule(Record, frozen=True, kw_only=True):
    """One nvidia.ko. `path` below the host's root; the rest is None where the file is compressed or cannot be read.
    `release`: the kernel it was built for; `license`: `NVIDIA` of the proprietary one, `Dual MIT/GPL` of the open one.
    """

    path: str
    version: str | None = None
    release: str | None = None
    license: str | None = None
    signed: bool | None = None


class Module(Record, frozen=True, kw_only=True):
    """One line of /proc/modules."""

    size: int
    state: str = "Live"


class Kernel(Record, frozen=True, kw_only=True):
    """`driver`, `flavor` (open | proprietary) and `machine` (x86_64, aarch64) are as in
    /proc/driver/nvidia/version, `module` as in /sys/module/nvidia/version; `installed`: kernel releases below
    /lib/modules -> the nvidia module there. None: cannot be read, or is not there.
    """

    release: str | None = None
    cmdline: str | None = None
    modules: dict[str, Module] | None = None
    driver: str | None = None
    flavor: str | None = None
    machine: str | None = None
    module: str | None = None
    params: dict[str, str] = {}  # /proc/driver/nvidia/params
    installed: dict[str, InstalledModule | None] | None = None
    dkms: tuple[str, ...] = ()  # versions of the driver in DKMS
    headers: bool | None = None  # of the running kernel
    secure_boot: bool | None = None
    signatures_enforced: bool | None = None  # the kernel accepts signed modules only
    blacklisted: tuple[str, ...] | None = None  # by modprobe.d and the kernel command line

    @property
    def is_loaded(self) -> bool:
        """Whether the nvidia module is in the kernel."""
        return self.driver is not None or self.module is not None or "nvidia" in (self.modules or {})

    @property
    def own_module(self) -> InstalledModule | None:
        """What `modprobe nvidia` would load into the running kernel."""
        return (self.installed or {}).get(self.release or "")


def kernel(root: Path | None, proc: Path, sys: Path) -> Kernel:
    """Read what can be read. `root` None: the host's own files cannot be read, only /proc and /sys.

    Raises:
        OSError: not even /proc is there.
    """
    proc.stat()
    release, cmdline = first_line(proc / "sys/kernel/osrelease"), first_line(proc / "cmdline")
    driver, flavor, machine = version_line(text(proc / "driver/nvidia/version") or "")
    try:  # four bytes of attributes, then one that is 1 when Secure Boot is on; without UEFI there is no such file
        secure_boot = content(sys / _SECURE_BOOT)
    except OSError:
        secure_boot = b""
    enforced = text(sys / "module/module/parameters/sig_enforce")
    listed = text(proc / "modules") or ""
    # `nvidia 56770560 121 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (OE)`
    rows = [row for row in map(str.split, listed.splitlines()) if len(row) >= 5]
    return Kernel(
        release=release,
        cmdline=cmdline,
        modules={row[0]: Module(size=size, state=row[4]) for row in rows if (size := number(row[1])) is not None}
        if listed
        else None,
        driver=driver,
        flavor=flavor,
        machine=machine,
        module=first_line(sys / "module/nvidia/version"),
        params=parameters(text(proc / "driver/nvidia/params") or ""),
        installed=installed_modules(root) if root else None,
        dkms=dkms_versions(root) if root else (),
        headers=has_headers(root, release) if root and release else None,
        secure_boot=secure_boot[4] == 1 if len(secure_boot) == 5 else None,
        signatures_enforced={"Y": True, "N": False}.get(enforced or ""),
        blacklisted=tuple(sorted(set(_blacklisted(root, cmdline or "")))) if root else None,
    )


def version_line(text: str) -> tuple[str | None, str | None, str | None]:
    """Version, flavor and machine of /proc/driver/nvidia/version; None each where it is not stated.

    NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23 ...
    NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder@...)
    """
    line = next((line for line in text.splitlines() if line.startswith("NVRM version:")), "")
    version = _RELEASE.search(line)
    if version is None:
        return None, None, None
    machine = re.search(r"\b(x86_64|aarch64|ppc64le)\b", line)
    flavor = "open" if "Open Kernel Module" in line else "proprietary"
    return version[0], flavor, machine[1] if machine else None


def parameters(text: str) -> dict[str, str]:
    """`Name: value` lines."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def _blacklisted(root: Path, cmdline: str) -> Iterator[str]:
    """By the kernel command line, `blacklist nouveau` and `install nouveau /bin/false`."""
    for match in _PARAMETER.finditer(cmdline):
        yield from (name.replace("-", "_") for name in match[1].split(","))
    for path in (path for folder in _MODPROBE for path in host_root.listing(root, folder, ".conf")):
        try:
            lines = host_root.text(root, path).splitlines()
        except OSError:
            continue
        for fields in map(str.split, lines):
            forbids = len(fields) == 3 and fields[0] == "install" and fields[2].endswith(("/false", "/true"))
            if forbids or (len(fields) == 2 and fields[0] == "blacklist"):
                yield fields[1].replace("-", "_")


def installed_modules(root: Path) -> dict[str, InstalledModule | None] | None:
    """Kernel release below /lib/modules -> its nvidia module, None where it has none. None: no kernel is there."""
    try:
        folders = sorted(folder for folder in (root / _MODULES).iterdir() if (folder / "modules.dep").exists())
    except OSError:
        return None
    return {folder.name: _installed_module(root, folder) for folder in folders} or None


def _installed_module(root: Path, folder: Path) -> InstalledModule | None:
    match = _LISTED.search(text(folder / "modules.dep") or "")
    if match is None:
        return None
    path = Path(_MODULES, folder.name, match[1]) if not match[1].startswith("/") else Path(match[1].lstrip("/"))
    try:
        with opened(root / path) as file:
            info = elf_section(file, ".modinfo")
            if info is None:
                return InstalledModule(path=f"/{path}")
            file.seek(-len(_SIGNED), 2)
            signed = file.read() == _SIGNED
    except OSError:
        return InstalledModule(path=f"/{path}")
    pairs = (row.decode("utf-8", "replace").partition("=") for row in info.split(b"\0"))
    facts = {name: value for name, _, value in pairs}
    return InstalledModule(
        path=f"/{path}",
        version=facts.get("version"),
        release=facts.get("vermagic", "").partition(" ")[0] or None,
        license=facts.get("license"),
        signed=signed,
    )


def has_headers(root: Path, release: str) -> bool:
    """Whether modules can be built for this kernel: `build` in its folder leads somewhere."""
    build = root / _MODULES / release / "build"
    try:
        target = build.readlink()
    except OSError:
        return build.is_dir()
    return (root / str(target).lstrip("/") if target.is_absolute() else build).exists()


def dkms_versions(root: Path) -> tuple[str, ...]:
    """Versions of the driver in DKMS, built or not."""
    return tuple(entry.name for entry in entries(root / _DKMS) or () if entry.name[:1].isdecimal())


def elf_section(file: IO[bytes], name: str) -> bytes | None:
    """Contents of the first section of that name, without reading the rest; None where there is none, or this is no ELF
    file of 64 bits.

    Raises:
        OSError: the file cannot be read.
    """
    header = _at(file, 0, _ELF_HEADER.size)
    if len(header) < _ELF_HEADER.size or not header.startswith(_ELF_MAGIC):
        return None
    _, table, entry, count, names_at = _ELF_HEADER.unpack(header)
    if entry < _ELF_SECTION.size or not names_at < count <= _MOST_SECTIONS:
        return None
    entries = _at(file, table, entry * count)
    if len(entries) < entry * count:
        return None
    rows = [_ELF_SECTION.unpack_from(entries, entry * number) for number in range(count)]
    names = _at(file, *rows[names_at][1:])
    wanted = name.encode() + b"\0"
    found = next((row for row in rows if names[row[0] : row[0] + len(wanted)] == wanted), None)
    return None if found is None else _at(file, found[1], found[2])


def _at(file: IO[bytes], offset: int, size: int) -> bytes:
    if offset >= 1 << 62 or size > _LONGEST_ELF_SECTION:
        return b""
    file.seek(offset)
    return file.read(size)
