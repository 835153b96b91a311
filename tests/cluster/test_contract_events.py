"""Events: a server makes their names, and those about nodes live in the namespace default."""

import re

from tests.cluster.api import EVENTS, invalid


def event(prefix, **about):
    return {
        "metadata": {"generateName": prefix},
        "involvedObject": {"kind": "Node", "name": "a", **about},
        "type": "Warning",
        "reason": "GPUUnhealthy",
        "message": "GPU 0 has fallen off the bus",
        "source": {"component": "gpuwatch"},
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "count": 1,
    }


def test_the_server_completes_the_name(apiserver, name):
    status, body = apiserver.request("POST", EVENTS, event(f"{name}."))
    assert status == 201
    assert re.fullmatch(rf"{name}\.[a-z0-9]{{5}}", body["metadata"]["name"])
    assert body["metadata"]["generateName"] == f"{name}."
    assert (body["eventTime"], body["reportingComponent"], body["reportingInstance"]) == (None, "", "")


def test_the_events_of_an_object(apiserver, name):
    made = apiserver.request("POST", EVENTS, event(f"{name}.", uid=name)).body
    found = apiserver.request("GET", f"{EVENTS}?fieldSelector=involvedObject.kind=Node,involvedObject.uid={name}").body
    assert [each["metadata"]["uid"] for each in found["items"]] == [made["metadata"]["uid"]]


def test_an_event_counts_on(apiserver, name):
    made = apiserver.request("POST", EVENTS, event(f"{name}.")).body
    path = f"{EVENTS}/{made['metadata']['name']}"
    status, body = apiserver.request("PATCH", path, {"count": 2}, "application/merge-patch+json")
    assert (status, body["count"]) == (200, 2)


def test_an_event_about_a_node_has_one_place(apiserver, name):
    path = EVENTS.replace("default", "kube-system")
    about = {**event(""), "metadata": {"name": name}}
    cause = ("involvedObject.namespace", "Invalid", 'Invalid value: "": does not match event.namespace')
    assert apiserver.request("POST", path, about) == invalid("Event", name, cause)


def test_an_event_about_a_pod_is_beside_it(apiserver, name):
    about = {**event("", kind="Pod", namespace="other"), "metadata": {"name": name}}
    cause = ("involvedObject.namespace", "Invalid", 'Invalid value: "other": does not match event.namespace')
    assert apiserver.request("POST", EVENTS, about) == invalid("Event", name, cause)
