"""A watch: the changes of one selection of objects, in order, until its time is over or it falls behind."""

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from gpuwatch.sim.kubeapi.message import Object
from gpuwatch.sim.kubeapi.selectors import Filter
from gpuwatch.sim.kubeapi.store import Write

_BACKLOG = 10_000


class Watch:
    """Filled by the cluster under its lock, emptied by whoever streams it."""

    def __init__(self, selection: Filter, namespace: str, *, bookmarks: bool, deadline: float) -> None:
        self.selection, self.namespace, self.bookmarks = selection, namespace, bookmarks
        self.deadline = deadline
        """On the cluster's monotonic clock."""
        self.wake: Callable[[], None] | None = None
        """Called when there is something to take, from the thread that wrote."""
        self.closed = False
        self._lines: deque[bytes] = deque()

    def show(self, objects: Sequence[Object], revision: int, *, initial: bool) -> None:
        """Begin with what exists; `initial` asks for the mark that says where it ends (sendInitialEvents)."""
        for value in objects:
            self._say("ADDED", value)
        if initial and self.bookmarks:
            self.bookmark(revision, {"k8s.io/initial-events-end": "true"})

    def offer(self, write: Write) -> None:
        """Take a change in, as the selection sees it: an object that leaves it is deleted, one that enters is new."""
        if self.closed or (self.namespace and write.key.namespace != self.namespace):
            return
        before = write.previous is not None and self.selection.matches(write.previous)
        now = write.change != "DELETED" and self.selection.matches(write.object)
        if now or before:
            self._say("MODIFIED" if now and before else "ADDED" if now else "DELETED", write.object)

    def bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> None:
        """Tell how far the watch has come."""
        metadata: Object = {"resourceVersion": str(revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        resource = self.selection.resource
        self._say("BOOKMARK", {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata})

    def fail(self, status: Object) -> None:
        """End with an error."""
        self._say("ERROR", status)
        self.close()

    def close(self) -> None:
        """Let nothing more in; what is in can still be taken."""
        self.closed = True
        self._notify()

    def take(self) -> bytes:
        """Everything since the last time, one JSON event a line."""
        lines = []
        while self._lines:
            lines.append(self._lines.popleft())
        return b"".join(lines)

    def _say(self, kind: str, value: Object) -> None:
        if len(self._lines) >= _BACKLOG:  # as the real one: who does not read is cut off, and lists anew
            self.closed = True
        else:
            self._lines.append(msgspec.json.encode({"type": kind, "object": value}) + b"\n")
        self._notify()

    def _notify(self) -> None:
        if self.wake is not None:
            self.wake()
