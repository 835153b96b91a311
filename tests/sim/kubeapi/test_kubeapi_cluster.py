"""The simulated API server without its sockets: concurrency, time, budgets, and what observers see."""

import json
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.sim.kubeapi.access import AccessRule
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.messages import ApiError, ApiRequest
from gpuwatch.sim.kubeapi.store import CommittedWrite
from tests.seeds import examples
from tests.sim.node.nodes import FakeClock

NODE, NODES, LEASES = "/api/v1/nodes/gpu-1", "/api/v1/nodes", "/apis/coordination.k8s.io/v1/namespaces/default/leases"
BUDGETS = "/apis/policy/v1/namespaces/ml/poddisruptionbudgets"
PODS = "/api/v1/namespaces/ml/pods"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cluster(clock) -> SimulatedCluster:
    made = SimulatedCluster(clock)
    made.add_node("gpu-1")
    return made


def ask(cluster: SimulatedCluster, method: str, path: str, body: Any = None, user: str = "admin", **query: str) -> Any:
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"authorization": f"Bearer {cluster.access.token_of(user)}", "content-type": kind}
    sent = b"" if body is None else json.dumps(body).encode()
    return cluster.handle(ApiRequest(method=method, path=path, query=query, headers=headers, body=sent))


def evict(cluster: SimulatedCluster, name: str, grace: int | None = None) -> Any:
    body = {"metadata": {"name": name}, "deleteOptions": {"gracePeriodSeconds": grace}}
    return ask(cluster, "POST", f"{PODS}/{name}/eviction", body)


writers = st.lists(st.tuples(st.sampled_from(["read", "patch"]), st.integers(0, 2)), min_size=1, max_size=40)


@given(writers)
def test_no_interleaving_of_writers_loses_an_update(steps):
    """Each writer reads, then adds one to a number at the revision it read; only one that is current may succeed."""
    cluster = SimulatedCluster(FakeClock())
    assert ask(cluster, "POST", LEASES, {"metadata": {"name": "slot"}, "spec": {"leaseTransitions": 0}}).status == 201
    path, read, done = f"{LEASES}/slot", {}, 0
    for verb, writer in steps:
        if verb == "read" or writer not in read:
            read[writer] = ask(cluster, "GET", path).json()
            continue
        seen = read[writer]
        seen["spec"]["leaseTransitions"] += 1
        seen = {"metadata": {"resourceVersion": seen["metadata"]["resourceVersion"]}, "spec": seen["spec"]}
        is_current = (
            seen["metadata"]["resourceVersion"]
            == cluster.get("leases", "default", "slot")["metadata"]["resourceVersion"]
        )
        status = ask(cluster, "PATCH", path, seen).status
        assert status == (200 if is_current else 409)
        done += status == 200
        del read[writer]
    assert cluster.get("leases", "default", "slot")["spec"].get("leaseTransitions", 0) == done


def test_threads_that_retry_on_conflict_lose_nothing(cluster):
    keys = [f"writer-{number}" for number in range(8)]

    def add_taint(key: str) -> None:
        while True:
            node = ask(cluster, "GET", NODE).json()
            taints = [*node["spec"].get("taints", []), {"key": key, "effect": "NoSchedule"}]
            revision = node["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": revision}, "spec": {"taints": taints}}
            if ask(cluster, "PATCH", NODE, patch).status == 200:
                return

    threads = [threading.Thread(target=add_taint, args=(key,)) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taint["key"] for taint in cluster.get("nodes", "", "gpu-1")["spec"]["taints"]) == keys


def test_observers_see_every_write_once_in_order_under_the_lock(cluster):
    seen, free = [], []

    def observe(write: CommittedWrite) -> None:
        seen.append(write)
        other = threading.Thread(target=lambda: free.append(cluster.lock.acquire(blocking=False)))
        other.start()
        other.join()

    cluster.observers.append(observe)
    ask(cluster, "PATCH", NODE, {"spec": {"unschedulable": True}})
    ask(cluster, "PATCH", NODE, {"spec": {"unschedulable": True}})  # nothing new, so no write
    ask(cluster, "PATCH", NODE, {"spec": {"taints": [{"key": "k", "effect": "wrong"}]}})  # refused
    ask(cluster, "DELETE", NODE)
    assert [(write.change, write.key.name, write.user) for write in seen] == [
        ("MODIFIED", "gpu-1", "admin"),
        ("DELETED", "gpu-1", "admin"),
    ]
    assert seen[1].revision == seen[0].revision + 1
    assert seen[0].previous["spec"] == {}
    assert free == [False, False]


