"""Create, patch and delete, with the effects of kube-apiserver's strategies on each."""

import random
import uuid
from typing import Any

import msgspec

from gpuwatch.model.clock import Clock, rfc3339
from gpuwatch.model.decoding import prepared
from gpuwatch.sim.kubeapi.admission import created, refuse_malformed, updated
from gpuwatch.sim.kubeapi.messages import (
    ApiError,
    ApiRequest,
    Object,
    StatusCause,
    bad_request,
    conflict,
    details_of,
    invalid,
    not_found,
    qualified,
)
from gpuwatch.sim.kubeapi.objects import is_over
from gpuwatch.sim.kubeapi.resources import ApiResource, ServerCall
from gpuwatch.sim.kubeapi.store import ObjectKey, ObjectStore

_POD_GRACE_SECONDS = 30
_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def merge_patch(document: Any, patch: Any) -> Any:
    """Return `document` with `patch` merged in (RFC 7386); null removes a member, everything but objects replaces.

    `document` itself is not changed.
    """
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def strategic_merge_patch(document: Any, patch: Any) -> Any:
    """As `merge_patch`, but `status.conditions` of Nodes and pods are merged by type, as far as gpuwatch needs it.

    `$patch: delete` removes one, and new ones come first.
    Raises KeyError for a condition without a type.
    """
    conditions = (patch.get("status") or {}).get("conditions")
    merged = merge_patch(document, patch)
    if conditions is None:
        return merged
    old = (document.get("status") or {}).get("conditions") or []
    patched = {condition["type"]: condition for condition in conditions}
    by_type = {condition["type"]: condition for condition in old}
    added = [condition for name, condition in patched.items() if name not in by_type]
    kept = [merge_patch(condition, patched.get(name, {})) for name, condition in by_type.items()]
    merged["status"]["conditions"] = [each for each in (*added, *kept) if each.get("$patch") != "delete"]
    return merged


_PATCHES = {
    "application/merge-patch+json": merge_patch,
    "application/strategic-merge-patch+json": strategic_merge_patch,
}


