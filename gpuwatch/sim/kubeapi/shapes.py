"""The types of those members that the simulated server itself looks at; whatever else an object has passes as it is.

Checked where an object comes in, so that nobody behind has to doubt that labels are a map of strings.
"""

from typing import Any

import msgspec

from gpuwatch.sim.kubeapi.message import Object

_Map = dict[str, str] | None
_Strings = list[str] | None


class ShapeError(Exception):
    """A member is of another type than its kind has there."""


class _Shape(msgspec.Struct, rename="camel"):
    """A part of an object; members that are not listed may be anything. Only ever checked against, never made."""


class _Owner(_Shape):
    kind: str
    name: str
    uid: str
    controller: bool | None = None


class _Metadata(_Shape):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    labels: _Map = None
    annotations: _Map = None
    finalizers: _Strings = None
    owner_references: list[_Owner] | None = None


class _Taint(_Shape):
    key: str | None = None
    value: str | None = None
    effect: str | None = None
    time_added: str | None = None


class _Condition(_Shape):
    type: str | None = None
    status: str | None = None


class _Status(_Shape):
    phase: str | None = None
    conditions: list[_Condition] | None = None
    node_info: dict[str, Any] | None = None
    allocatable: dict[str, str | int] | None = None
    observed_generation: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    disruptions_allowed: int = 0
    disrupted_pods: _Map = None


class _Resources(_Shape):
    limits: dict[str, str | int] | None = None


class _Container(_Shape):
    resources: _Resources | None = None


class _Toleration(_Shape):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class _Expression(_Shape):
    key: str
    operator: str
    values: _Strings = None


class _Selector(_Shape):
    match_labels: _Map = None
    match_expressions: list[_Expression] | None = None


class _ResourceAttributes(_Shape):
    verb: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _Spec(_Shape):
    taints: list[_Taint] | None = None
    unschedulable: bool | None = None
    containers: list[_Container] | None = None
    tolerations: list[_Toleration] | None = None
    node_name: str | None = None
    termination_grace_period_seconds: int | None = None
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: _Selector | None = None
    resource_attributes: _ResourceAttributes | None = None


class _Preconditions(_Shape):
    uid: str | None = None
    resource_version: str | None = None


class _DeleteOptions(_Shape):
    grace_period_seconds: int | None = None
    dry_run: _Strings = None
    preconditions: _Preconditions | None = None


class _Involved(_Shape):
    namespace: str | None = None


class _Source(_Shape):
    component: str | None = None


class _RoleRule(_Shape):
    verbs: _Strings = None
    api_groups: _Strings = None
    resources: _Strings = None
    resource_names: _Strings = None


class _RoleRef(_Shape):
    kind: str
    name: str


class _Subject(_Shape):
    kind: str
    name: str
    namespace: str | None = None


class _Object(_DeleteOptions):
    metadata: _Metadata | None = None
    spec: _Spec | None = None
    status: _Status | None = None
    delete_options: _DeleteOptions | None = None
    involved_object: _Involved | None = None
    source: _Source | None = None
    event_time: str | None = None
    rules: list[_RoleRule] | None = None
    role_ref: _RoleRef | None = None
    subjects: list[_Subject] | None = None


def check_shape(value: Any) -> Object:
    """Return the object as it is. Raises ShapeError, which says what was expected where."""
    try:
        msgspec.convert(value, _Object)
    except msgspec.ValidationError as error:
        raise ShapeError(str(error)) from error
    checked: Object = value
    return checked
