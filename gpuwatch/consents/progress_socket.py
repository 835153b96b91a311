"""Counters of work that has no page: a unix socket at which processes add what they have done, by lines `add NUMBER`.

The kernel reports which process connected (SO_PEERCRED), and /proc its owner, so that none can add to the counter of
another owner. A number within bounds is added, so that no counter ever falls; anything else is answered by one line
`error: WHAT; WHY` and ends that connection, never the thread. No owner that adds is dropped for another, and when all
connections are in use, the owner with most of them loses one.
"""

import logging
import re
import selectors
import socket
import struct
import threading
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from gpuwatch.http.listen import listen_unix
from gpuwatch.model.clock import Clock
from gpuwatch.model.consent import PROGRESS, SOCKET
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.storage.private_folder import make_named
from gpuwatch.workloads.procfs import Processes

log = logging.getLogger(__name__)

MOST_CONNECTIONS, MOST_OF_OWNER = 256, 64
MOST_OUTSIDE, MOST_OF_USER = 32, 16
"""Owners outside of pods, and those of one user; the consents bound the number of pods."""

SILENT_SECONDS, IDLE_SECONDS = 30.0, 300.0
"""Seconds without a line after which an owner has no counter any more, and a connection is closed."""

PAUSE_SECONDS, ACCEPTED, RECEIVED = 0.05, 16, 128
"""Seconds after each step; new connections, and bytes of each connection, in one step: a flood costs no more than 320
reads of /proc and 400 lines of each connection in a second.
"""

LONGEST_LINE, LARGEST, LARGEST_TOTAL = 64, 1e15, 2.0**53
"""Bytes of a line, the largest number to add, and the largest total: above it a float does not count by one."""

ADD = re.compile(rb"add ([0-9]{1,16}(?:\.[0-9]{1,9})?)\r?")


class WorkOwner(NamedTuple):
    """`id`: the uid of a pod; or the tuner's name for work outside of pods. `user`: the number of its account."""

    id: str
    user: int
    is_pod: bool


class Added(NamedTuple):
    """All that an owner has added. `at`: unix seconds of the newest line; `last`: the same by the monotonic clock."""

    owner: WorkOwner
    total: float
    at: float
    last: float


class Peer:
    """A connection: its owner, when its last whole line came, and the bytes since."""

    def __init__(self, owner: WorkOwner, at: float) -> None:
        self.owner, self.last, self.rest = owner, at, b""


