"""TCP ports for the servers that tests start.

`bind(0)` and close gives a port of the ephemeral range, which the kernel may hand to any outgoing connection before the
server listens there. So these come from below that range, and a lock file of each keeps other test processes off it.
"""

import fcntl
import itertools
import os
import socket
import tempfile
from pathlib import Path

FIRST, LAST = 20000, 32000
_held: list[int] = []  # descriptors whose locks this process keeps until it ends


def free_port() -> int:
    """A port of 127.0.0.1 on which nothing listens and that no other call, in any process, returns meanwhile."""
    folder = Path(tempfile.gettempdir()) / f"gpuwatch-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    start = FIRST + os.getpid() * 37 % (LAST - FIRST)
    for port in itertools.chain(range(start, LAST), range(FIRST, start)):
        descriptor = os.open(folder / str(port), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            os.close(descriptor)
            continue
        _held.append(descriptor)
        return port
    raise AssertionError(f"no free port from {FIRST} to {LAST}")
