"""The kernel's side of the driver: which modules are loaded, which are installed, and what may keep them out."""

import re
from collections.abc import Iterator
from pathlib import Path

from gpuwatch.diagnose.host import host_root
from gpuwatch.diagnose.host.installed_modules import InstalledModule, dkms_versions, has_headers, installed_modules
from gpuwatch.host import plain_file
from gpuwatch.model.snapshot import Record

_RELEASE = re.compile(r"\b\d{3,4}\.\d{2,3}(?:\.\d{2,3})?\b", re.ASCII)
_PARAMETER = re.compile(r"\b(?:modprobe\.|module_|rd\.driver\.)blacklist=(\S+)", re.ASCII)
_MODPROBE = ("etc/modprobe.d", "run/modprobe.d", "usr/local/lib/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d")
_SECURE_BOOT = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


class Module(Record, frozen=True, kw_only=True):
    """One line of /proc/modules."""

    size: int
    references: int | None = None
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
    dkms: tuple[str, ...] = ()  # versions of the driver that DKMS knows
    headers: bool | None = None  # of the running kernel
    secure_boot: bool | None = None
    signatures_enforced: bool | None = None  # the kernel takes signed modules only
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
    """Read what can be read. `root` None: the host's own files cannot be seen, only /proc and /sys.

    Raises:
        OSError: not even /proc is there.
    """
    proc.stat()
    release, cmdline = _text(proc / "sys/kernel/osrelease"), _text(proc / "cmdline")
    driver, flavor, machine = version_line(_text(proc / "driver/nvidia/version") or "")
    return Kernel(
        release=release,
        cmdline=cmdline,
        modules=_modules(_text(proc / "modules")),
        driver=driver,
        flavor=flavor,
        machine=machine,
        module=_text(sys / "module/nvidia/version"),
        params=parameters(_text(proc / "driver/nvidia/params") or ""),
        installed=installed_modules(root) if root else None,
        dkms=dkms_versions(root) if root else (),
        headers=has_headers(root, release) if root and release else None,
        secure_boot=_secure_boot(sys),
        signatures_enforced=_flag(sys / "module/module/parameters/sig_enforce"),
        blacklisted=_blacklisted(root, cmdline or "") if root else None,
    )


def version_line(text: str) -> tuple[str | None, str | None, str | None]:
    """Version, flavor and machine of /proc/driver/nvidia/version; None each where it does not tell.

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


def _modules(text: str | None) -> dict[str, Module] | None:
    """`nvidia 56770560 121 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (OE)`"""
    if text is None:
        return None
    rows = (line.split() for line in text.splitlines())
    return {
        row[0]: Module(size=int(row[1]), references=int(row[2]) if row[2].isdecimal() else None, state=row[4])
        for row in rows
        if len(row) >= 5 and row[1].isdecimal()
    }


def _secure_boot(sys: Path) -> bool | None:
    """Four bytes of attributes, then one that is 1 when Secure Boot is on. None: no UEFI, or not for us to see."""
    try:
        value = plain_file.content(sys / _SECURE_BOOT)
    except OSError:
        return None
    return value[4] == 1 if len(value) == 5 else None


def _flag(file: Path) -> bool | None:
    return {"Y": True, "N": False}.get(_text(file) or "")


def _blacklisted(root: Path, cmdline: str) -> tuple[str, ...]:
    by_hand = {name for match in _PARAMETER.finditer(cmdline) for name in match[1].split(",")}
    return tuple(sorted({name.replace("-", "_") for name in by_hand | set(_blacklist_lines(root))}))


def _blacklist_lines(root: Path) -> Iterator[str]:
    """`blacklist nouveau`, `install nouveau /bin/false`"""
    for folder in _MODPROBE:
        for path in host_root.listing(root, folder, ".conf"):
            for words in (line.split() for line in _text_of(root, path).splitlines()):
                forbids = len(words) == 3 and words[0] == "install" and words[2].endswith(("/false", "/true"))
                if forbids or (len(words) == 2 and words[0] == "blacklist"):
                    yield words[1]


def _text_of(root: Path, path: str) -> str:
    try:
        return host_root.text(root, path)
    except OSError:
        return ""


def _text(file: Path) -> str | None:
    """None where it is empty or cannot be read."""
    return plain_file.text(file) or None
