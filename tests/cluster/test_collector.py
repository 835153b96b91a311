"""A real OpenTelemetry collector finds gpuwatch's pods on a real API server, and names them as dashboards do."""

import pytest

from tests import fast_yaml
from tests.cluster.api import PODS, STRATEGIC, Api
from tests.cluster.manifests import RBAC
from tests.e2e.otelcol import CONFIGURATIONS, collector, otelcol
from tests.e2e.processes import agent, prometheus
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]  # quick: tests/deploy/test_scrape.py, with what an API server says

USER = "collector"
TARGETS = (("gpuwatch", "gpu-a"), ("gpuwatch-remediator", "gpu-a"), ("gpuwatch", "gpu-b"), ("gpuwatch-tuner", "gpu-b"))
APP = {"app.kubernetes.io/name": "gpuwatch"}
RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]


def pod(api, name, node, ports, labels=APP, phase="Running"):
    """One that has its ports on loopback; nothing runs it."""
    containers = [
        {"name": port, "image": "none", "ports": [{"name": port, "containerPort": number}]} for port, number in ports
    ]
    made = {"metadata": {"name": name, "labels": labels}, "spec": {"nodeName": node, "containers": containers}}
    assert api.request("POST", PODS, made).status == 201
    status = {"phase": phase, "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    assert api.request("PATCH", f"{PODS}/{name}/status", {"status": status}, STRATEGIC).status == 200


def may_read_pods(api):
    """The rights that the example asks for, and no others."""
    role = {"metadata": {"name": USER}, "rules": RULES}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}]
    assert api.request("POST", f"{RBAC}/clusterroles", role).status == 201
    binding = {"metadata": {"name": USER}, "roleRef": reference, "subjects": subjects}
    assert api.request("POST", f"{RBAC}/clusterrolebindings", binding).status == 201


def test_each_container_of_each_pod_is_a_target_under_its_node(control_plane, tmp_path):
    api = Api(control_plane)
    may_read_pods(api)
    config = fast_yaml.load((CONFIGURATIONS / "kubernetes.yaml").read_text())
    (job,) = config["receivers"]["prometheus"]["config"]["scrape_configs"]
    job["kubernetes_sd_configs"][0]["kubeconfig_file"] = str(api.kubeconfig(USER))
    with (
        agent(tmp_path / "agent", source=("--source", "sim:idle-allocated")) as node,
        prometheus(tmp_path / "receiver", [], ["--web.enable-remote-write-receiver"]) as receiver,
    ):
        port = int(node.settle().url.rpartition(":")[2])
        pod(api, "gpuwatch-a", "gpu-a", [("metrics", port), ("remediator", port)])
        pod(api, "gpuwatch-b", "gpu-b", [("metrics", port), ("tuner", port)])
        pod(api, "gpuwatch-gone", "gpu-c", [("metrics", port)], phase="Succeeded")
        pod(api, "report", "gpu-d", [("web", port)])
        pod(api, "other", "gpu-e", [("metrics", port)], labels={"app": "other"})
        with collector(otelcol(), tmp_path, config, receiver.url, receiver.url, {"CLUSTER_NAME": ""}):
            until(lambda: len(receiver.query('up{node!=""} == 1')) >= len(TARGETS), "the targets answer")
            found = {frozenset(row["metric"].items()) for row in receiver.query('up{job!="prometheus"}')}
            named = [{"__name__": "up", "job": job, "node": node, "instance": node} for job, node in TARGETS]
            assert found == {frozenset(each.items()) for each in named}
            assert receiver.query('gpuwatch_gpu_workload_info{node="gpu-a", pod="sweep-finished"}')
