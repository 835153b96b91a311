"""Events: those about nodes live in the namespace default, those about pods beside them."""

from tests.cluster.api import EVENTS, invalid, without_messages


def event(name, **about):
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": "Node", "name": "a", **about},
        "type": "Warning",
        "reason": "GPUUnhealthy",
        "message": "GPU 0 has fallen off the bus",
        "source": {"component": "gpuwatch"},
        "firstTimestamp": "2026-01-02T03:04:05Z",
        "lastTimestamp": "2026-01-02T03:04:05Z",
        "count": 1,
    }


def test_the_events_of_an_object(apiserver, name):
    made = apiserver.request("POST", EVENTS, event(name, uid=name)).body
    found = apiserver.request("GET", f"{EVENTS}?fieldSelector=involvedObject.kind=Node,involvedObject.uid={name}").body
    assert [each["metadata"]["uid"] for each in found["items"]] == [made["metadata"]["uid"]]


def test_an_event_counts_on(apiserver, name):
    made = apiserver.request("POST", EVENTS, event(name)).body
    path = f"{EVENTS}/{made['metadata']['name']}"
    status, body = apiserver.request("PATCH", path, {"count": 2}, "application/merge-patch+json")
    assert (status, body["count"]) == (200, 2)


def test_an_event_about_a_node_has_one_place(apiserver, name):
    path = EVENTS.replace("default", "kube-system")
    about = event(name)
    cause = ("involvedObject.namespace", "Invalid")
    assert without_messages(apiserver.request("POST", path, about)) == invalid("Event", name, cause)


def test_an_event_about_a_pod_is_beside_it(apiserver, name):
    about = event(name, kind="Pod", namespace="other")
    cause = ("involvedObject.namespace", "Invalid")
    assert without_messages(apiserver.request("POST", EVENTS, about)) == invalid("Event", name, cause)
