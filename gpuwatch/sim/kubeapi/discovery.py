"""What kubectl and clients ask before they ask for anything: versions, groups, resources, health."""

from gpuwatch.sim.kubeapi.message import Object, Response, reply
from gpuwatch.sim.kubeapi.resources import GROUPS, RESOURCES

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SUBRESOURCE_VERBS = {"status": ["get", "patch", "update"], "eviction": ["create"]}
VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3+gpuwatch-sim",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}


def discover(path: str) -> Response:
    """Answer a GET of a path that is none of a resource."""
    if path in ("/healthz", "/livez", "/readyz"):
        return Response(content_type="text/plain; charset=utf-8", body=b"ok")
    if path not in _PAGES:
        return Response(status=404, content_type="text/plain; charset=utf-8", body=b"404 page not found\n")
    return reply(_PAGES[path])


def _resources(group: str) -> Object:
    rows: list[Object] = []
    for each in RESOURCES:
        if each.group != group:
            continue
        row: Object = {"name": each.plural, "singularName": each.singular, "namespaced": each.namespaced}
        rows.append({**row, "kind": each.kind, "verbs": _VERBS, "shortNames": list(each.short_names)})
        for name in each.subresources:
            kind = (
                {"group": "policy", "version": "v1", "kind": "Eviction"} if name == "eviction" else {"kind": each.kind}
            )
            of = {"name": f"{each.plural}/{name}", "singularName": "", "namespaced": each.namespaced}
            rows.append({**of, **kind, "verbs": _SUBRESOURCE_VERBS[name]})
    version = f"{group}/v1" if group else "v1"
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": rows}


def _group(name: str) -> Object:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


_PAGES: dict[str, Object] = {
    "/version": VERSION,
    "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    "/api/v1": _resources(""),
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in GROUPS]},
    **{f"/apis/{name}": {"kind": "APIGroup", "apiVersion": "v1", **_group(name)} for name in GROUPS},
    **{f"/apis/{name}/v1": _resources(name) for name in GROUPS},
}