class ProgressSocket:
    """Listens at `path`, for all users of the machine. `step` reads all connections once; `run` reads until it is
    stopped. Any thread may call `added` and replace `pods`.

    Raises:
        UsageError: it cannot listen there.
        PermissionMissing: others may write to the folder.
    """

    def __init__(self, path: Path, processes: Processes, clock: Clock) -> None:
        self.pods: frozenset[str] = frozenset()  # the uids of those that consented
        self._path, self._processes, self._clock = path, processes, clock
        self._added: dict[str, Added] = {}
        self._peers: dict[socket.socket, Peer] = {}
        is_new = not path.parent.exists()
        make_named(path.parent)
        if is_new:
            path.parent.chmod(0o755)
        self._listener = listen_unix(path, mode=0o666, option="tuning.progress_socket")
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)

    def close(self) -> None:
        """Stop listening and remove the file."""
        self._path.unlink(missing_ok=True)
        self._selector.close()
        for each in (*self._peers, self._listener):
            each.close()

    def run(self, stopping: threading.Event) -> None:
        """Read until `stopping` is set."""
        while not stopping.wait(PAUSE_SECONDS):
            try:
                self.step(1.0)
            except Exception:  # bytes that trigger a bug must not end the counters of others
                log.exception("a connection to the progress socket failed")

    def added(self) -> dict[str, Added]:
        """By the owner's id, of those that added something within SILENT_SECONDS and still consent."""
        now, known = self._clock.monotonic(), self._added.copy()  # copied at once: another thread adds
        return {
            name: each
            for name, each in known.items()
            if now - each.last <= SILENT_SECONDS and (not each.owner.is_pod or name in self.pods)
        }

    def step(self, seconds: float) -> None:
        """Wait at most so long for something to do, then read each connection once."""
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._listener:
                self._accept()
            elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._peers:
                self._receive(key.fileobj, self._peers[key.fileobj])
        self._added, now = self.added(), self._clock.monotonic()
        for connection in [each for each, peer in self._peers.items() if now - peer.last > IDLE_SECONDS]:
            self._end(connection, f"error: closed; nothing came for {IDLE_SECONDS:.0f} s\n")

    def _accept(self) -> None:
        for _ in range(ACCEPTED):
            try:
                connection, _ = self._listener.accept()
            except OSError:  # mostly: no connection is left
                return
            connection.setblocking(False)
            try:
                owner = self._owner(connection)
                self._make_room(owner.id)
            except GpuwatchError as error:
                self._end(connection, f"error: {error}\n")
                continue
            self._peers[connection] = Peer(owner, self._clock.monotonic())
            self._selector.register(connection, selectors.EVENT_READ)

    def _owner(self, connection: socket.socket) -> WorkOwner:
        """Raises GpuwatchError: the owner is not known."""
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
        pid, user, _ = struct.unpack("iII", credentials)
        if pid == 0:
            raise GpuwatchError("your process is in another PID namespace", "gpuwatch needs hostPID to identify it")
        found = self._processes.owners([pid]).get(pid)
        if found is None or found.uid != user:
            raise GpuwatchError(f"process {pid} is not known", f"/proc does not show it as one of user {user}")
        if found.pod_uid:
            return WorkOwner(found.pod_uid, user, is_pod=True)
        name = None if found.workload else found.name_outside_pods
        if name is None:
            raise GpuwatchError(f"process {pid} cannot be counted", "its owner is not known")
        return WorkOwner(name, user, is_pod=False)

    def _make_room(self, name: str) -> None:
        """Raises GpuwatchError: the owner has as many connections as it may have."""
        counts = Counter(peer.owner.id for peer in self._peers.values())
        (most, number), *_ = counts.most_common(1) or [("", 0)]
        is_full = len(self._peers) >= MOST_CONNECTIONS
        if counts[name] >= MOST_OF_OWNER or (is_full and counts[name] >= number):
            raise GpuwatchError("too many connections", f"{name} has {counts[name]}")
        if is_full:
            theirs = [connection for connection, peer in self._peers.items() if peer.owner.id == most]
            quietest = min(theirs, key=lambda each: self._peers[each].last)
            self._end(quietest, f"error: closed; {most} has most connections, and others need one\n")

    def _receive(self, connection: socket.socket, peer: Peer) -> None:
        try:
            received = connection.recv(RECEIVED)
        except OSError:
            received = b""
        *lines, peer.rest = (peer.rest + received).split(b"\n")
        answers, error = "", None
        try:
            for line in lines:
                self._add(peer, line)
                answers += "ok\n"
            if len(peer.rest) > LONGEST_LINE:
                raise GpuwatchError("a line is too long", f"{LONGEST_LINE} bytes at most")
        except GpuwatchError as found:
            error = f"error: {found}\n"
        if error or not received or not _sent(connection, answers):  # it has ended, or reads no answers
            self._end(connection, answers + error if error else "")

    def _add(self, peer: Peer, line: bytes) -> None:
        """Raises GpuwatchError: nothing is added."""
        found, owner = ADD.fullmatch(line), peer.owner
        if found is None or float(found[1]) > LARGEST:
            raise GpuwatchError("a line is not `add NUMBER`", f"NUMBER is decimal, from 0 to {LARGEST:g}")
        if owner.is_pod and owner.id not in self.pods:
            raise GpuwatchError(
                f"pod {owner.id} is not counted", f"neither it nor its namespace says {PROGRESS}: {SOCKET}"
            )
        before = self._added.get(owner.id)
        if before is None and not owner.is_pod:
            outside = [each.owner.user for each in self._added.values() if not each.owner.is_pod]
            if len(outside) >= MOST_OUTSIDE or outside.count(owner.user) >= MOST_OF_USER:
                raise GpuwatchError(f"{owner.id} is not counted", "too many others are")
        total = (before.total if before else 0.0) + float(found[1])
        if total > LARGEST_TOTAL:
            raise GpuwatchError(f"the counter of {owner.id} is full", f"it ends at {LARGEST_TOTAL:.0f}")
        peer.last = self._clock.monotonic()
        self._added[owner.id] = Added(owner, total, self._clock.time(), peer.last)

    def _end(self, connection: socket.socket, text: str) -> None:
        """Close the connection after a last text."""
        _sent(connection, text)
        if self._peers.pop(connection, None) is not None:
            self._selector.unregister(connection)
        connection.close()


def _sent(connection: socket.socket, text: str) -> bool:
    """Whether there was room for all of it."""
    try:
        return not text or connection.send(text.encode()) == len(text.encode())
    except OSError:
        return False
