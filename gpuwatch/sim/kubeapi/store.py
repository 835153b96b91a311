"""Objects under one growing revision: it has the role of etcd."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from gpuwatch.sim.kubeapi.messages import Object

Change = Literal["ADDED", "MODIFIED", "DELETED"]


class ObjectKey(NamedTuple):
    """Where an object lives; cluster-scoped ones have an empty namespace."""

    resource: str
    namespace: str
    name: str


class CommittedWrite(msgspec.Struct, frozen=True, kw_only=True):
    """One committed change."""

    revision: int
    change: Change
    key: ObjectKey
    object: Object
    """As it is now; of a deleted one its last state, at the revision of the deletion."""
    previous: Object | None
    user: str
    """The user whose request made the change."""


class ObjectStore:
    """In-memory objects. Not thread-safe: its callers hold the cluster's lock."""

    def __init__(self) -> None:
        self.revision = 1
        self.listeners: list[Callable[[CommittedWrite], None]] = []
        """Called with every change after it is done."""
        self._objects: dict[str, dict[tuple[str, str], Object]] = {}
        self._before: dict[ObjectKey, Object] = {}
        self._pods_on: dict[str, dict[tuple[str, str], Object]] = {}

    def get(self, key: ObjectKey) -> Object | None:
        """The object at `key`."""
        return self._objects.get(key.resource, {}).get((key.namespace, key.name))

    def before(self, key: ObjectKey) -> Object | None:
        """The object at `key` as it was before its last write; None after its first write."""
        return self._before.get(key)

    def pods_on(self, node: str) -> list[Object]:
        """Pods bound to a node, from an index: a list of one node's pods must not cost a walk over all pods."""
        found = self._pods_on.get(node, {})
        return [found[place] for place in sorted(found)]

    def all(self, resource: str, namespace: str = "") -> list[Object]:
        """Objects ordered by namespace and name."""
        objects = self._objects.get(resource, {})
        return [objects[place] for place in sorted(objects) if not namespace or place[0] == namespace]

    def put(self, key: ObjectKey, value: Object, user: str) -> Object:
        """Store `value` under a new revision and return it as stored."""
        return self._commit("MODIFIED" if self.get(key) else "ADDED", key, value, user)

    def remove(self, key: ObjectKey, user: str) -> Object:
        """Remove the object and return its last state."""
        return self._commit("DELETED", key, self._objects[key.resource][key[1:]], user)

    def _commit(self, change: Change, key: ObjectKey, value: Object, user: str) -> Object:
        self.revision += 1
        previous = self.get(key)
        if previous is None or change == "DELETED":
            self._before.pop(key, None)
        else:
            self._before[key] = previous
        stored = {**value, "metadata": {**value["metadata"], "resourceVersion": str(self.revision)}}
        tables = [self._objects.setdefault(key.resource, {})]
        if key.resource == "pods":
            self._pods_on.get((previous or stored)["spec"].get("nodeName"), {}).pop(key[1:], None)
            if node := stored["spec"].get("nodeName"):
                tables.append(self._pods_on.setdefault(node, {}))
        for table in tables:
            if change == "DELETED":
                table.pop(key[1:], None)
            else:
                table[key[1:]] = stored
        write = CommittedWrite(
            revision=self.revision, change=change, key=key, object=stored, previous=previous, user=user
        )
        for listener in self.listeners:
            listener(write)
        return stored