def decoded(request: ApiRequest) -> Object:
    """The object in the body, with metadata. Raises ApiError 400."""
    try:
        value = msgspec.json.decode(request.body)
    except msgspec.DecodeError as error:
        raise bad_request(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise bad_request("the body is no object of Kubernetes")
    return {**value, "metadata": value.get("metadata") or {}}


def deletion_of(options: Object) -> tuple[str | None, int | None]:
    """The uid that DeleteOptions ask for and the grace period in seconds, None where they name none."""
    with refuse_malformed():
        grace = options.get("gracePeriodSeconds")
        uid: str | None = (options.get("preconditions") or {}).get("uid")
        return uid, None if grace is None else max(0, int(grace))


class ObjectWriter:
    """Changes the store. Every method raises ApiError where a real server would refuse."""

    def __init__(self, store: ObjectStore, clock: Clock, seed: int) -> None:
        self._store, self._clock = store, clock
        self._chance = random.Random(f"names {seed}")  # noqa: S311
        self._terminating: dict[ObjectKey, tuple[float, str]] = {}

    def create(self, resource: ApiResource, namespace: str, value: Object, user: str) -> Object:
        """POST: the object, complete. 409 where the name is taken, 404 where the namespace is missing."""
        with refuse_malformed():
            metadata = dict(value["metadata"])
            kind, version = value.get("kind", resource.kind), value.get("apiVersion", resource.api_version)
            if (kind, version) != (resource.kind, resource.api_version):
                raise bad_request(f"{version}, Kind={kind} is not what is expected here: {resource.kind}")
            if (metadata.get("namespace") or namespace) != namespace:
                message = "the namespace of the provided object does not match the namespace sent on the request"
                raise bad_request(message)
            if metadata.get("resourceVersion"):
                raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
            if not metadata.get("name"):
                cause = StatusCause(reason="FieldValueRequired", message="Required value", field="metadata.name")
                raise invalid(resource.group, resource.kind, "", [cause])
            if namespace and self._store.get(ObjectKey("namespaces", "", namespace)) is None:
                raise not_found("", "namespaces", namespace)
            metadata["uid"] = str(uuid.UUID(int=self._chance.getrandbits(128), version=4))
            metadata["creationTimestamp"] = rfc3339(self._clock.time())
            if resource.namespaced:
                metadata["namespace"] = namespace
            new = created(resource, {**value, "metadata": metadata})
        key = ObjectKey(resource.plural, namespace, metadata["name"])
        if self._store.get(key) is not None:
            message = f'{qualified(resource.group, resource.plural)} "{key.name}" already exists'
            raise ApiError(409, "AlreadyExists", message, details_of(resource.group, resource.plural, key.name))
        return self._store.put(key, new, user)

    def patch(self, call: ServerCall, user: str) -> Object:
        """PATCH: returns the stored object; a patch without changes writes nothing.

        409 where the patch names a `resourceVersion` or 422 where it names a `uid` that is not the current one.
        """
        resource, key = call.resource, ObjectKey(call.resource.plural, call.namespace, call.name)
        old = self._store.get(key)
        if old is None:
            raise not_found(resource.group, resource.plural, call.name)
        apply = _PATCHES.get(call.request.headers.get("content-type", "").partition(";")[0].strip())
        if apply is None:
            raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
        try:
            patch = msgspec.json.decode(call.request.body, type=prepared(dict))
        except msgspec.MsgspecError as error:
            raise bad_request(f"error decoding patch: {error}") from error
        with refuse_malformed():
            new = apply(old, patch)
            wanted, current = new["metadata"], old["metadata"]
            if wanted.get("name") != call.name:
                raise bad_request(f"the name of the object does not match the name on the URL ({call.name})")
            if wanted.get("resourceVersion", current["resourceVersion"]) != current["resourceVersion"]:
                raise conflict(resource.group, resource.plural, call.name, _MODIFIED)
            if wanted.get("uid", current["uid"]) != current["uid"]:
                cause = StatusCause(reason="FieldValueInvalid", message="field is immutable", field="metadata.uid")
                raise invalid(resource.group, resource.kind, call.name, [cause])
            new = updated(resource, call.subresource, old, new)
        return old if new == old else self._store.put(key, new, user)

    def delete(self, call: ServerCall, user: str) -> Object:
        """DELETE: a pod is answered with the pod, other kinds with a Status."""
        options = decoded(call.request) if call.request.body else {}
        resource = call.resource
        old = self._store.get(ObjectKey(resource.plural, call.namespace, call.name))
        if old is None:
            raise not_found(resource.group, resource.plural, call.name)
        uid, grace = deletion_of(options)
        self.check_uid(resource, old, uid)
        last = self.remove(resource, old, grace, user)
        if resource.plural == "pods":
            return last
        details = {**details_of(resource.group, resource.plural, call.name), "uid": old["metadata"]["uid"]}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    def check_uid(self, resource: ApiResource, value: Object, uid: str | None) -> None:
        """Raise ApiError 409 where the object is not the one that a deletion is about."""
        metadata = value["metadata"]
        if uid and uid != metadata["uid"]:
            why = (
                f"the UID in the precondition ({uid}) does not match the UID in record ({metadata['uid']}). "
                "The object might have been deleted and then recreated"
            )
            raise conflict(resource.group, resource.kind, metadata["name"], why)

    def remove(self, resource: ApiResource, old: Object, grace: int | None, user: str) -> Object:
        """Delete, or mark as terminating: a running pod on a node gets the grace period, by default its own."""
        metadata = old["metadata"]
        key = ObjectKey(resource.plural, metadata.get("namespace", ""), metadata["name"])
        if resource.plural == "pods" and old["spec"].get("nodeName") and not is_over(old):
            grace = old["spec"].get("terminationGracePeriodSeconds", _POD_GRACE_SECONDS) if grace is None else grace
        else:
            grace = 0
        if not grace:
            self._terminating.pop(key, None)
            return self._store.remove(key, user)
        if metadata.get("deletionGracePeriodSeconds", grace + 1) <= grace:
            return old
        deletion = {"deletionTimestamp": rfc3339(self._clock.time() + grace), "deletionGracePeriodSeconds": grace}
        stored = self._store.put(key, {**old, "metadata": {**metadata, **deletion}}, user)
        self._terminating[key] = self._clock.monotonic() + grace, metadata["uid"]
        return stored

    def tick(self) -> None:
        """Remove pods whose grace period is over, as their kubelet would."""
        now = self._clock.monotonic()
        for key, (due, uid) in tuple(self._terminating.items()):
            if due > now:
                continue
            del self._terminating[key]
            pod = self._store.get(key)
            if pod is not None and pod["metadata"]["uid"] == uid:
                self._store.remove(key, f"system:node:{pod['spec']['nodeName']}")