def test_requests_are_counted_by_user_verb_and_resource(cluster):
    cluster.add_user("agent", [AccessRule(verbs=["get"], resources=["nodes"])])
    for _ in range(3):
        assert ask(cluster, "GET", NODE, user="agent").status == 200
    assert ask(cluster, "PATCH", f"{NODE}/status", {}, user="agent").status == 403
    assert cluster.requests == {("agent", "get", "nodes"): 3, ("agent", "patch", "nodes/status"): 1}


def test_pods_keep_their_grace_by_the_clusters_clock(cluster, clock):
    cluster.add_pod("ml", "train-1", "gpu-1")
    answer = ask(cluster, "DELETE", f"{PODS}/train-1", {"gracePeriodSeconds": 20}).json()
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 20
    clock.now += 19
    assert ask(cluster, "GET", f"{PODS}/train-1").status == 200
    clock.now += 1
    assert ask(cluster, "GET", f"{PODS}/train-1").status == 404


def test_a_grace_of_nothing_is_at_once_and_a_shorter_one_wins(cluster, clock):
    for name in ("a-1", "a-2"):
        cluster.add_pod("ml", name, "gpu-1")
        cluster.delete("pods", "ml", name, grace=100)
    cluster.delete("pods", "ml", "a-1", grace=0)
    cluster.delete("pods", "ml", "a-2", grace=5)
    assert [pod["metadata"]["name"] for pod in cluster.pods_on("gpu-1")] == ["a-2"]
    clock.now += 5
    assert cluster.pods_on("gpu-1") == []


def test_a_pod_of_the_same_name_outlives_the_grace_of_the_first(cluster, clock):
    cluster.add_pod("ml", "a-1", "gpu-1")
    cluster.delete("pods", "ml", "a-1", grace=10)
    cluster.delete("pods", "ml", "a-1", grace=0)
    cluster.add_pod("ml", "a-1", "gpu-1")
    clock.now += 11
    assert [pod["metadata"]["name"] for pod in cluster.pods_on("gpu-1")] == ["a-1"]


class TestBudgets:
    @pytest.mark.parametrize(
        ("bounds", "pods", "evictable"),
        [
            ({"min_available": 2}, 3, 1),
            ({"min_available": "50%"}, 3, 1),
            ({"max_unavailable": 1}, 3, 1),
            ({"max_unavailable": "50%"}, 3, 2),
            ({"max_unavailable": 0}, 3, 0),
            ({"min_available": 0}, 3, 3),
        ],
    )
    def test_as_many_are_evicted_as_the_budget_allows(self, cluster, bounds, pods, evictable):
        for number in range(pods):
            cluster.add_pod("ml", f"train-{number}", "gpu-1", {"app": "train"})
        cluster.add_pdb("ml", "train", {"app": "train"}, **bounds)
        answers = [evict(cluster, f"train-{number}", grace=0).status for number in range(pods)]
        assert sorted(answers) == [201] * evictable + [429] * (pods - evictable)

    def test_a_pod_that_is_leaving_counts_as_gone(self, cluster):
        for number in range(3):
            cluster.add_pod("ml", f"train-{number}", "gpu-1", {"app": "train"})
        cluster.add_pdb("ml", "train", {"app": "train"}, min_available=2)
        assert [evict(cluster, f"train-{number}").status for number in range(2)] == [201, 429]
        budget = ask(cluster, "GET", f"{BUDGETS}/train").json()
        expected = {"currentHealthy": 2, "desiredHealthy": 2, "disruptionsAllowed": 0, "expectedPods": 3}
        assert {key: budget["status"][key] for key in expected} == expected

    def test_a_refusal_names_the_budget(self, cluster):
        cluster.add_pod("ml", "train-1", "gpu-1", {"app": "train"})
        cluster.add_pdb("ml", "keep", {"app": "train"}, min_available=1)
        answer = evict(cluster, "train-1").json()
        why = "The disruption budget keep needs 1 healthy pods and has 1 currently"
        assert answer["reason"] == "TooManyRequests"
        assert answer["details"]["causes"] == [{"reason": "DisruptionBudget", "message": why}]
        assert "deletionTimestamp" not in cluster.get("pods", "ml", "train-1")["metadata"]

    def test_two_budgets_on_one_pod_are_nobodys_fault_but_an_error(self, cluster):
        cluster.add_pod("ml", "train-1", "gpu-1", {"app": "train"})
        for name in ("a", "b"):
            cluster.add_pdb("ml", name, {"app": "train"}, min_available=0)
        assert evict(cluster, "train-1").status == 500


