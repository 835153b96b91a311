"""RESOURCES, the table of what is served, and the way from a method and a path to the call on one of them
(apiserver's RequestInfo).
"""

from collections.abc import Collection, Mapping

import msgspec

from gpuwatch.sim.kubeapi.messages import ApiError, ApiRequest, bad_request


class ApiResource(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of the API. `fields`: field selectors besides metadata.name and metadata.namespace, as paths."""

    group: str = ""
    plural: str
    kind: str
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    fields: Mapping[str, tuple[str, ...]] = {}

    @property
    def api_version(self) -> str:
        """Group and version, as objects carry it."""
        return f"{self.group}/v1" if self.group else "v1"


def _paths(*dotted: str) -> dict[str, tuple[str, ...]]:
    return {each: tuple(each.split(".")) for each in dotted}


RESOURCES = {
    resource.plural: resource
    for resource in (
        ApiResource(
            plural="nodes", kind="Node", namespaced=False, subresources=("status",), fields=_paths("spec.unschedulable")
        ),
        ApiResource(
            plural="pods",
            kind="Pod",
            subresources=("status", "eviction"),
            fields=_paths("spec.nodeName", "status.phase"),
        ),
        ApiResource(
            plural="events",
            kind="Event",
            fields=_paths(*(f"involvedObject.{part}" for part in ("kind", "namespace", "name", "uid")), "reason"),
        ),
        ApiResource(plural="namespaces", kind="Namespace", namespaced=False, subresources=("status",)),
        ApiResource(group="coordination.k8s.io", plural="leases", kind="Lease"),
        ApiResource(
            group="policy", plural="poddisruptionbudgets", kind="PodDisruptionBudget", subresources=("status",)
        ),
        ApiResource(
            group="resource.k8s.io",
            plural="resourceslices",
            kind="ResourceSlice",
            namespaced=False,
            fields=_paths("spec.nodeName"),
        ),
        ApiResource(group="resource.k8s.io", plural="devicetaintrules", kind="DeviceTaintRule", namespaced=False),
    )
}
"""By plural."""


def discovered(path: str, absent: Collection[str]) -> dict[str, object] | None:
    """The answer to a request for a group's versions, or for the resources of one without those in `absent`; None: the
    path is for neither.
    """
    match path.strip("/").split("/"):
        case ["apis", group]:
            version = {"groupVersion": f"{group}/v1", "version": "v1"}
            found: dict[str, object] = {"kind": "APIGroup", "versions": [version]}
        case ["apis", group, "v1"]:
            names = [{"name": name} for name, each in RESOURCES.items() if each.group == group and name not in absent]
            found = {"kind": "APIResourceList", "resources": names}
        case _:
            return None
    return found if any(each.group == group for each in RESOURCES.values()) else None


_VERBS = {"GET": "get", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create"}


class ServerCall(msgspec.Struct, frozen=True, kw_only=True):
    """One request on a resource. `verb`: get, list, create, patch or delete, as RBAC names it."""

    verb: str
    resource: ApiResource
    subresource: str = ""
    namespace: str = ""
    """Empty: cluster-scoped, or all namespaces."""
    name: str = ""
    request: ApiRequest

    @property
    def target(self) -> str:
        """Resource and subresource as RBAC rules name them."""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural

    def number(self, option: str) -> int:
        """An option of the query that is a number, 0 where it is not given. Raises ApiError 400."""
        text = self.request.query.get(option) or "0"
        if not (text.isascii() and text.isdecimal()):
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
        return int(text)


def call_of(request: ApiRequest) -> ServerCall:
    """The call of a request. Raises ApiError 404 for a resource that is not served, 405 for a verb it does not have."""
    absent = ApiError(404, "NotFound", "the server could not find the requested resource", {})
    match [part for part in request.path.split("/") if part]:
        case ["api", "v1", *parts]:
            group = ""
        case ["apis", group, "v1", *parts]:
            pass
        case _:
            raise absent
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces" and parts[2] in RESOURCES:
        namespace, parts = parts[1], parts[2:]
    resource = RESOURCES.get(parts[0]) if parts else None
    if resource is None or resource.group != group or len(parts) > 3 or (namespace and not resource.namespaced):
        raise absent
    name, subresource = (*parts[1:], "", "")[:2]
    if (subresource and subresource not in resource.subresources) or (name and resource.namespaced and not namespace):
        raise absent
    if subresource == "eviction":
        verb = "create" if request.method == "POST" else None
    else:
        verb = (_VERBS if name else _COLLECTION_VERBS).get(request.method)
    if verb is None or (verb == "delete" and subresource):
        message = "the server does not allow this method on the requested resource"
        raise ApiError(405, "MethodNotAllowed", message, {})
    return ServerCall(
        verb=verb, resource=resource, subresource=subresource, namespace=namespace, name=name, request=request
    )
