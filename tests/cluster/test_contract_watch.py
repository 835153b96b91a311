"""Watches: from where one left off, for as long as one asked, and an honest end where the past is forgotten."""

import pytest

from tests.cluster.api import EVENTS, MERGE, NODES


@pytest.fixture
def path(node):
    return f"{NODES}/{node['metadata']['name']}"


def only(name):
    return {"fieldSelector": f"metadata.name={name}"}


def label(apiserver, path, value):
    status, body = apiserver.request("PATCH", path, {"metadata": {"labels": {"a": value}}}, MERGE)
    assert status == 200
    return body


def test_every_change_since_a_version_in_order(apiserver, node, path, name):
    changes = [label(apiserver, path, value) for value in ("1", "2", "3")]
    apiserver.request("DELETE", path)
    *modified, deleted = apiserver.watch(NODES, resourceVersion=node["metadata"]["resourceVersion"], **only(name))
    assert modified == [{"type": "MODIFIED", "object": change} for change in changes]
    assert deleted["type"] == "DELETED"
    assert deleted["object"]["metadata"]["labels"] == {"a": "3"}
    assert int(deleted["object"]["metadata"]["resourceVersion"]) > int(changes[-1]["metadata"]["resourceVersion"])


def test_changes_that_come_while_one_watches(apiserver, node, path, name):
    seen = apiserver.watch(NODES, seconds=10, resourceVersion=node["metadata"]["resourceVersion"], **only(name))
    label(apiserver, path, "1")
    assert next(seen)["object"]["metadata"]["labels"] == {"a": "1"}
    label(apiserver, path, "2")
    assert next(seen)["object"]["metadata"]["labels"] == {"a": "2"}
    seen.close()


def test_without_a_version_what_is_there_comes_first(apiserver, node, name):
    assert list(apiserver.watch(NODES, **only(name))) == [{"type": "ADDED", "object": node}]


def test_an_object_that_enters_a_selection_is_new_and_one_that_leaves_it_is_deleted(apiserver, node, path):
    for value in ("in", "out"):
        label(apiserver, path, value)
    version = node["metadata"]["resourceVersion"]
    seen = list(apiserver.watch(NODES, resourceVersion=version, labelSelector="a=in"))
    assert [event["type"] for event in seen] == ["ADDED", "DELETED"]


def test_a_bookmark_says_where_the_present_begins(apiserver, node, name):
    asked = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    added, bookmark, *_ = apiserver.watch(NODES, **asked, **only(name))
    assert added == {"type": "ADDED", "object": node}
    assert (bookmark["type"], bookmark["object"]["kind"]) == ("BOOKMARK", "Node")
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(bookmark["object"]["metadata"]["resourceVersion"]) >= int(node["metadata"]["resourceVersion"])


class TestForgottenPast:
    @pytest.fixture
    def version(self, apiserver, node, path):
        """One that is forgotten."""
        label(apiserver, path, "1")
        apiserver.request("POST", EVENTS, {"metadata": {"generateName": "a."}, "involvedObject": {"kind": "Node"}})
        apiserver.server.forget_history()
        return node["metadata"]["resourceVersion"]

    def test_a_watch_ends_with_an_error(self, apiserver, version):
        (event,) = apiserver.watch(EVENTS, resourceVersion=version)
        assert event["type"] == "ERROR"
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")

    def test_a_list_is_refused(self, apiserver, version):
        status, body = apiserver.request("GET", f"{EVENTS}?resourceVersion={version}&resourceVersionMatch=Exact")
        assert (status, body["code"], body["reason"]) == (410, 410, "Expired")
