"""A story that needs every right of the remediator: a sick node is emptied, handed over for a reboot and given back."""

from typing import Any

from msgspec.structs import replace

from gpuwatch.config import BudgetConfig, DrainConfig, HandoverConfig, RemediationConfig
from gpuwatch.model.finding import Response
from gpuwatch.model.workload import Workload
from tests.cluster.api import MERGE, NODES, PODS, Api
from tests.cluster.remediating import make_node, remove
from tests.remediation.model.remediating import NAMESPACE, NODE, Bench, fatal, settings

OWN_POD = f"gpuwatch-{NODE}"
VICTIM = "train-0"
GPU_CONTAINER = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
OWN_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
REBOOT = "gpuwatch.io/reboot-requested"


def policy() -> RemediationConfig:
    """Everything that can be asked of a remediator."""
    return settings(
        checks={"gpu_missing": Response.DRAIN},
        effect="NoExecute",
        budget=BudgetConfig(max_unavailable="100%"),
        drain=DrainConfig(retry=5.0, protected_namespaces=()),
        handover=HandoverConfig(annotation=REBOOT),
    )


def set_up(api: Api, account: str) -> dict[str, Any]:
    """The node, a pod with a GPU on it, and the remediator's own pod, which is returned."""
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    make_node(api, NODE, f"boot-of-{NODE}", f"machine-of-{NODE}")
    labels = {"nvidia.com/gpu.present": "true"}
    assert api.request("PATCH", f"{NODES}/{NODE}", {"metadata": {"labels": labels}}, MERGE).status == 200
    pod_on(api, PODS, VICTIM, NODE, containers=[GPU_CONTAINER])
    return pod_on(api, OWN_PODS, OWN_POD, NODE, serviceAccountName=account, tolerations=[{"operator": "Exists"}])


def pod_on(api: Api, path: str, name: str, node: str, **spec: Any) -> dict[str, Any]:
    """A pod that runs on a node, and ends at once when it has to."""
    usual = {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "none"}]}
    status, pod = api.request("POST", path, {"metadata": {"name": name}, "spec": {**usual, **spec}})
    assert status == 201, pod
    made: dict[str, Any] = pod
    return made


def tear_down(api: Api) -> None:
    """As if it had not been."""
    for path in (f"{PODS}/{VICTIM}", f"{OWN_PODS}/{OWN_POD}", f"{NODES}/{NODE}"):
        remove(api, path)


def live(bench: Bench, api: Api) -> None:
    """From the fault to the end, whatever comes of it."""
    bench.restarted(pod=(NAMESPACE, OWN_POD))
    bench.run(5)
    affected = Workload(
        namespace="default",
        pod=VICTIM,
        pod_uid=api.request("GET", f"{PODS}/{VICTIM}").body["metadata"]["uid"],
        container="main",
    )
    told = fatal(bench.clock.time(), check="xid_application", xid=31, pods=(affected,))
    bench.finds(replace(fatal(bench.clock.time(), check="gpu_missing"), gpu=None), told)
    bench.run(200)
    bench.finds()
    bench.run(200)
