"""Which process has a port or a unix socket that another wants, as far as this process may know."""

import contextlib
import pwd
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

_LISTENS = "0A"
_PROC = Path("/proc")


def owner_of_port(port: int) -> str:
    """Who listens on the TCP port: `gpuwatch (process 4711)`; its user where no more may be known; empty for nobody."""
    owner = ""
    for inode, uid in _listeners(port):
        pid = _holder(inode)
        if pid is not None:
            return _named(pid)
        owner = owner or f"a process of user {_user(uid)}"
    return owner


def owner_of_peer(client: socket.socket) -> str:
    """The process at the other end of a connected unix socket: it called listen() there."""
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", credentials)
    return _named(pid) if pid else f"a process of user {_user(uid)}"  # 0: of another PID namespace


def _listeners(port: int) -> Iterator[tuple[str, int]]:
    """(inode, uid) of each socket that listens on the port, on any address of this network namespace."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (_PROC / "net" / name).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9], int(fields[7])


def _holder(inode: str) -> int | None:
    """The lowest PID that has the socket open, among the processes that this one may look into."""
    wanted = f"socket:[{inode}]"
    for pid in sorted(int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()):
        with contextlib.suppress(OSError):
            if any(_link(descriptor) == wanted for descriptor in list((_PROC / str(pid) / "fd").iterdir())):
                return pid
    return None


def _link(descriptor: Path) -> str:
    """What a descriptor is; empty when it is closed by now."""
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""


def _named(pid: int) -> str:
    try:
        comm = (_PROC / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return f"process {pid}"
    name = "".join(each if each.isprintable() else "?" for each in comm)  # a process gives itself any name
    return f"{name} (process {pid})"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
