"""Which machine and which boot this is, as the kubelet reports it in `status.nodeInfo`;
and what this process, and others like it, may use: locked memory, shared memory, capabilities.
"""

import os
import re
from pathlib import Path

from gpuwatch.host.plain_file import content, text
from gpuwatch.host.tree import TreePath
from gpuwatch.model.snapshot import Host, Record

MACHINE_ID = Path("/etc/machine-id")


def boot_id_file(proc: Path) -> Path:
    """The file with the boot's id; not namespaced, so that a container reads the host's."""
    return proc / "sys/kernel/random/boot_id"


def in_pod() -> bool:
    """Whether this process runs in a container of Kubernetes: the kubelet sets the API server's address in each."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def machine(proc: Path, sys: Path, machine_id: Path = MACHINE_ID) -> Host:
    """Read what can be read. Only root reads `product_uuid`; a container's own machine-id differs or is empty."""
    return Host(
        boot_id=first_line(boot_id_file(proc)),
        machine_id=first_line(machine_id),
        system_uuid=first_line(sys / "class/dmi/id/product_uuid"),
    )


LONGEST_LINE = 4096
"""Bytes; the kernel command line has as many at most."""


def first_line(path: Path) -> str | None:
    """A one-line file; None when it is empty or cannot be read. What a copied tree has beyond one line is not read."""
    return (text(path, LONGEST_LINE) or "").partition("\n")[0] or None


_RUNTIMES = ("containerd", "crio", "dockerd")
_MEMLOCK = re.compile(r"^Max locked memory\s+(\d{1,20}|unlimited)\s", re.ASCII | re.MULTILINE)
_EFFECTIVE = re.compile(r"^CapEff:\s*([0-9a-f]{1,16})$", re.ASCII | re.MULTILINE)
_UID = re.compile(r"^Uid:\s*\d+\s+(\d+)", re.ASCII | re.MULTILINE)
_CAPABILITIES = (
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE "
    "NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN "
    "SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE "
    "MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE"
)  # by number, linux/capability.h


class ProcessLimits(Record, frozen=True, kw_only=True):
    """Bytes; `memlock` None: unlimited. `memlock_of`: the owner of that limit: the container runtime, whose limit
    its containers inherit, or else this process (`self`). `capabilities`: names such as CAP_SYS_ADMIN, of this
    process's effective set.
    """

    euid: int
    memlock: int | None = None
    memlock_of: str = "self"
    shm: int | None = None  # size of /dev/shm
    capabilities: tuple[str, ...] = ()


def process_limits(proc: Path, dev: Path) -> ProcessLimits:
    """The limits of this process.

    Raises:
        OSError: `proc` does not list it, as in a tree without processes.
    """
    status, own = (content(proc / "self" / name).decode(errors="replace") for name in ("status", "limits"))
    uid = _UID.search(status)
    owner, limits = "self", own
    for folder in sorted(proc.glob("[0-9]*")):
        name = text(folder / "comm")
        if name not in _RUNTIMES or (found := text(folder / "limits")) is None:
            continue
        runs_as = _UID.search(text(folder / "status") or "")
        if runs_as is None or runs_as[1] == "0":  # any process may take such a name
            owner, limits = name, found
            break
    return ProcessLimits(
        euid=int(uid[1]) if uid else os.geteuid(),
        memlock=memlock(limits),
        memlock_of=owner,
        shm=_shm(dev / "shm"),
        capabilities=capabilities(status),
    )


def memlock(text: str) -> int | None:
    """The soft limit from the text of /proc/PID/limits, in bytes; None: unlimited."""
    match = _MEMLOCK.search(text)
    return int(match[1]) if match and match[1] != "unlimited" else None


def capabilities(status: str) -> tuple[str, ...]:
    """Effective capabilities from the text of /proc/PID/status."""
    match = _EFFECTIVE.search(status)
    mask = int(match[1], 16) if match else 0
    return tuple(f"CAP_{name}" for number, name in enumerate(_CAPABILITIES.split()) if mask >> number & 1)


def _shm(folder: Path) -> int | None:
    """Size in bytes; None unless it is a file system of its own."""
    try:
        if folder.stat().st_dev == folder.parent.stat().st_dev:
            return None
        found = os.open(folder, os.O_PATH) if not isinstance(folder, TreePath) else folder.descriptor(os.O_PATH)
    except OSError:
        return None
    try:
        size = os.fstatvfs(found)
    finally:
        os.close(found)
    return size.f_blocks * size.f_frsize
