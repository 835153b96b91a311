"""What a real API server refuses, word by word: clients branch on codes and reasons, and people read the messages."""

import pytest

from tests.cluster.api import EVENTS, LEASES, MERGE, NODES, PODS, invalid, refusal

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
EFFECTS = 'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'
TWICE = '{"Key":"a","Value":"z","Effect":"NoSchedule","TimeAdded":null}: taints must be unique by key and effect pair'


def test_a_token_that_nobody_gave(apiserver):
    assert apiserver.request("GET", NODES, token="wrong") == refusal(401, "Unauthorized", "Unauthorized")


@pytest.mark.parametrize(
    ("method", "path", "name", "verb", "resource", "group"),
    [
        ("GET", NODES, "", "list", "nodes", ""),
        ("GET", f"{NODES}?watch=true", "", "watch", "nodes", ""),
        ("GET", f"{NODES}/a", "a", "get", "nodes", ""),
        ("PATCH", f"{NODES}/a", "a", "patch", "nodes", ""),
        ("PATCH", f"{NODES}/a/status", "a", "patch", "nodes/status", ""),
        ("PUT", f"{NODES}/a", "a", "update", "nodes", ""),
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


def test_a_name_that_is_not_the_one_of_the_path(apiserver, node, name):
    message = f"the name of the object (other) does not match the name on the URL ({name})"
    other = {"metadata": {"name": "other"}}
    assert apiserver.request("PUT", f"{NODES}/{name}", other) == refusal(400, "BadRequest", message)


def test_a_name_that_is_none(apiserver):
    message = f'Invalid value: "Node_A": {SUBDOMAIN}'
    expected = invalid("Node", "Node_A", ("metadata.name", "Invalid", message))
    assert apiserver.request("POST", NODES, {"metadata": {"name": "Node_A"}}) == expected


def test_an_object_without_a_name(apiserver):
    causes = [{
        "reason": "FieldValueRequired",
        "message": "Required value: name or generateName is required",
        "field": "metadata.name",
    }]  # fmt: skip
    message = 'Node "" is invalid: metadata.name: Required value: name or generateName is required'
    expected = refusal(422, "Invalid", message, {"kind": "Node", "causes": causes})
    assert apiserver.request("POST", NODES, {"metadata": {}}) == expected


@pytest.mark.parametrize(
    ("taints", "causes"),
    [
        (
            [{"key": "a", "effect": "Bad"}],
            [("metadata.taints[0].effect", "NotSupported", f'Unsupported value: "Bad": {EFFECTS}')],
        ),
        ([{"key": "a"}], [("metadata.taints[0].effect", "Required", "Required value")]),
        (
            [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "value": "z", "effect": "NoSchedule"}],
            [("metadata.taints[1]", "Duplicate", f"Duplicate value: {TWICE}")],
        ),
        (
            [{"key": "a b", "value": "x y", "effect": "NoSchedule"}],
            [
                ("metadata.taints[0].key", "Invalid", f'Invalid value: "a b": {KEY}'),
                ("metadata.taints[0].value", "Invalid", f'Invalid value: "x y": {VALUE}'),
            ],
        ),
    ],
)
def test_taints_that_are_none(apiserver, node, name, taints, causes):
    answer = apiserver.request("PATCH", f"{NODES}/{name}", {"spec": {"taints": taints}}, MERGE)
    assert answer == invalid("Node", name, *causes)
    assert apiserver.request("GET", f"{NODES}/{name}").body == node


@pytest.mark.parametrize(
    ("metadata", "cause"),
    [
        (
            {"annotations": {"a": "x" * (256 * 1024)}},
            ("metadata.annotations", "TooLong", "Too long: may not be more than 262144 bytes"),
        ),
        ({"annotations": {"a b": "x"}}, ("metadata.annotations", "Invalid", f'Invalid value: "a b": {KEY}')),
        ({"labels": {"a": "x y"}}, ("metadata.labels", "Invalid", f'Invalid value: "x y": {VALUE}')),
        ({"uid": "other"}, ("metadata.uid", "Invalid", 'Invalid value: "other": field is immutable')),
    ],
    ids=["huge annotation", "annotation", "label", "uid"],
)
def test_metadata_that_is_none(apiserver, node, name, metadata, cause):
    answer = apiserver.request("PATCH", f"{NODES}/{name}", {"metadata": metadata}, MERGE)
    assert answer == invalid("Node", name, cause)


def test_a_body_of_more_than_three_mebibytes(apiserver, node, name):
    huge = {"metadata": {"annotations": {"a": "x" * (3 << 20)}}}
    status, body = apiserver.request("PATCH", f"{NODES}/{name}", huge, MERGE)
    assert (status, body["reason"]) == (413, "RequestEntityTooLarge")
    assert body["message"].endswith("limit is 3145728")


def test_everybody_may_ask_for_the_version(apiserver):
    status, body = apiserver.request("GET", "/version", user="stranger")
    assert status == 200
    assert {"major", "minor", "gitVersion", "platform"} <= body.keys()
    assert body["gitVersion"].startswith(f"v{body['major']}.{body['minor']}.")
