"""Objects under one growing revision and the history of their changes: what etcd and the watch cache are to the API."""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import msgspec

from gpuwatch.sim.kubeapi.message import Object

Change = Literal["ADDED", "MODIFIED", "DELETED"]


class Key(NamedTuple):
    """Where an object lives; cluster-scoped ones have an empty namespace."""

    resource: str
    namespace: str
    name: str


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One committed change."""

    revision: int
    change: Change
    key: Key
    object: Object
    """As it is now; of a deleted one its last state, at the revision of the deletion."""
    previous: Object | None
    user: str
    """Who asked for it."""


class Store:
    """In-memory objects. Not thread-safe: whoever holds the cluster's lock may call."""

    def __init__(self, history: int) -> None:
        self.revision = 1
        self.compacted = 1
        """Changes up to this revision are forgotten."""
        self.listeners: list[Callable[[Write], None]] = []
        """Called with every change after it is done."""
        self._objects: dict[str, dict[tuple[str, str], Object]] = {}
        self._pods_of: dict[str, dict[tuple[str, str], Object]] = {}
        self._history: deque[Write] = deque()
        self._limit = history

    def get(self, key: Key) -> Object | None:
        """The object there."""
        return self._objects.get(key.resource, {}).get((key.namespace, key.name))

    def pods_on(self, node: str) -> list[Object]:
        """Pods bound to a node, as the apiserver's own index gives them."""
        found = self._pods_of.get(node, {})
        return [found[place] for place in sorted(found)]

    def all(self, resource: str, namespace: str = "", *, at: int | None = None) -> list[Object]:
        """Objects ordered by namespace and name; `at` an older revision, which must not be compacted."""
        objects = self._objects.get(resource, {})
        if at is not None and at < self.revision:
            objects = self._back_to(at, resource)
        return [objects[place] for place in sorted(objects) if not namespace or place[0] == namespace]

    def since(self, revision: int) -> Iterator[Write]:
        """Changes after `revision`, which must not be compacted."""
        first = bisect_right(self._history, revision, key=lambda write: write.revision)
        return (self._history[at] for at in range(first, len(self._history)))

    def put(self, key: Key, value: Object, user: str) -> Object:
        """Store `value` under a new revision and return it as stored."""
        previous = self.get(key)
        stored = _at(value, self.revision + 1)
        self._objects.setdefault(key.resource, {})[key[1:]] = stored
        self._index(key, previous, stored)
        self._commit("ADDED" if previous is None else "MODIFIED", key, stored, previous, user)
        return stored

    def remove(self, key: Key, user: str) -> Object:
        """Forget the object and return its last state."""
        previous = self._objects[key.resource].pop(key[1:])
        last = _at(previous, self.revision + 1)
        self._index(key, previous, None)
        self._commit("DELETED", key, last, previous, user)
        return last

    def compact(self) -> None:
        """Forget all history, as etcd does every five minutes."""
        self._history.clear()
        self.compacted = self.revision

    def _commit(self, change: Change, key: Key, value: Object, previous: Object | None, user: str) -> None:
        self.revision += 1
        write = Write(revision=self.revision, change=change, key=key, object=value, previous=previous, user=user)
        self._history.append(write)
        if len(self._history) > self._limit:
            self.compacted = self._history.popleft().revision
        for listener in self.listeners:
            listener(write)

    def _index(self, key: Key, previous: Object | None, now: Object | None) -> None:
        if key.resource != "pods":
            return
        for each, value in ((previous, None), (now, now)):
            node = each and each["spec"].get("nodeName")
            if not node:
                continue
            if value is None:
                self._pods_of[node].pop(key[1:], None)
            else:
                self._pods_of.setdefault(node, {})[key[1:]] = value

    def _back_to(self, revision: int, resource: str) -> dict[tuple[str, str], Object]:
        objects = dict(self._objects.get(resource, {}))
        for write in reversed(list(self.since(revision))):
            if write.key.resource != resource:
                continue
            if write.previous is None:
                objects.pop(write.key[1:], None)
            else:
                objects[write.key[1:]] = write.previous
        return objects


def _at(value: Object, revision: int) -> Object:
    return {**value, "metadata": {**value["metadata"], "resourceVersion": str(revision)}}
