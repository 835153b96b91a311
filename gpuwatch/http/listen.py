"""Listening sockets for the HTTP server; where one cannot be made, the error contains advice."""

import contextlib
import errno
import os
import pwd
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from gpuwatch.model.errors import UsageError

_BACKLOG = 4096
"""Connections that wait to be accepted. With fewer, the kernel drops those that arrive in a flood, and a scraper among
them tries again after a second, then after three.
"""
_RECEIVE_BYTES = 16 * 1024
"""Asyncio takes all that the kernel has of a connection, up to 256 KiB, before it stops reading."""
_SOCKET_MODE = 0o660
_NEXT_STEPS = {
    errno.EADDRINUSE: "stop its owner (for root ss -ltnp shows it), or choose another with --listen ADDR:PORT",
    errno.EACCES: "choose a port above 1023 or grant CAP_NET_BIND_SERVICE",
    errno.EADDRNOTAVAIL: "choose an address of this machine (ip address shows them), or :PORT for all",
}
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def listen_tcp(address: str) -> socket.socket:
    """Return a listening TCP socket for `ADDR:PORT` or `[IPV6]:PORT`; `:PORT` takes IPv6 and IPv4 where the kernel has
    both.

    Raises UsageError naming the address, what is wrong with it or the kernel's reason, the owner of a port that is
    taken, and the next step.
    """
    what = f"cannot listen on {address!r}"
    given, colon, digits = address.rpartition(":")
    if not colon or not (digits.isascii() and digits.isdigit()) or int(digits) > 65535:
        raise UsageError(what, "it is not ADDR:PORT", "for example :9400 or 127.0.0.1:9400")
    host, port = given.removeprefix("[").removesuffix("]"), int(digits)
    if ":" in host and host == given:
        raise UsageError(what, "an IPv6 address needs brackets", f"write [{host}]:{digits}")
    try:
        if host:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
            listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        else:
            listener = _bind_any(port)
    except (OSError, UnicodeError) as error:
        number = error.errno if isinstance(error, OSError) else None
        advice = _NEXT_STEPS.get(number or 0, "check the address given with --listen")
        owner = owner_of_port(port) if number == errno.EADDRINUSE else ""
        by = f" by {owner}" if owner else ""
        raise UsageError(f"cannot listen on {address}", _reason(error) + by, advice) from error
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited; asyncio misses it on proto 0
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)  # inherited, too
    return listener


def _bind_any(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
    return socket.create_server(("", port), backlog=_BACKLOG)


def listen_unix(path: Path, *, mode: int = _SOCKET_MODE, option: str = "--socket PATH") -> socket.socket:
    """Return a listening unix socket at `path`; a dead owner's socket file is replaced. `option` names the path.

    It is bound beside its place, gets its mode and is renamed: no process ever finds it missing or too open.
    Raises UsageError when a live process owns the path, when it is no socket, or when it cannot be made.
    """
    what = f"cannot listen on {path}"
    _refuse_taken(path, what, option)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        beside.unlink(missing_ok=True)
        listener.bind(str(beside))
        beside.chmod(mode)
        listener.listen(_BACKLOG)
        beside.rename(path)
    except OSError as error:
        listener.close()
        with contextlib.suppress(OSError):
            beside.unlink()
        advice = f"make its folder writable for this user, or choose a short path by {option}"
        raise UsageError(what, _reason(error), advice) from error
    return listener


def _refuse_taken(path: Path, what: str, option: str) -> None:
    if not path.exists():
        return
    if not path.is_socket():
        raise UsageError(what, "a file that is no socket is there", f"remove it, or choose another with {option}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.settimeout(1)
            probe.connect(str(path))
            # the process that called listen() there; 0: of another PID namespace
            credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            pid, uid, _ = struct.unpack("3i", credentials)
            owner = _named(pid) if pid else f"a process of user {_user(uid)}"
        except ConnectionRefusedError:
            return
        except OSError as error:
            raise UsageError(what, _reason(error), f"choose another with {option}") from error
    raise UsageError(what, f"{owner} answers there", f"stop that, or choose another with {option}")


def _reason(error: Exception) -> str:
    """Return the kernel's own text, without what Python's library adds to it."""
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number and number > 0 else str(error)


_LISTENS = "0A"
_PROC = Path("/proc")


def owner_of_port(port: int) -> str:
    """The listener on the TCP port: `gpuwatch (process 4711)`; only its user where no more can be read; empty: none."""
    owner = ""
    for inode, uid in _listeners(port):
        pid = _holder(inode)
        if pid is not None:
            return _named(pid)
        owner = owner or f"a process of user {_user(uid)}"
    return owner


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
            for descriptor in list((_PROC / str(pid) / "fd").iterdir()):
                with contextlib.suppress(OSError):  # it has been closed meanwhile
                    if str(descriptor.readlink()) == wanted:
                        return pid
    return None


def _named(pid: int) -> str:
    try:
        comm = (_PROC / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return f"process {pid}"
    name = "".join(each if each.isprintable() else "?" for each in comm)  # a process may choose any name
    return f"{name} (process {pid})"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
