"""Create, replace, patch and delete, with what the strategies of kube-apiserver do to each."""

import random
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from gpuwatch.model.clock import Clock
from gpuwatch.sim.kubeapi.defaults import created, restored
from gpuwatch.sim.kubeapi.message import Object
from gpuwatch.sim.kubeapi.objects import is_over, timestamp
from gpuwatch.sim.kubeapi.patch import PatchError, json_patch, merge_patch
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
    success,
    unsupported_media_type,
)
from gpuwatch.sim.kubeapi.store import Key, Store
from gpuwatch.sim.kubeapi.strategic import strategic_merge
from gpuwatch.sim.kubeapi.validation import required, validate, wrong

_POD_GRACE_SECONDS = 30
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class Writes:
    """Changes of the store. Every method raises ApiError for what a server would refuse."""

    def __init__(self, store: Store, clock: Clock, chance: random.Random) -> None:
        self._store, self._clock, self._chance = store, clock, chance
        self._leaving: dict[Key, tuple[float, str]] = {}

    def create(self, call: Call, user: str) -> Object:
        """POST: the object, complete. 409 where the name is taken, 404 where the namespace is missing."""
        return self.insert(call.resource, call.namespace, decoded(call), user, dry_run=call.dry_run)

    def insert(self, resource: Resource, namespace: str, value: Object, user: str, *, dry_run: bool = False) -> Object:
        """Create an object that is not asked for over HTTP, by the same rules."""
        _check_place(resource, namespace, value)
        metadata = self._identity(resource, namespace, value["metadata"])
        key = Key(resource.plural, namespace, metadata["name"])
        if metadata.pop("resourceVersion", ""):
            raise bad_request("resourceVersion should not be set on objects to be created")
        if namespace and self._store.get(Key("namespaces", "", namespace)) is None:
            raise not_found(BY_PLURAL["namespaces"], namespace)
        new = created(resource, {**value, "metadata": metadata})
        validate(resource, new)
        if self._store.get(key) is not None:
            raise already_exists(resource, key.name)
        return new if dry_run else self._store.put(key, new, user)

    def replace(self, call: Call, user: str) -> Object:
        """PUT: as stored. 409 where `resourceVersion` or `uid` is not the current one."""
        value = decoded(call)
        metadata = value["metadata"]
        _check_place(call.resource, call.namespace, value)
        if metadata.get("name") != call.name:
            given = metadata.get("name", "")
            message = f"the name of the object ({given}) does not match the name on the URL ({call.name})"
            raise bad_request("name must be provided" if not given else message)
        old = self._store.get(_key(call))
        if old is None:
            if call.resource.create_on_update and not call.subresource and not metadata.get("uid"):
                return self.insert(call.resource, call.namespace, value, user, dry_run=call.dry_run)
            raise not_found(call.resource, call.name)
        if not metadata.get("resourceVersion") and not call.resource.unconditional_update:
            cause = wrong("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(call.resource, call.name, [cause])
        return self.update(call, old, value, user)

    def patch(self, call: Call, user: str) -> Object:
        """PATCH: as stored. 409 where the patch names a `resourceVersion` that is not the current one."""
        old = self._store.get(_key(call))
        if old is None:
            raise not_found(call.resource, call.name)
        new = _patched(call, old)
        if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
            raise bad_request("the patch leaves no object")
        if new["metadata"].get("name") != call.name:
            given = new["metadata"].get("name", "")
            raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({call.name})")
        return self.update(call, old, new, user)

    def update(self, call: Call, old: Object, new: Object, user: str) -> Object:
        """Put `new` in the place of `old`; nothing is written where nothing is new."""
        uid, revision = (new["metadata"].get(field) for field in ("uid", "resourceVersion"))
        current = old["metadata"]
        if uid and uid != current["uid"]:
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {current['uid']}"
            raise conflict(call.resource, call.name, why)
        if revision and revision != current["resourceVersion"]:
            raise conflict(call.resource, call.name)
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
            options = {**options, "gracePeriodSeconds": int(call.query["gracePeriodSeconds"])}
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
        _check_preconditions(resource, metadata, options.get("preconditions") or {})
        key = Key(resource.plural, metadata.get("namespace", ""), metadata["name"])
        grace = _grace(resource, old, options)
        if dry_run:
            return old
        if not grace and not metadata.get("finalizers"):
            self._leaving.pop(key, None)
            if resource.plural == "namespaces":
                self._empty(key.name, user)
            return self._store.remove(key, user)
        if metadata.get("deletionGracePeriodSeconds", grace + 1) <= grace:
            return old
        due = self._clock.time() + grace
        leaving = {**metadata, "deletionTimestamp": timestamp(due), "deletionGracePeriodSeconds": grace}
        stored = self._store.put(key, {**old, "metadata": leaving}, user)
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
            "name": name or f"{prefix}{''.join(self._chance.choices(_SUFFIX_LETTERS, k=5))}",
            "uid": str(uuid.UUID(int=self._chance.getrandbits(128), version=4)),
            "creationTimestamp": timestamp(self._clock.time()),
        }
        return {**identity, "namespace": namespace} if resource.namespaced else identity

    def _empty(self, namespace: str, user: str) -> None:
        for plural, resource in BY_PLURAL.items():
            for value in self._store.all(plural, namespace) if resource.namespaced else ():
                self._store.remove(Key(plural, namespace, value["metadata"]["name"]), user)


