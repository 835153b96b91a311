"""Nodes as a real API server keeps them: versions, both kinds of patch, and the wall between spec and status."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.api import MERGE, NODES, STRATEGIC, refusal
from tests.waiting import until

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
MINE = {"key": "gpuwatch.io/unhealthy", "value": "xid-79", "effect": "NoSchedule"}
TAINTS_EACH = 10
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@pytest.fixture
def path(node):
    return f"{NODES}/{node['metadata']['name']}"


def metadata(name, **members):
    return {"metadata": {"name": name, **members}}


def conflict(name):
    message = f'Operation cannot be fulfilled on nodes "{name}": {MODIFIED}'
    return refusal(409, "Conflict", message, {"name": name, "kind": "nodes"})


def changed(apiserver, path, patch, content_type=MERGE):
    status, body = apiserver.request("PATCH", path, patch, content_type)
    assert status == 200, body
    return body


def test_a_new_node_has_an_identity_and_is_not_ready(node, name):
    assert node["metadata"].keys() == {"name", "uid", "resourceVersion", "creationTimestamp"}
    assert (node["kind"], node["apiVersion"], node["metadata"]["name"]) == ("Node", "v1", name)
    assert node["spec"] == {"taints": [NOT_READY]}


def test_what_was_made_can_be_read(apiserver, node, path, name):
    assert apiserver.request("GET", path) == (200, node)
    status, body = apiserver.request("GET", f"{NODES}?fieldSelector=metadata.name={name}")
    assert (status, body["kind"]) == (200, "NodeList")
    assert [item["metadata"]["uid"] for item in body["items"]] == [node["metadata"]["uid"]]


def test_the_cache_soon_has_the_last_write(apiserver, node, path):
    after = changed(apiserver, path, {"metadata": {"labels": {"a": "b"}}})
    until(lambda: apiserver.request("GET", f"{path}?resourceVersion=0") == (200, after), "the cache has it")


def test_a_name_is_given_once(apiserver, node, name):
    expected = refusal(409, "AlreadyExists", f'nodes "{name}" already exists', {"name": name, "kind": "nodes"})
    assert apiserver.request("POST", NODES, metadata(name)) == expected


def test_a_node_made_again_is_another_one(apiserver, node, path, name):
    status, body = apiserver.request("DELETE", path)
    assert (status, body["status"]) == (200, "Success")
    assert body["details"] == {"name": name, "kind": "nodes", "uid": node["metadata"]["uid"]}
    assert apiserver.request("GET", path).status == 404
    again = apiserver.request("POST", NODES, metadata(name)).body
    assert again["metadata"]["uid"] != node["metadata"]["uid"]


def test_every_change_gives_a_version_and_none_gives_none(apiserver, node, path):
    first = changed(apiserver, path, {"metadata": {"labels": {"a": "b"}}})["metadata"]["resourceVersion"]
    assert first != node["metadata"]["resourceVersion"]
    assert changed(apiserver, path, {"metadata": {"labels": {"a": "b"}}})["metadata"]["resourceVersion"] == first


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
@pytest.mark.parametrize("subresource", ["", "/status"])
def test_a_patch_of_an_old_version_is_refused(apiserver, node, path, name, content_type, subresource):
    after = changed(apiserver, path, {"metadata": {"labels": {"a": "b"}}})
    old = {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"], "labels": {"a": "c"}}}
    assert apiserver.request("PATCH", path + subresource, old, content_type) == conflict(name)
    assert apiserver.request("GET", path).body == after


def test_a_patch_of_the_version_there_is_taken(apiserver, node, path):
    version = {"resourceVersion": node["metadata"]["resourceVersion"]}
    after = changed(apiserver, path, {"metadata": version, "spec": {"taints": [NOT_READY, MINE]}})
    assert after["spec"]["taints"] == [NOT_READY, MINE]


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
def test_taints_are_one_list_that_a_patch_replaces(apiserver, path, content_type):
    assert changed(apiserver, path, {"spec": {"taints": [MINE]}}, content_type)["spec"]["taints"] == [MINE]


@pytest.mark.parametrize("content_type", [MERGE, STRATEGIC])
def test_null_removes(apiserver, path, content_type):
    changed(apiserver, path, {"metadata": {"annotations": {"a": "1", "b": "2"}}})
    after = changed(apiserver, path, {"metadata": {"annotations": {"a": None}}, "spec": {"taints": None}}, content_type)
    assert (after["metadata"]["annotations"], after["spec"]) == ({"b": "2"}, {})


def test_a_taint_may_have_two_effects(apiserver, path):
    both = [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}]
    assert changed(apiserver, path, {"spec": {"taints": both}})["spec"]["taints"] == both


class TestConditions:
    ready, sick = {"type": "Ready", "status": "True"}, {"type": "GPUHealthy", "status": "False", "reason": "Xid79"}

    def of(self, apiserver, path, patch, content_type=STRATEGIC):
        after = changed(apiserver, f"{path}/status", {"status": {"conditions": patch}}, content_type)
        found = after["status"].get("conditions", [])
        times = ("lastHeartbeatTime", "lastTransitionTime")
        assert all(condition.get(time) is None for condition in found for time in times)
        return [{key: value for key, value in condition.items() if key not in times} for condition in found]

    def test_a_strategic_patch_merges_by_type(self, apiserver, path):
        assert self.of(apiserver, path, [self.ready]) == [self.ready]
        assert self.of(apiserver, path, [self.sick]) == [self.sick, self.ready]
        after = self.of(apiserver, path, [{"type": "GPUHealthy", "status": "True"}])
        assert after == [{**self.sick, "status": "True"}, self.ready]

    def test_a_strategic_patch_deletes_by_type(self, apiserver, path):
        self.of(apiserver, path, [self.ready, self.sick])
        assert self.of(apiserver, path, [{"$patch": "delete", "type": "GPUHealthy"}]) == [self.ready]

    def test_a_merge_patch_replaces_all(self, apiserver, path):
        self.of(apiserver, path, [self.ready])
        assert self.of(apiserver, path, [self.sick], MERGE) == [self.sick]


def test_status_is_not_written_with_the_node(apiserver, node, path):
    conditions = {"conditions": [{"type": "Ready", "status": "True"}]}
    assert changed(apiserver, path, {"status": conditions}) == node


def test_spec_is_not_written_with_the_status(apiserver, node, path):
    assert changed(apiserver, f"{path}/status", {"spec": {"unschedulable": True, "taints": []}}) == node


def test_labels_and_annotations_are_written_with_the_status_too(apiserver, path):
    after = changed(apiserver, f"{path}/status", {"metadata": {"labels": {"a": "1"}, "annotations": {"b": "2"}}})
    assert (after["metadata"]["labels"], after["metadata"]["annotations"]) == ({"a": "1"}, {"b": "2"})


def test_a_cordon_is_a_bit_and_no_taint(apiserver, node, path):
    cordoned = changed(apiserver, path, {"spec": {"unschedulable": True}})
    assert cordoned["spec"] == {**node["spec"], "unschedulable": True}
    assert changed(apiserver, path, {"spec": {"unschedulable": None}})["spec"] == node["spec"]


def test_nodes_come_in_pieces(apiserver, names):
    made = [next(names) for _ in range(3)]
    for name in made:
        apiserver.request("POST", NODES, metadata(name, labels={"piece": made[0]}))
    pages, go_on = [], ""
    while go_on or not pages:
        page = apiserver.request("GET", f"{NODES}?labelSelector=piece={made[0]}&limit=1&continue={go_on}").body
        pages.append([item["metadata"]["name"] for item in page["items"]])
        go_on = page["metadata"].get("continue", "")
    while not pages[-1]:  # read from etcd, there may be more where nodes follow that the label does not select
        pages.pop()
    assert pages == [[name] for name in sorted(made)]


def test_two_who_change_the_list_of_taints_lose_nothing(apiserver, path):
    def add(who):
        added = 0
        while added < TAINTS_EACH:
            now = apiserver.request("GET", path).body
            taints = [*now["spec"]["taints"], {"key": f"{who}-{added}", "effect": "NoSchedule"}]
            version = {"resourceVersion": now["metadata"]["resourceVersion"]}
            patch = {"metadata": version, "spec": {"taints": taints}}
            added += apiserver.request("PATCH", path, patch, MERGE).status == 200

    with ThreadPoolExecutor() as pool:
        list(pool.map(add, "ab"))
    keys = {taint["key"] for taint in apiserver.request("GET", path).body["spec"]["taints"]}
    assert keys == {NOT_READY["key"], *(f"{who}-{count}" for who in "ab" for count in range(TAINTS_EACH))}


def test_a_deletion_may_be_meant_for_one_object_only(apiserver, node, path, name):
    uid = node["metadata"]["uid"]
    why = (
        f"the UID in the precondition (other) does not match the UID in record ({uid}). "
        "The object might have been deleted and then recreated"
    )
    message = f'Operation cannot be fulfilled on Node "{name}": {why}'
    expected = refusal(409, "Conflict", message, {"name": name, "kind": "Node"})
    assert apiserver.request("DELETE", path, {"preconditions": {"uid": "other"}}) == expected
    assert apiserver.request("DELETE", path, {"preconditions": {"uid": uid}}).status == 200
