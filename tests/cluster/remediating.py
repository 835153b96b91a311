"""Nodes for remediators on any API server, and what tests ask of them."""

from gpuwatch.kube.objects import TAINT
from tests.cluster.api import NODES, STRATEGIC
from tests.remediation.model.remediating import NAMESPACE
from tests.waiting import until

BUDGETS = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
OTHER = {"key": "example.com/other", "value": "x", "effect": "NoSchedule"}


class Objects:
    """What the bench asks of a simulated cluster, asked of any API server."""

    PATHS = {"nodes": NODES, "leases": BUDGETS, "events": "/api/v1/namespaces/default/events"}

    def __init__(self, api):
        self._api = api

    def get(self, resource, namespace, name):
        status, body = self._api.request("GET", f"{self.PATHS[resource]}/{name}")
        return body if status == 200 else None

    def objects(self, resource, namespace=""):
        return self._api.request("GET", self.PATHS[resource]).body["items"]


def make_node(api, name, boot_id, machine_id=""):
    """A Node as a kubelet registers it, with a taint, a label and an annotation of other people."""
    metadata = {"name": name, "labels": {"example.com/a": "1"}, "annotations": {"example.com/b": "2"}}
    assert api.request("POST", NODES, {"metadata": metadata, "spec": {"taints": [OTHER]}}).status == 201
    info = {"bootID": boot_id, "machineID": machine_id}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    patch = {"status": {"nodeInfo": info, "conditions": [ready]}}
    status, body = api.request("PATCH", f"{NODES}/{name}/status", patch, STRATEGIC)
    assert status == 200, body
    return body


def foreign(node):
    """What of a Node nobody but its owners may change."""
    metadata = node["metadata"]
    return (
        [taint for taint in node["spec"].get("taints", []) if taint["key"] != TAINT],
        {key: text for key, text in metadata.get("labels", {}).items() if not key.startswith("gpuwatch.io/")},
        {key: text for key, text in metadata.get("annotations", {}).items() if not key.startswith("gpuwatch.io/")},
        [each for each in node["status"]["conditions"] if each["type"] != "GPUHealthy"],
        node["spec"].get("unschedulable"),
    )


def remove(api, path):
    api.request("DELETE", path)
    until(lambda: api.request("GET", path).status == 404, f"{path} is gone")