def test_a_list_comes_in_pages(cluster):
    for number in range(2, 6):
        cluster.add_node(f"gpu-{number}")
    names, page = [], ask(cluster, "GET", NODES, limit="2").json()
    while True:
        names += [each["metadata"]["name"] for each in page["items"]]
        if "continue" not in page["metadata"]:
            break
        page = ask(cluster, "GET", NODES, limit="2", **{"continue": page["metadata"]["continue"]}).json()
    assert names == [f"gpu-{number}" for number in range(1, 6)]


class TestRights:
    def test_names_and_namespaces_bound_a_rule(self, cluster):
        rules = [
            AccessRule(verbs=["get", "patch"], resources=["nodes"], names=["gpu-1"]),
            AccessRule(verbs=["*"], resources=["leases"], namespaces=["gpuwatch"]),
        ]
        cluster.add_user("agent", rules)
        cluster.add_node("gpu-2")
        cluster.add_namespace("gpuwatch")
        asked = [NODE, "/api/v1/nodes/gpu-2", NODES, LEASES, LEASES.replace("default", "gpuwatch")]
        assert [ask(cluster, "GET", path, user="agent").status for path in asked] == [200, 403, 403, 403, 200]

    def test_without_a_token_nothing_is_allowed(self, cluster):
        assert cluster.handle(ApiRequest(path=NODE)).status == 403
        assert cluster.handle(ApiRequest(path=NODE, headers={"authorization": "Bearer wrong"})).status == 401


def test_the_rules_hold_for_what_the_simulation_creates_too(cluster):
    with pytest.raises(ApiError, match="already exists"):
        cluster.add_node("gpu-1")
    with pytest.raises(ApiError, match="is invalid"):
        cluster.add_node("GPU_1")


MEMBERS = ["metadata", "name", "labels", "annotations", "finalizers", "spec", "status", "taints", "key", "effect"]
MEMBERS += ["conditions", "type", "$patch", "$setElementOrder/conditions", "deleteOptions", "preconditions", "uid"]
MEMBERS += ["containers", "selector", "matchLabels", "matchExpressions", "minAvailable", "op", "path", "value"]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 1) | st.sampled_from(["", "gpu-1", "train-1", "/spec", "add", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4),
    max_leaves=20,
)
PATHS = [
    NODES,
    NODE,
    f"{NODE}/status",
    PODS,
    f"{PODS}/train-1",
    f"{PODS}/train-1/eviction",
    LEASES,
    f"{LEASES}/slot",
    "/",
]
PATHS += [BUDGETS, f"{BUDGETS}/b"]
REQUESTS = st.builds(
    ApiRequest,
    method=st.sampled_from(["GET", "POST", "PATCH", "DELETE"]),
    path=st.sampled_from(PATHS),
    query=st.dictionaries(
        st.sampled_from(["limit", "continue", "labelSelector", "fieldSelector"]),
        st.sampled_from(["", "1", "true", "x", "a in (b", "metadata.name=gpu-1"]),
        max_size=2,
    ),
    headers=st.sampled_from(["merge-patch+json", "strategic-merge-patch+json", "json"]).map(
        lambda kind: {"authorization": "Bearer secret", "content-type": f"application/{kind}"}
    ),
    body=ANYTHING.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=8),
)


@settings(max_examples=examples(300))
@given(st.lists(REQUESTS, min_size=1, max_size=5))
def test_whatever_is_sent_gets_an_answer(requests):
    cluster = SimulatedCluster(FakeClock())
    cluster.add_user("admin", token="secret")
    cluster.add_node("gpu-1")
    cluster.add_pod("ml", "train-1", "gpu-1")
    cluster.add_pdb("ml", "b", {}, min_available=1)
    for request in requests:
        response = cluster.handle(request)
        if response.status >= 400:
            status = response.json()
            assert (status["kind"], status["code"]) == ("Status", response.status)
        else:
            assert response.status in (200, 201)
