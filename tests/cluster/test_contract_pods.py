"""Pods of a node, and the eviction of one: done, refused by a budget, or for another pod of the name."""

import pytest

from tests.cluster.api import BUDGETS, MERGE, PODS, refusal

WOULD_VIOLATE = "Cannot evict pod as it would violate the pod's disruption budget."


@pytest.fixture
def evict(apiserver, name):
    def evict(target=name, url_name=name, **options):
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": target, "namespace": "default"}}
        return apiserver.request("POST", f"{PODS}/{url_name}/eviction", {**body, **options})

    return evict


def leaving(apiserver, name):
    return "deletionTimestamp" in apiserver.request("GET", f"{PODS}/{name}").body["metadata"]


def test_the_pods_of_a_node(apiserver, pod, node, name):
    status, body = apiserver.request("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={node['metadata']['name']}")
    assert (status, body["kind"]) == (200, "PodList")
    assert [each["metadata"]["uid"] for each in body["items"]] == [pod["metadata"]["uid"]]
    assert apiserver.request("GET", "/api/v1/pods?fieldSelector=spec.nodeName=none").body["items"] == []


def test_a_pod_leaves_when_nothing_prevents_it(apiserver, pod, evict, name):
    status, body = evict()
    assert (status, body) == (
        201,
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201},
    )
    after = apiserver.request("GET", f"{PODS}/{name}").body
    assert after["metadata"]["deletionGracePeriodSeconds"] == 30
    (why,) = [each for each in after["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert (why["status"], why["reason"]) == ("True", "EvictionByEvictionAPI")


def test_a_pod_that_is_not_there(evict):
    assert evict("none", "none") == refusal(404, "NotFound", 'pods "none" not found', {"name": "none", "kind": "pods"})


def test_a_pod_that_is_not_the_one_of_the_path(pod, evict):
    assert evict("other") == refusal(400, "BadRequest", "name in URL does not match name in Eviction object")


def test_another_pod_of_the_same_name(apiserver, pod, evict, name):
    why = (
        f"the UID in the precondition (other) does not match the UID in record ({pod['metadata']['uid']}). "
        "The object might have been deleted and then recreated"
    )
    message = f'Operation cannot be fulfilled on Pod "{name}": {why}'
    expected = refusal(409, "Conflict", message, {"name": name, "kind": "Pod"})
    assert evict(deleteOptions={"preconditions": {"uid": "other"}}) == expected
    assert not leaving(apiserver, name)


def test_a_budget_that_is_used_up(apiserver, pod, evict, name):
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}
    new = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
    assert apiserver.request("POST", BUDGETS, new).status == 201
    numbers = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    status = {"status": {"observedGeneration": 1, **numbers}}  # as the disruption controller would
    assert apiserver.request("PATCH", f"{BUDGETS}/{name}/status", status, MERGE).status == 200
    why = f"The disruption budget {name} needs 1 healthy pods and has 1 currently"
    causes = [{"reason": "DisruptionBudget", "message": why}]
    assert evict() == refusal(429, "TooManyRequests", WOULD_VIOLATE, {"causes": causes})
    assert not leaving(apiserver, name)


def test_a_pod_that_leaves_is_evicted_at_once_again(apiserver, pod, evict):
    assert evict().status == 201
    assert evict().status == 201


def test_two_budgets_are_one_too_many(apiserver, pod, evict, name):
    spec = {"minAvailable": 0, "selector": {"matchLabels": {"app": name}}}
    for each in (f"{name}-a", f"{name}-b"):
        budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": each}, "spec": spec}
        assert apiserver.request("POST", BUDGETS, budget).status == 201
    message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    assert evict() == refusal(500, None, message)


def test_a_pod_can_be_deleted_at_once(apiserver, pod, name):
    status, body = apiserver.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
    assert (status, body["kind"], body["metadata"]["name"]) == (200, "Pod", name)
    assert apiserver.request("GET", f"{PODS}/{name}").status == 404
