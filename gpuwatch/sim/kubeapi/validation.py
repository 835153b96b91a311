"""What kube-apiserver refuses of the objects served here (pkg/apis/core/validation), in its words."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from gpuwatch.sim.kubeapi.message import Object
from gpuwatch.sim.kubeapi.objects import GPU
from gpuwatch.sim.kubeapi.resources import Resource
from gpuwatch.sim.kubeapi.selectors import OPERATORS
from gpuwatch.sim.kubeapi.shapes import ShapeError
from gpuwatch.sim.kubeapi.status import Cause, invalid

_ANNOTATION_BYTES = 256 * 1024
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PERCENTAGE = re.compile(r"[0-9]+%")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    f"'{_SUBDOMAIN.pattern}')"
)
_NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    f"'{_NAME.pattern}')"
)
_KEY_RULE = (
    f"{_NAME_RULE.replace('name part', 'a valid label key')} with an optional DNS subdomain prefix and '/' "
    "(e.g. 'example.com/MyName')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def validate(resource: Resource, value: Object) -> None:
    """Raise ApiError 422 that names everything wrong with the object."""
    causes = [*_metadata(value["metadata"]), *_RULES.get(resource.kind, _nothing)(value)]
    if causes:
        raise invalid(resource, value["metadata"]["name"], causes)


def wrong(field: str, value: Any, why: str) -> Cause:
    """A value that is not allowed there."""
    return Cause(reason="FieldValueInvalid", message=f"Invalid value: {_shown(value)}: {why}", field=field)


def required(field: str) -> Cause:
    """A value that is missing."""
    return Cause(reason="FieldValueRequired", message="Required value", field=field)


def _nothing(value: Object) -> Iterator[Cause]:
    yield from ()


def _metadata(metadata: Object) -> Iterator[Cause]:
    name = metadata.get("name", "")
    if len(name) > 253 or not _SUBDOMAIN.fullmatch(name):
        yield wrong("metadata.name", name, _SUBDOMAIN_RULE)
    for key, value in metadata.get("labels", {}).items():
        yield from _qualified("metadata.labels", key)
        yield from _label_value("metadata.labels", value)
    annotations = metadata.get("annotations", {})
    for key in annotations:
        yield from _qualified("metadata.annotations", key.lower(), shown=key)
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATION_BYTES:
        message = f"Too long: may not be more than {_ANNOTATION_BYTES} bytes"
        yield Cause(reason="FieldValueTooLong", message=message, field="metadata.annotations")


def _qualified(field: str, key: str, shown: str | None = None) -> Iterator[Cause]:
    if key.count("/") > 1:
        yield wrong(field, shown or key, _KEY_RULE)
        return
    prefix, slash, name = key.rpartition("/")
    if slash and not _SUBDOMAIN.fullmatch(prefix):
        yield wrong(field, shown or key, f"prefix part {_SUBDOMAIN_RULE}")
    if not name:
        yield wrong(field, shown or key, "name part must be non-empty")
    if len(name) > 63:
        yield wrong(field, shown or key, "name part must be no more than 63 bytes")
    if not _NAME.fullmatch(name):
        yield wrong(field, shown or key, _NAME_RULE)


def _label_value(field: str, value: str) -> Iterator[Cause]:
    if len(value) > 63:
        yield wrong(field, value, "must be no more than 63 bytes")
    if value and not _NAME.fullmatch(value):
        yield wrong(field, value, _VALUE_RULE)


def _node(value: Object) -> Iterator[Cause]:
    """Taints; the path in the messages is the one that the real server gives, wrong as it is."""
    seen = set()
    for at, taint in enumerate(value["spec"].get("taints", [])):
        field, effect = f"metadata.taints[{at}]", taint.get("effect", "")
        yield from _qualified(f"{field}.key", taint.get("key", ""))
        yield from _label_value(f"{field}.value", taint.get("value", ""))
        if not effect:
            yield required(f"{field}.effect")
        elif effect not in _EFFECTS:
            supported = ", ".join(json.dumps(each) for each in _EFFECTS)
            message = f"Unsupported value: {json.dumps(effect)}: supported values: {supported}"
            yield Cause(reason="FieldValueNotSupported", message=message, field=f"{field}.effect")
        if (taint.get("key"), effect) in seen:
            names = {"Key": "key", "Value": "value", "Effect": "effect"}
            shown = {**{go: taint.get(name, "") for go, name in names.items()}, "TimeAdded": taint.get("timeAdded")}
            message = f"Duplicate value: {_shown(shown)}: taints must be unique by key and effect pair"
            yield Cause(reason="FieldValueDuplicate", message=message, field=field)
        seen.add((taint.get("key"), effect))


def _event(value: Object) -> Iterator[Cause]:
    """Events about cluster-scoped objects live in the namespace default."""
    namespace, about = value["metadata"]["namespace"], value.get("involvedObject", {}).get("namespace", "")
    new = bool(value.get("eventTime"))
    _check_micro_times(value.get("eventTime"))
    homeless = ("default", "kube-system") if new else ("default",)
    if (not about and namespace not in homeless) or (about and about != namespace and not new):
        yield wrong("involvedObject.namespace", about, "does not match event.namespace")
    if new:
        for field in ("reportingComponent", "reportingInstance", "action", "reason"):
            if not value.get(field):
                yield required(field)


def _lease(value: Object) -> Iterator[Cause]:
    spec = value.get("spec", {})
    _check_micro_times(spec.get("acquireTime"), spec.get("renewTime"))
    if (seconds := spec.get("leaseDurationSeconds")) is not None and seconds <= 0:
        yield wrong("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    if (transitions := spec.get("leaseTransitions")) is not None and transitions < 0:
        yield wrong("spec.leaseTransitions", transitions, "must be greater than or equal to 0")


def _check_micro_times(*times: str | None) -> None:
    """metav1.MicroTime is read in one form only, with six digits of a second."""
    for text in times:
        if text is not None and not _MICRO_TIME.fullmatch(text):
            raise ShapeError(f'parsing time "{text}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse')


def _budget(value: Object) -> Iterator[Cause]:
    spec = value.get("spec", {})
    if "minAvailable" in spec and "maxUnavailable" in spec:
        shown = {key: spec[key] for key in ("minAvailable", "maxUnavailable")}
        yield wrong("spec", shown, "minAvailable and maxUnavailable cannot be both set")
    for field in ("minAvailable", "maxUnavailable"):
        bound = spec.get(field, 0)
        if isinstance(bound, str) and not _PERCENTAGE.fullmatch(bound):
            yield wrong(
                f"spec.{field}", bound, "a valid percent string must be a numeric string followed by an ending '%'"
            )
    for at, each in enumerate(spec.get("selector", {}).get("matchExpressions", [])):
        if each["operator"] not in OPERATORS:
            field = f"spec.selector.matchExpressions[{at}].operator"
            yield wrong(field, each["operator"], "not a valid selector operator")


def _pod(value: Object) -> Iterator[Cause]:
    if not value["spec"].get("containers"):
        yield required("spec.containers")
    for at, container in enumerate(value["spec"].get("containers", [])):
        gpus = container["resources"].get("limits", {}).get(GPU, 0)
        if not str(gpus).isdecimal():
            yield wrong(f"spec.containers[{at}].resources.limits[{GPU}]", gpus, "must be an integer")


def _binding(value: Object) -> Iterator[Cause]:
    if value.get("roleRef", {}).get("kind") not in ("Role", "ClusterRole"):
        yield required("roleRef.kind")


def _shown(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


_RULES: dict[str, Callable[[Object], Iterator[Cause]]] = {
    "Node": _node,
    "Event": _event,
    "Lease": _lease,
    "PodDisruptionBudget": _budget,
    "Pod": _pod,
    "RoleBinding": _binding,
    "ClusterRoleBinding": _binding,
}
