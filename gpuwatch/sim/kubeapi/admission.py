"""Changes and checks by the API server before it stores an object: defaults, members that a client may not change, and
the rules of its kind (kube-apiserver, pkg/apis/core/validation).

It covers only what gpuwatch's own requests depend on; tests/cluster sends the same requests to a real kube-apiserver.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpuwatch.sim.kubeapi.messages import Object, StatusCause, bad_request, invalid
from gpuwatch.sim.kubeapi.objects import gpus_of
from gpuwatch.sim.kubeapi.resources import ApiResource
from gpuwatch.sim.kubeapi.selectors import label_requirements

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_SYSTEM_FIELDS = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_FIRST_STATUS: dict[str, Object] = {"Pod": {"phase": "Pending"}, "Namespace": {"phase": "Active"}}
_STRING_MAPS = ("labels", "annotations", "matchLabels", "nodeSelector", "nodeInfo")
_ANNOTATION_BYTES = 256 * 1024
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")


@contextmanager
def refuse_malformed() -> Iterator[None]:
    """Answer 400 where an object has another shape than its kind; there is no schema here to name the member."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise bad_request(f"the object has not the shape of its kind: {type(error).__name__}: {error}") from error


def created(resource: ApiResource, value: Object) -> Object:
    """A new object as the server stores it. Raises ApiError 422."""
    new = _stored(resource, value)
    if resource.kind in _FIRST_STATUS:
        new["status"] = _FIRST_STATUS[resource.kind]
    if resource.kind == "Node":  # the admission plugin TaintNodesByCondition
        taints = new["spec"].get("taints", [])
        if all(taint.get("key") != NOT_READY["key"] for taint in taints):
            new["spec"] = {**new["spec"], "taints": [*taints, NOT_READY]}
    validate(resource, new)
    return new


def updated(resource: ApiResource, subresource: str, old: Object, new: Object) -> Object:
    """`new`, with the members of `old` that this request may not change. Raises ApiError 422."""
    kept = {field: old["metadata"][field] for field in _SYSTEM_FIELDS if field in old["metadata"]}
    metadata = {key: value for key, value in new["metadata"].items() if key not in _SYSTEM_FIELDS}
    result = {**new, "metadata": {**metadata, **kept}}
    if resource.subresources:
        part = "spec" if subresource == "status" else "status"
        result[part] = old.get(part)
    result = _stored(resource, result)
    validate(resource, result)
    return result


def _stored(resource: ApiResource, value: Object) -> Object:
    """The object without empty members, as Go writes it."""
    new: Object = {"kind": resource.kind, "apiVersion": resource.api_version, **_pruned(value)}
    if "status" in resource.subresources:
        new = {**new, "spec": new.get("spec", {}), "status": new.get("status", {})}
    new["metadata"] = {key: each for key, each in new["metadata"].items() if each != {}}
    return new


def _pruned(value: Any) -> Any:
    """Leave out nulls, empty strings and empty lists, as Go's omitempty does; maps of strings stay whole."""
    if isinstance(value, list):
        return [_pruned(item) for item in value]
    if not isinstance(value, dict):
        return value
    kept = {key: each if key in _STRING_MAPS else _pruned(each) for key, each in value.items()}
    return {key: each for key, each in kept.items() if each is not None and each not in ("", [])}


def validate(resource: ApiResource, value: Object) -> None:
    """Raise ApiError 422 that names every error of the object."""
    causes = list(_metadata_causes(value["metadata"]))
    match resource.kind:
        case "Node":
            causes += _taint_causes(value["spec"].get("taints", []))
        case "Event":
            namespace, about = value["metadata"]["namespace"], value["involvedObject"].get("namespace", "")
            if namespace != (about or "default"):  # Events about cluster-scoped objects live in `default`
                causes.append(_wrong("involvedObject.namespace", "does not match event.namespace"))
        case "Lease":
            causes += _lease_causes(value.get("spec", {}))
        case "Pod":
            gpus_of(value)
        case "PodDisruptionBudget":
            label_requirements(value["spec"].get("selector"))
    if causes:
        raise invalid(resource.group, resource.kind, value["metadata"]["name"], causes)


def _wrong(field: str, why: str) -> StatusCause:
    return StatusCause(reason="FieldValueInvalid", message=f"Invalid value: {why}", field=field)


def _metadata_causes(metadata: Object) -> Iterator[StatusCause]:
    name = metadata.get("name", "")
    if len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        yield _wrong("metadata.name", "a lowercase RFC 1123 subdomain is expected")
    for key, value in metadata.get("labels", {}).items():
        yield from _key_causes("metadata.labels", key)
        yield from _label_value_causes("metadata.labels", value)
    annotations = metadata.get("annotations", {})
    for key in annotations:
        yield from _key_causes("metadata.annotations", key.lower())
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATION_BYTES:
        message = f"Too long: may not be more than {_ANNOTATION_BYTES} bytes"
        yield StatusCause(reason="FieldValueTooLong", message=message, field="metadata.annotations")


def _key_causes(field: str, key: str) -> Iterator[StatusCause]:
    prefix, slash, name = key.rpartition("/")
    if (slash and not _SUBDOMAIN.fullmatch(prefix)) or len(name) > 63 or not _NAME.fullmatch(name):
        yield _wrong(field, f"{key!r} is not a qualified name")


def _label_value_causes(field: str, value: str) -> Iterator[StatusCause]:
    if value and (len(value) > 63 or not _NAME.fullmatch(value)):
        yield _wrong(field, f"{value!r} is not a label value")


def _taint_causes(taints: list[Object]) -> Iterator[StatusCause]:
    """The path in the messages is the one that the real server gives, wrong as it is."""
    earlier = set()
    for at, taint in enumerate(taints):
        field, effect = f"metadata.taints[{at}]", taint.get("effect", "")
        yield from _key_causes(f"{field}.key", taint.get("key", ""))
        yield from _label_value_causes(f"{field}.value", taint.get("value", ""))
        if not effect:
            yield StatusCause(reason="FieldValueRequired", message="Required value", field=f"{field}.effect")
        elif effect not in _EFFECTS:
            message = f"Unsupported value: supported values: {', '.join(_EFFECTS)}"
            yield StatusCause(reason="FieldValueNotSupported", message=message, field=f"{field}.effect")
        if (taint.get("key"), effect) in earlier:
            message = "Duplicate value: taints must be unique by key and effect pair"
            yield StatusCause(reason="FieldValueDuplicate", message=message, field=field)
        earlier.add((taint.get("key"), effect))


def _lease_causes(spec: Object) -> Iterator[StatusCause]:
    """metav1.MicroTime is read in one form only, with six digits of a second."""
    for text in (spec.get("acquireTime"), spec.get("renewTime")):
        if text is not None and not _MICRO_TIME.fullmatch(text):
            raise bad_request(f'parsing time "{text}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse')
    if spec.get("leaseDurationSeconds", 1) <= 0:
        yield _wrong("spec.leaseDurationSeconds", "must be greater than 0")
