"""Leases: who comes first has it, and nobody takes it over from a version that is gone."""

import pytest

from tests.cluster.api import LEASES, MERGE, invalid, refusal, without_messages

GROUP = "coordination.k8s.io"
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def lease(name, **spec):
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 60, **spec},
    }


@pytest.fixture
def held(apiserver, name):
    status, body = apiserver.request("POST", LEASES, lease(name))
    assert status == 201, body
    return body


def test_the_second_comes_too_late(apiserver, held, name):
    message = f'leases.coordination.k8s.io "{name}" already exists'
    expected = refusal(409, "AlreadyExists", message, {"name": name, "group": GROUP, "kind": "leases"})
    assert apiserver.request("POST", LEASES, lease(name, holderIdentity="b")) == expected


def test_only_one_takes_over(apiserver, held, name):
    path, version = f"{LEASES}/{name}", {"resourceVersion": held["metadata"]["resourceVersion"]}
    first, second = ({"metadata": version, "spec": {"holderIdentity": holder}} for holder in "bc")
    status, taken = apiserver.request("PATCH", path, first, MERGE)
    assert (status, taken["spec"]["holderIdentity"]) == (200, "b")
    message = f'Operation cannot be fulfilled on leases.coordination.k8s.io "{name}": {MODIFIED}'
    expected = refusal(409, "Conflict", message, {"name": name, "group": GROUP, "kind": "leases"})
    assert apiserver.request("PATCH", path, second, MERGE) == expected
    assert apiserver.request("GET", path).body == taken


def test_a_new_lease_has_no_version(apiserver, name):
    new = lease(name)
    new["metadata"]["resourceVersion"] = "5"
    message = "resourceVersion should not be set on objects to be created"
    assert apiserver.request("POST", LEASES, new) == refusal(500, None, message)


def test_a_duration_is_positive(apiserver, name):
    cause = ("spec.leaseDurationSeconds", "Invalid")
    expected = invalid("Lease", name, cause, group=GROUP)
    assert without_messages(apiserver.request("POST", LEASES, lease(name, leaseDurationSeconds=0))) == expected


def test_times_have_microseconds(apiserver, name):
    time = "2026-01-02T03:04:05.000006Z"
    assert apiserver.request("POST", LEASES, lease(name, renewTime=time)).body["spec"]["renewTime"] == time
    short = "2026-01-02T03:04:05Z"
    status, body = apiserver.request("POST", LEASES, lease(f"{name}-short", renewTime=short))
    assert (status, body["reason"]) == (400, "BadRequest")
    assert f'parsing time "{short}"' in body["message"]


def test_a_lease_needs_its_namespace(apiserver, name):
    expected = refusal(404, "NotFound", 'namespaces "none" not found', {"name": "none", "kind": "namespaces"})
    assert apiserver.request("POST", LEASES.replace("default", "none"), lease(name)) == expected


def test_a_lease_stays_in_its_namespace(apiserver, name):
    other = {**lease(name), "metadata": {"name": name, "namespace": "kube-system"}}
    message = "the namespace of the provided object does not match the namespace sent on the request"
    assert apiserver.request("POST", LEASES, other) == refusal(400, "BadRequest", message)
