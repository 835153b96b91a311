"""Create, replace, patch and delete, with what the strategies of kube-apiserver do to each."""

import random
import uuid

import msgspec

from gpuwatch.model.clock import Clock
from gpuwatch.model.rfc3339 import rfc3339
from gpuwatch.sim.kubeapi.bodies import check_place, check_preconditions, decoded, patched
from gpuwatch.sim.kubeapi.defaults import created, restored
from gpuwatch.sim.kubeapi.message import Object
from gpuwatch.sim.kubeapi.objects import is_over, suffix
from gpuwatch.sim.kubeapi.resources import BY_PLURAL, Resource
from gpuwatch.sim.kubeapi.route import Call
from gpuwatch.sim.kubeapi.status import (
    ApiError,
    already_exists,
    bad_request,
    conflict,
    details_of,
    invalid,
    not_found,
    other_uid,
    success,
    unversioned,
)
from gpuwatch.sim.kubeapi.store import Key, Store
from gpuwatch.sim.kubeapi.validation import required, validate, wrong

_POD_GRACE_SECONDS = 30


class Writes:
    """Changes of the store. Every method raises ApiError for what a server would refuse."""

    def __init__(self, store: Store, clock: Clock, chance: random.Random) -> None:
        self._store, self._clock, self._chance = store, clock, chance
        self._leaving: dict[Key, tuple[float, str]] = {}

    def create(self, call: Call, user: str) -> Object:
        """POST: the object, complete. 409 where the name is taken, 404 where the namespace is missing."""
        value = decoded(call)
        if value["metadata"].get("resourceVersion"):
            raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
        return self.insert(call.resource, call.namespace, value, user, dry_run=call.dry_run)

    def insert(self, resource: Resource, namespace: str, value: Object, user: str, *, dry_run: bool = False) -> Object:
        """Create an object that is not asked for over HTTP, by the same rules."""
        check_place(resource, namespace, value)
        metadata = self._identity(resource, namespace, value["metadata"])
        key = Key(resource.plural, namespace, metadata["name"])
        if namespace and self._store.get(Key("namespaces", "", namespace)) is None:
            raise not_found(BY_PLURAL["namespaces"], namespace)
        new = created(resource, {**value, "metadata": metadata})
        validate(resource, new)
        if self._store.get(key) is not None:
            raise already_exists(resource, key.name)
        return new if dry_run else self._store.put(key, new, user)

    def replace(self, call: Call, user: str) -> tuple[int, Object]:
        """PUT: 200 or 201, and as stored. 409 where `resourceVersion` or `uid` is not the current one."""
        value = decoded(call)
        metadata = value["metadata"]
        check_place(call.resource, call.namespace, value)
        if metadata.get("name") != call.name:
            given = metadata.get("name", "")
            mismatch = f"the name of the object ({given}) does not match the name on the URL ({call.name})"
            unnamed = f"the name of the object ({call.name} based on URL) was undeterminable: name must be provided"
            raise bad_request(mismatch if given else unnamed)
        old = self._store.get(_key(call))
        if old is None:
            return 201, self._create_by_put(call, value, user)
        uid = metadata.get("uid", old["metadata"]["uid"])
        if uid != old["metadata"]["uid"]:
            raise other_uid(call.resource, call.namespace, call.name, uid, old["metadata"]["uid"])
        if not metadata.get("resourceVersion") and not call.resource.unconditional_update:
            raise unversioned(call.resource, call.name)
        return 200, self.update(call, old, value, user)

    def _create_by_put(self, call: Call, value: Object, user: str) -> Object:
        if not call.resource.create_on_update or call.subresource:
            raise not_found(call.resource, call.name)
        if uid := value["metadata"].get("uid"):
            raise other_uid(call.resource, call.namespace, call.name, uid, "")
        return self.insert(call.resource, call.namespace, value, user, dry_run=call.dry_run)

    def patch(self, call: Call, user: str) -> Object:
        """PATCH: as stored. 409 where the patch names a `resourceVersion` that is not the current one."""
        old = self._store.get(_key(call))
        if old is None:
            raise not_found(call.resource, call.name)
        new = patched(call, old)
        if new["metadata"].get("name") != call.name:
            given = new["metadata"].get("name", "")
            raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({call.name})")
        return self.update(call, old, new, user)

    def update(self, call: Call, old: Object, new: Object, user: str) -> Object:
        """Put `new` in the place of `old`; nothing is written where nothing is new."""
        uid, revision = (new["metadata"].get(field) for field in ("uid", "resourceVersion"))
        current = old["metadata"]
        if revision and revision != current["resourceVersion"]:
            raise conflict(call.resource, call.name)
        if uid and uid != current["uid"]:
            raise invalid(call.resource, call.name, [wrong("metadata.uid", uid, "field is immutable")])
        new = restored(call.resource, call.subresource, old, new)
        validate(call.resource, new)
        if new == old or call.dry_run:
            return new
        if "deletionTimestamp" in current and not new["metadata"].get("finalizers") and current.get("finalizers"):
            return self._store.remove(_key(call), user)
        return self._store.put(_key(call), new, user)

    def delete(self, call: Call, user: str) -> Object:
        """DELETE: a Status, or the object for kinds that answer so. 409 where a precondition does not hold."""
        options = decoded(call) if call.request.body else {}
        if "gracePeriodSeconds" in call.query:
            options = {**options, "gracePeriodSeconds": call.number("gracePeriodSeconds")}
        old = self._store.get(_key(call))
        if old is None:
            raise not_found(call.resource, call.name)
        last = self.remove(call.resource, old, options, user, dry_run=call.dry_run or bool(options.get("dryRun")))
        if call.resource.returns_deleted:
            return last
        return success(details={**details_of(call.resource, call.name), "uid": old["metadata"]["uid"]})

    def remove(self, resource: Resource, old: Object, options: Object, user: str, *, dry_run: bool = False) -> Object:
        """Delete, or begin to: pods on a node are given their grace, finalizers their say."""
        metadata = old["metadata"]
        check_preconditions(resource, metadata, options.get("preconditions") or {})
        key = Key(resource.plural, metadata.get("namespace", ""), metadata["name"])
        grace = _grace(resource, old, options)
        if dry_run:
            return old
        if not grace and not metadata.get("finalizers"):
            self._leaving.pop(key, None)
            if resource.plural == "namespaces":
                self._empty(key.name, user)
            last = self._store.remove(key, user)
            return _left(last, self._clock.time()) if resource.plural == "pods" else last
        if metadata.get("deletionGracePeriodSeconds", grace + 1) <= grace:
            return old
        due = self._clock.time() + grace
        stored = self._store.put(key, _left(old, due, grace), user)
        if not metadata.get("finalizers"):
            self._leaving[key] = self._clock.monotonic() + grace, metadata["uid"]
        return stored

    def tick(self) -> None:
        """Let go of pods whose grace is over, as their kubelet would."""
        now = self._clock.monotonic()
        for key, (due, uid) in tuple(self._leaving.items()):
            if due > now:
                continue
            del self._leaving[key]
            pod = self._store.get(key)
            if pod is not None and pod["metadata"]["uid"] == uid:
                self._store.remove(key, f"system:node:{pod['spec']['nodeName']}")

    def _identity(self, resource: Resource, namespace: str, metadata: Object) -> Object:
        name, prefix = metadata.get("name"), metadata.get("generateName")
        if not name and not prefix:
            cause = required("metadata.name")
            better = msgspec.structs.replace(cause, message="Required value: name or generateName is required")
            raise invalid(resource, "", [better])
        identity = {
            **metadata,
            "name": name or f"{prefix}{suffix(self._chance)}",
            "resourceVersion": "",
            "uid": str(uuid.UUID(int=self._chance.getrandbits(128), version=4)),
            "creationTimestamp": rfc3339(self._clock.time()),
        }
        return {**identity, "namespace": namespace} if resource.namespaced else identity

    def _empty(self, namespace: str, user: str) -> None:
        for plural, resource in BY_PLURAL.items():
            for value in self._store.all(plural, namespace) if resource.namespaced else ():
                self._store.remove(Key(plural, namespace, value["metadata"]["name"]), user)


def _key(call: Call) -> Key:
    return Key(call.resource.plural, call.namespace, call.name)


def _left(value: Object, due: float, grace: int = 0) -> Object:
    metadata = {**value["metadata"], "deletionTimestamp": rfc3339(due), "deletionGracePeriodSeconds": grace}
    if "generation" in metadata:
        metadata["generation"] += 1
    return {**value, "metadata": metadata}


def _grace(resource: Resource, old: Object, options: Object) -> int:
    if resource.plural != "pods" or not old["spec"].get("nodeName") or is_over(old):
        return 0
    default = old["spec"].get("terminationGracePeriodSeconds", _POD_GRACE_SECONDS)
    wanted = options.get("gracePeriodSeconds")
    return max(0, int(default if wanted is None else wanted))
