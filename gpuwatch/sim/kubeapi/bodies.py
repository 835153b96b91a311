"""What a client sends along: decoded, fitted to the path it was sent to, or refused."""

from collections.abc import Callable
from typing import Any

import msgspec

from gpuwatch.sim.kubeapi.message import Object, Request
from gpuwatch.sim.kubeapi.patch import PatchError, json_patch, merge_patch
from gpuwatch.sim.kubeapi.resources import Resource
from gpuwatch.sim.kubeapi.route import Call
from gpuwatch.sim.kubeapi.shapes import check_shape
from gpuwatch.sim.kubeapi.status import ApiError, bad_request, unmet, unsupported_media_type
from gpuwatch.sim.kubeapi.strategic import strategic_merge


def decoded(call: Call) -> Object:
    """The object in the body, with metadata. Raises ApiError 400 or 415."""
    value = object_in(call.request)
    return {**value, "metadata": value.get("metadata") or {}}


def object_in(request: Request) -> Object:
    """The JSON object in the body. Raises ApiError 400 or 415."""
    if "protobuf" in request.headers.get("content-type", ""):
        raise unsupported_media_type()
    try:
        value = msgspec.json.decode(request.body)
    except msgspec.DecodeError as error:
        raise bad_request(f"the body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise bad_request("the body is no object of Kubernetes")
    return check_shape(value)


def patched(call: Call, old: Object) -> Object:
    """Return `old` after the patch in the body. Raises ApiError 400, 415, 422 or 500."""
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
        raise bad_request("error decoding patch: json: cannot unmarshal into a value of this patch type")
    try:
        new: Object = apply(old, patch)
    except PatchError as error:
        if apply is not json_patch:
            raise ApiError(500, "", str(error)) from error
        message = "the server rejected our request due to an error in our request"
        raise ApiError(422, "Invalid", message, {}) from error
    if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
        raise bad_request("the patch leaves no object")
    return check_shape(new)


def check_place(resource: Resource, namespace: str, value: Object) -> None:
    """Raise ApiError 400 where the object is of another kind or namespace than the path."""
    kind, version = value.get("kind", resource.kind), value.get("apiVersion", resource.api_version)
    if (kind, version) != (resource.kind, resource.api_version):
        given, expected = f"{version}, Kind={kind}", f"{resource.api_version}, Kind={resource.kind}"
        raise bad_request(f"{given} is not what is expected here: {expected}")
    given = value["metadata"].get("namespace") or namespace
    if given != namespace:
        message = "the namespace of the provided object does not match the namespace sent on the request"
        raise bad_request(message)


def check_preconditions(resource: Resource, metadata: Object, wanted: Object) -> None:
    """Raise ApiError 409 where the object is another one, or of another revision, than a deletion asks for."""
    uid, revision = wanted.get("uid"), wanted.get("resourceVersion")
    if uid and uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({metadata['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise unmet(resource, metadata["name"], why)
    if revision and revision != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({revision}) does not match the ResourceVersion in record "
            f"({metadata['resourceVersion']}). The object might have been modified"
        )
        raise unmet(resource, metadata["name"], why)
