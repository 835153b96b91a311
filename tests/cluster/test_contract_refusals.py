"""What a real API server refuses: clients branch on codes, reasons and fields."""

import pytest

from tests.cluster.api import EVENTS, LEASES, MERGE, NODES, PODS, invalid, refusal, without_messages


def test_a_token_that_nobody_gave(apiserver):
    assert apiserver.request("GET", NODES, token="wrong") == refusal(401, "Unauthorized", "Unauthorized")


@pytest.mark.parametrize(
    ("method", "path", "name", "verb", "resource", "group"),
    [
        ("GET", NODES, "", "list", "nodes", ""),
        ("GET", f"{NODES}/a", "a", "get", "nodes", ""),
        ("PATCH", f"{NODES}/a", "a", "patch", "nodes", ""),
        ("PATCH", f"{NODES}/a/status", "a", "patch", "nodes/status", ""),
        ("DELETE", f"{NODES}/a", "a", "delete", "nodes", ""),
        ("GET", "/api/v1/pods", "", "list", "pods", ""),
        ("POST", EVENTS, "", "create", "events", ""),
        ("POST", f"{PODS}/a/eviction", "a", "create", "pods/eviction", ""),
        ("GET", f"{LEASES}/a", "a", "get", "leases", "coordination.k8s.io"),
        ("POST", LEASES, "", "create", "leases", "coordination.k8s.io"),
    ],
)
def test_a_right_that_is_missing_is_named(apiserver, method, path, name, verb, resource, group):
    plural = resource.partition("/")[0]
    subject = f"{plural}.{group}" if group else plural
    subject += f' "{name}"' if name else ""
    where = 'in the namespace "default"' if "/namespaces/" in path else "at the cluster scope"
    message = (
        f'{subject} is forbidden: User "stranger" cannot {verb} resource "{resource}" in API group "{group}" {where}'
    )
    details = {**({"name": name} if name else {}), **({"group": group} if group else {}), "kind": plural}
    body = None if method in ("GET", "DELETE") else {}
    content_type = MERGE if method == "PATCH" else None
    answer = apiserver.request(method, path, body, content_type, user="stranger")
    assert answer == refusal(403, "Forbidden", message, details)


@pytest.mark.parametrize(("method", "body"), [("GET", None), ("PATCH", {}), ("DELETE", None)])
def test_an_object_that_is_not_there(apiserver, method, body):
    expected = refusal(404, "NotFound", 'nodes "none" not found', {"name": "none", "kind": "nodes"})
    assert apiserver.request(method, f"{NODES}/none", body, MERGE) == expected


def test_a_resource_that_is_not_there(apiserver):
    message = "the server could not find the requested resource"
    assert apiserver.request("GET", "/api/v1/nonsense") == refusal(404, "NotFound", message, {})


def test_a_group_that_is_not_there(apiserver):
    assert apiserver.request("GET", "/apis/nonsense.io/v1/things").status == 404


def test_a_verb_that_a_resource_does_not_have(apiserver, node, name):
    message = "the server does not allow this method on the requested resource"
    expected = refusal(405, "MethodNotAllowed", message, {})
    assert apiserver.request("POST", f"{NODES}/{name}", {"metadata": {"name": name}}) == expected


def test_a_field_that_does_not_select(apiserver):
    expected = refusal(400, "BadRequest", "field label not supported: spec.nonsense")
    assert apiserver.request("GET", f"{NODES}?fieldSelector=spec.nonsense=a") == expected


def test_labels_that_cannot_be_read(apiserver):
    status, body = apiserver.request("GET", f"{NODES}?labelSelector=a%20b")
    assert (status, body["reason"]) == (400, "BadRequest")
    assert body["message"].startswith("unable to parse requirement: ")


def test_a_patch_of_no_kind(apiserver, node, name):
    status, body = apiserver.request("PATCH", f"{NODES}/{name}", {}, "application/json")
    assert (status, body["reason"]) == (415, "UnsupportedMediaType")


def test_a_patch_that_is_no_object(apiserver, node, name):
    status, body = apiserver.request("PATCH", f"{NODES}/{name}", [1], MERGE)
    assert (status, body["reason"]) == (400, "BadRequest")
    assert body["message"].startswith("error decoding patch: ")


def test_an_object_of_another_kind(apiserver):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    status, body = apiserver.request("POST", NODES, pod)
    assert (status, body["reason"]) == (400, "BadRequest")


def test_a_name_that_is_none(apiserver):
    expected = invalid("Node", "Node_A", ("metadata.name", "Invalid"))
    assert without_messages(apiserver.request("POST", NODES, {"metadata": {"name": "Node_A"}})) == expected


def test_an_object_without_a_name(apiserver):
    assert without_messages(apiserver.request("POST", NODES, {"metadata": {}})) == invalid(
        "Node", "", ("metadata.name", "Required")
    )


@pytest.mark.parametrize(
    ("taints", "causes"),
    [
        ([{"key": "a", "effect": "Bad"}], [("metadata.taints[0].effect", "NotSupported")]),
        ([{"key": "a"}], [("metadata.taints[0].effect", "Required")]),
        (
            [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "value": "z", "effect": "NoSchedule"}],
            [("metadata.taints[1]", "Duplicate")],
        ),
        (
            [{"key": "a b", "value": "x y", "effect": "NoSchedule"}],
            [("metadata.taints[0].key", "Invalid"), ("metadata.taints[0].value", "Invalid")],
        ),
    ],
)
def test_taints_that_are_none(apiserver, node, name, taints, causes):
    answer = apiserver.request("PATCH", f"{NODES}/{name}", {"spec": {"taints": taints}}, MERGE)
    assert without_messages(answer) == invalid("Node", name, *causes)
    assert apiserver.request("GET", f"{NODES}/{name}").body == node


@pytest.mark.parametrize(
    ("metadata", "cause"),
    [
        ({"annotations": {"a": "x" * (256 * 1024)}}, ("metadata.annotations", "TooLong")),
        ({"annotations": {"a b": "x"}}, ("metadata.annotations", "Invalid")),
        ({"labels": {"a": "x y"}}, ("metadata.labels", "Invalid")),
        ({"uid": "other"}, ("metadata.uid", "Invalid")),
    ],
    ids=["huge annotation", "annotation", "label", "uid"],
)
def test_metadata_that_is_none(apiserver, node, name, metadata, cause):
    answer = apiserver.request("PATCH", f"{NODES}/{name}", {"metadata": metadata}, MERGE)
    assert without_messages(answer) == invalid("Node", name, cause)


def test_a_body_of_more_than_three_mebibytes(apiserver, node, name):
    huge = {"metadata": {"annotations": {"a": "x" * (3 << 20)}}}
    status, body = apiserver.request("PATCH", f"{NODES}/{name}", huge, MERGE)
    assert (status, body["reason"]) == (413, "RequestEntityTooLarge")
    assert body["message"].endswith("limit is 3145728")