def decoded(call: Call) -> Object:
    """The object in the body. Raises ApiError 400 or 415."""
    if "protobuf" in call.request.headers.get("content-type", ""):
        raise unsupported_media_type()
    try:
        value = msgspec.json.decode(call.request.body)
    except msgspec.DecodeError as error:
        raise bad_request(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict) or not isinstance(value.setdefault("metadata", {}), dict):
        raise bad_request("the body is no object of Kubernetes")
    return value


def _patched(call: Call, old: Object) -> Object:
    kind = call.request.headers.get("content-type", "").partition(";")[0].strip()
    apply: Callable[[Any, Any], Any] | None = {
        "application/json-patch+json": json_patch,
        "application/merge-patch+json": merge_patch,
        "application/strategic-merge-patch+json": strategic_merge,
    }.get(kind)
    if apply is None:
        raise unsupported_media_type()
    try:
        patch = msgspec.json.decode(call.request.body)
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding patch: {error}") from error
    if not isinstance(patch, list if apply is json_patch else dict):
        raise bad_request("error decoding patch: json: cannot unmarshal into Go value")
    try:
        new: Object = apply(old, patch)
    except PatchError as error:
        if apply is not json_patch:
            raise bad_request(str(error)) from error
        message = "the server rejected our request due to an error in our request"
        raise ApiError(422, "Invalid", message, {}) from error
    return new


def _key(call: Call) -> Key:
    return Key(call.resource.plural, call.namespace, call.name)


def _check_place(resource: Resource, namespace: str, value: Object) -> None:
    kind, version = value.get("kind", resource.kind), value.get("apiVersion", resource.api_version)
    if (kind, version) != (resource.kind, resource.api_version):
        given, expected = f"{version}, Kind={kind}", f"{resource.api_version}, Kind={resource.kind}"
        raise bad_request(f"{given} is not what is expected here: {expected}")
    given = value["metadata"].get("namespace") or namespace
    if given != namespace:
        message = "the namespace of the provided object does not match the namespace sent on the request"
        raise bad_request(message)


def _check_preconditions(resource: Resource, metadata: Object, wanted: Object) -> None:
    uid, revision = wanted.get("uid"), wanted.get("resourceVersion")
    if uid and uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({metadata['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(resource, metadata["name"], why)
    if revision and revision != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record "
            f"({metadata['resourceVersion']}). The object might have been modified"
        )
        raise conflict(resource, metadata["name"], why)


def _grace(resource: Resource, old: Object, options: Object) -> int:
    if resource.plural != "pods" or not old["spec"].get("nodeName") or is_over(old):
        return 0
    default = old["spec"].get("terminationGracePeriodSeconds", _POD_GRACE_SECONDS)
    wanted = options.get("gracePeriodSeconds")
    return int(default if wanted is None else wanted)
