"""From method and path to what is asked of which object (apiserver's RequestInfo)."""

from collections.abc import Mapping

import msgspec

from gpuwatch.sim.kubeapi.message import Request
from gpuwatch.sim.kubeapi.resources import BY_PATH, GROUPS, Resource
from gpuwatch.sim.kubeapi.status import bad_request, method_not_allowed, no_such_resource

_ON_ONE = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_ON_ALL = {"GET": "list", "HEAD": "list", "POST": "create", "DELETE": "deletecollection"}
_YES = ("1", "true", "True", "TRUE")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request on a resource."""

    verb: str
    """get, list, watch, create, update, patch, delete or deletecollection: RBAC's words."""
    resource: Resource
    subresource: str = ""
    namespace: str = ""
    """Empty: cluster-scoped, or all namespaces."""
    name: str = ""
    request: Request

    @property
    def query(self) -> Mapping[str, str]:
        """Options of the request."""
        return self.request.query

    @property
    def target(self) -> str:
        """Resource and subresource as RBAC rules name them."""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural

    @property
    def dry_run(self) -> bool:
        """Everything but the write is wanted."""
        return "dryRun" in self.query

    def number(self, option: str) -> int:
        """An option that is a number, 0 where it is not given. Raises ApiError 400."""
        text = self.query.get(option) or "0"
        if not (text.isascii() and text.isdecimal()):
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
        return int(text)


def call_of(request: Request) -> Call | None:
    """Return what is asked; None where the path is none of a resource.

    Raises ApiError 404 for a resource that is not served, 405 for a verb that it does not have.
    """
    group, parts = _split(request.path)
    if parts is None:
        return None
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2 and (group, parts[2]) in BY_PATH:
        namespace, parts = parts[1], parts[2:]
    resource = BY_PATH.get((group, parts[0]))
    if resource is None or len(parts) > 3 or (namespace != "" and not resource.namespaced):
        raise no_such_resource()
    name, subresource = (*parts[1:], "", "")[:2]
    if (subresource and subresource not in resource.subresources) or (name and resource.namespaced and not namespace):
        raise no_such_resource()
    return Call(
        verb=_verb(request, name, subresource),
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
        request=request,
    )


def _split(path: str) -> tuple[str, list[str] | None]:
    parts = [part for part in path.split("/") if part]
    if parts[:2] == ["api", "v1"] and len(parts) > 2:
        return "", parts[2:]
    if parts[:1] == ["apis"] and len(parts) > 3 and parts[1] in GROUPS and parts[2] == "v1":
        return parts[1], parts[3:]
    return "", None


def _verb(request: Request, name: str, subresource: str) -> str:
    if request.query.get("watch") in _YES and not name:
        return "watch"
    if subresource == "eviction":
        verb = "create" if request.method == "POST" else None
    else:
        verb = (_ON_ONE if name else _ON_ALL).get(request.method)
    if verb is None or (verb == "delete" and subresource):
        raise method_not_allowed()
    return verb
