"""The simulated API server over real sockets, as the official client, many connections and bad days see it."""

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.client import ApiException

from gpuwatch.sim.kubeapi.access import AccessRule
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.faults import ApiFaults
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from tests.waiting import BOUND_SECONDS, until


@pytest.fixture
def cluster() -> SimulatedCluster:
    made = SimulatedCluster()
    made.add_node("gpu-1", labels={"pool": "a"})
    made.add_node("gpu-2")
    return made


@pytest.fixture
def server(cluster) -> Iterator[SimulatedApiServer]:
    with SimulatedApiServer(cluster) as running:
        yield running


@pytest.fixture
def api(server) -> Iterator[client.ApiClient]:
    with connected(server) as made:
        yield made


@contextlib.contextmanager
def connected(server: SimulatedApiServer, user: str = "admin") -> Iterator[client.ApiClient]:
    configuration = client.Configuration()
    config.load_kube_config(str(server.kubeconfig(user)), client_configuration=configuration)
    configuration.retries = False
    with client.ApiClient(configuration) as made:
        yield made
        made.rest_client.pool_manager.clear()


@contextlib.contextmanager
def raw(server: SimulatedApiServer, timeout: float = BOUND_SECONDS) -> Iterator[Callable[..., Any]]:
    """Requests on one kept connection; each returns status, headers and JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
    token = server.cluster.access.token_of("admin")

    def ask(method: str, path: str, body: Any = None, kind: str = "application/merge-patch+json") -> Any:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.headers, json.loads(response.read())

    try:
        yield ask
    finally:
        connection.close()


class TestOfficialClient:
    def test_a_taint_is_read_modified_and_written(self, api):
        core = client.CoreV1Api(api)
        node = core.read_node("gpu-1")
        taint = {"key": "gpuwatch.io/gpu-fault", "value": "xid", "effect": "NoSchedule"}
        patch = {"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": [taint]}}
        assert core.patch_node("gpu-1", patch).spec.taints[0].key == taint["key"]
        with pytest.raises(ApiException) as conflict:
            core.patch_node("gpu-1", patch)
        assert conflict.value.status == 409
        assert json.loads(conflict.value.body)["reason"] == "Conflict"

    def test_a_condition_leaves_the_kubelets_alone(self, api):
        core = client.CoreV1Api(api)
        condition = {"type": "GPUHealthy", "status": "False", "reason": "XID79", "message": "gone"}
        node = core.patch_node_status("gpu-1", {"status": {"conditions": [condition]}})
        assert {each.type: each.status for each in node.status.conditions} == {"GPUHealthy": "False", "Ready": "True"}

    def test_leases_and_events(self, api):
        leases, core = client.CoordinationV1Api(api), client.CoreV1Api(api)
        spec = client.V1LeaseSpec(holder_identity="gpu-1", lease_duration_seconds=60)
        slot = client.V1Lease(metadata=client.V1ObjectMeta(name="gpuwatch-slot-0"), spec=spec)
        made = leases.create_namespaced_lease("default", slot)
        version = {"resourceVersion": made.metadata.resource_version}
        patch = {"metadata": version, "spec": {"holderIdentity": "gpu-2"}}
        leases.patch_namespaced_lease("gpuwatch-slot-0", "default", patch)
        with pytest.raises(ApiException) as stale:
            leases.patch_namespaced_lease("gpuwatch-slot-0", "default", patch)
        assert stale.value.status == 409
        about = client.V1ObjectReference(kind="Node", name="gpu-1")
        event = client.CoreV1Event(
            metadata=client.V1ObjectMeta(name="gpu-1.1"), involved_object=about, reason="GPUXid79"
        )
        name = core.create_namespaced_event("default", event).metadata.name
        found = core.list_namespaced_event("default", field_selector="involvedObject.name=gpu-1").items
        assert [each.metadata.name for each in found] == [name]

    def test_an_eviction_against_a_budget(self, api, cluster):
        core = client.CoreV1Api(api)
        cluster.add_pod("ml", "train-1", "gpu-1", {"app": "train"})
        cluster.add_pdb("ml", "train", {"app": "train"}, max_unavailable=0)
        eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="train-1", namespace="ml"))
        with pytest.raises(ApiException) as blocked:
            core.create_namespaced_pod_eviction("train-1", "ml", eviction)
        assert blocked.value.status == 429
        client.PolicyV1Api(api).delete_namespaced_pod_disruption_budget("train", "ml")
        core.create_namespaced_pod_eviction("train-1", "ml", eviction)
        [pod] = core.list_pod_for_all_namespaces(field_selector="spec.nodeName=gpu-1").items
        assert pod.metadata.deletion_timestamp is not None

    def test_a_refusal_says_what_is_missing(self, server, cluster):
        cluster.add_user("agent", [AccessRule(verbs=["get"], resources=["nodes"])])
        with connected(server, "agent") as api:
            core = client.CoreV1Api(api)
            assert core.read_node("gpu-1").metadata.name == "gpu-1"
            with pytest.raises(ApiException) as refused:
                core.patch_node_status("gpu-1", {})
        why = 'User "agent" cannot patch resource "nodes/status" in API group "" at the cluster scope'
        message = f'nodes "gpu-1" is forbidden: {why}'
        assert (refused.value.status, json.loads(refused.value.body)["message"]) == (403, message)


class TestFaults:
    @pytest.mark.parametrize(
        ("faults", "status", "retry_after"),
        [
            (ApiFaults(throttle=1.0, retry_after=7), 429, "7"),
            (ApiFaults(unavailable=1.0), 503, "1"),
            (ApiFaults(internal_error=1.0), 500, None),
        ],
    )
    def test_refusals_write_nothing(self, server, cluster, faults, status, retry_after):
        before = cluster.get("nodes", "", "gpu-1")
        cluster.faults = faults
        with raw(server) as ask:
            answered, headers, body = ask("PATCH", "/api/v1/nodes/gpu-1", {"spec": {"unschedulable": True}})
        assert (answered, body["code"], headers["Retry-After"]) == (status, status, retry_after)
        assert cluster.get("nodes", "", "gpu-1") is before

    @pytest.mark.parametrize(("fault", "written"), [("reset_before", False), ("reset_after", True)])
    def test_a_lost_answer_may_or_may_not_have_been_a_write(self, server, cluster, fault, written):
        cluster.faults = ApiFaults(**{fault: 1.0}, verbs=["patch"])
        with raw(server) as ask:
            assert ask("GET", "/api/v1/nodes/gpu-1")[0] == 200
            with pytest.raises(ConnectionResetError):
                ask("PATCH", "/api/v1/nodes/gpu-1", {"spec": {"unschedulable": True}})
        assert cluster.get("nodes", "", "gpu-1")["spec"].get("unschedulable", False) is written

    def test_the_cache_may_lack_the_last_write(self, server, cluster):
        def labels(path: str) -> dict[str, str]:
            _, _, node = ask("GET", path)
            return node["metadata"]["labels"]

        with raw(server) as ask:
            ask("PATCH", "/api/v1/nodes/gpu-1", {"metadata": {"labels": {"a": "1"}}})
            before = labels("/api/v1/nodes/gpu-1")
            ask("PATCH", "/api/v1/nodes/gpu-1", {"metadata": {"labels": {"a": "2"}}})
            assert labels("/api/v1/nodes/gpu-1?resourceVersion=0") == {**before, "a": "2"}
            cluster.faults = ApiFaults(stale=1.0)
            assert labels("/api/v1/nodes/gpu-1?resourceVersion=0") == before
            assert labels("/api/v1/nodes/gpu-1") == {**before, "a": "2"}

    def test_hanging_and_slow(self, server, cluster):
        cluster.faults = ApiFaults(hang=1.0)
        with raw(server, timeout=0.2) as ask, pytest.raises(TimeoutError):
            ask("GET", "/api/v1/nodes/gpu-1")
        cluster.faults = ApiFaults(slow=1.0, delay=0.2)
        with raw(server) as ask:
            begun = time.monotonic()
            assert ask("GET", "/api/v1/nodes/gpu-1")[0] == 200
        assert time.monotonic() - begun >= 0.2

    def test_they_hit_whom_they_are_meant_for(self, server, cluster):
        cluster.faults = ApiFaults(internal_error=1.0, verbs=["patch"], resources=["nodes/status"], users=["admin"])
        with raw(server) as ask:
            hit = [ask("PATCH", f"/api/v1/nodes/gpu-1{part}", {})[0] for part in ("", "/status")]
            assert [*hit, ask("GET", "/api/v1/nodes/gpu-1")[0]] == [200, 500, 200]

    def test_a_share_is_a_share_and_a_seed_repeats_it(self):
        def statuses(seed: int) -> list[int]:
            cluster = SimulatedCluster(seed=seed)
            cluster.add_node("gpu-1")
            cluster.faults = ApiFaults(unavailable=0.3)
            with SimulatedApiServer(cluster) as server, raw(server) as ask:
                return [ask("GET", "/api/v1/nodes/gpu-1")[0] for _ in range(300)]

        assert 60 <= statuses(1).count(503) <= 120  # 90 expected, less than 4 standard deviations off
        assert statuses(1) == statuses(1) != statuses(2)

    def test_gone_and_back_on_the_same_port(self, server, cluster):
        port = server.port
        with raw(server) as ask:
            assert ask("GET", "/api/v1/nodes")[0] == 200
            cluster.faults = ApiFaults(gone=True)
            with pytest.raises(OSError):  # noqa: PT011
                ask("GET", "/api/v1/nodes")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=BOUND_SECONDS).close()
        cluster.faults = ApiFaults()
        with raw(server) as ask:
            assert ask("GET", "/api/v1/nodes")[0] == 200


class TestConnections:
    def test_many_are_kept_open_and_all_are_served(self, server):
        with contextlib.ExitStack() as opened:
            asks = [opened.enter_context(raw(server)) for _ in range(200)]
            for _ in range(2):
                assert {ask("GET", "/api/v1/nodes/gpu-1")[0] for ask in asks} == {200}
            assert server.open_connections == len(asks)
        until(lambda: server.open_connections == 0, "connections that clients closed are forgotten")

    def test_stopping_cuts_off_all_clients_and_starting_again_keeps_the_state(self, cluster):
        server = SimulatedApiServer(cluster).start()
        with raw(server) as ask:
            assert ask("DELETE", "/api/v1/nodes/gpu-2")[0] == 200
            server.stop()
            with pytest.raises(OSError):  # noqa: PT011
                ask("GET", "/api/v1/nodes")
        with server, raw(server) as ask:
            assert [each["metadata"]["name"] for each in ask("GET", "/api/v1/nodes")[2]["items"]] == ["gpu-1"]

    @pytest.mark.parametrize("noise", [b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n\r\n", b"nonsense\r\n\r\n"])
    def test_noise_is_hung_up_on_and_hurts_nobody(self, server, noise):
        with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_SECONDS) as guest:
            guest.sendall(noise)
            guest.shutdown(socket.SHUT_WR)
            while guest.recv(4096):
                pass
        with raw(server) as ask:
            assert ask("GET", "/api/v1/nodes")[0] == 200
