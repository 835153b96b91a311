"""Rights that RBAC gives: to one object, in one namespace, to a verb of a subresource; all else stays shut."""

import pytest

from tests.cluster.api import LEASES, MERGE, NODES, PODS
from tests.waiting import until

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"


@pytest.fixture
def user(names):
    return f"user-{next(names)}"


@pytest.fixture
def grant(apiserver, user, name):
    """A function that gives the user one rule, in the whole cluster or in one namespace."""

    def grant(namespace="", **rule):
        place = f"{RBAC}/namespaces/{namespace}/role" if namespace else f"{RBAC}/clusterrole"
        kind = "Role" if namespace else "ClusterRole"
        rules = [{"apiGroups": [""], **rule}]
        subjects = [{"kind": "User", "apiGroup": GROUP, "name": user}]
        role = {"apiGroup": GROUP, "kind": kind, "name": name}
        for path, body in (
            (f"{place}s", {"rules": rules}),
            (f"{place}bindings", {"roleRef": role, "subjects": subjects}),
        ):
            assert apiserver.request("POST", path, {"metadata": {"name": name}, **body}).status == 201

    return grant


def allowed(apiserver, user, method, path, body=None, content_type=None):
    """Whether it is; a server may take a moment to see a new right."""
    return until(lambda: apiserver.request(method, path, body, content_type, user).status < 400, f"{method} {path}")


def forbidden(apiserver, user, method, path, body=None, content_type=None):
    return apiserver.request(method, path, body, content_type, user).status == 403


def test_one_node(apiserver, grant, user, node, name):
    grant(resources=["nodes", "nodes/status"], verbs=["get", "patch"], resourceNames=[name])
    assert allowed(apiserver, user, "GET", f"{NODES}/{name}")
    assert allowed(apiserver, user, "PATCH", f"{NODES}/{name}/status", {}, MERGE)
    assert forbidden(apiserver, user, "GET", f"{NODES}/other")
    assert forbidden(apiserver, user, "GET", NODES)
    assert forbidden(apiserver, user, "DELETE", f"{NODES}/{name}")


def test_one_namespace(apiserver, grant, user):
    grant("default", apiGroups=["coordination.k8s.io"], resources=["leases"], verbs=["list"])
    assert allowed(apiserver, user, "GET", LEASES)
    assert forbidden(apiserver, user, "GET", LEASES.replace("default", "kube-system"))
    assert forbidden(apiserver, user, "GET", "/apis/coordination.k8s.io/v1/leases")


def test_a_node_is_not_its_status(apiserver, grant, user, node, name):
    grant(resources=["nodes"], verbs=["patch"])
    assert allowed(apiserver, user, "PATCH", f"{NODES}/{name}", {}, MERGE)
    assert forbidden(apiserver, user, "PATCH", f"{NODES}/{name}/status", {}, MERGE)


def test_who_may_evict_may_not_delete(apiserver, grant, user, pod, name):
    grant(resources=["pods/eviction"], verbs=["create"])
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
    assert allowed(apiserver, user, "POST", f"{PODS}/{name}/eviction", eviction)
    assert forbidden(apiserver, user, "DELETE", f"{PODS}/{name}")
    assert forbidden(apiserver, user, "GET", f"{PODS}/{name}")
