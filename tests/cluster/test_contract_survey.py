"""What a diagnosis asks of an API server: pods of a node and waiting ones, RuntimeClasses, the operator's policy."""

import pytest

from gpuwatch.diagnose.gathering.cluster import read_cluster
from gpuwatch.diagnose.gathering.survey import SurveyReader
from gpuwatch.kube.errors import NotFound
from gpuwatch.kube.transport import Transport
from gpuwatch.model.snapshot import Host
from tests.cluster.api import NODES, PODS, STRATEGIC, Api
from tests.waiting import until

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POLICIES = "/apis/nvidia.com/v1/clusterpolicies"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
SECONDS = 30.0
GPU = {"limits": {"nvidia.com/gpu": "2"}}
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
POLICY_KIND = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "clusterpolicies.nvidia.com"},
    "spec": {
        "group": "nvidia.com",
        "scope": "Cluster",
        "names": {"plural": "clusterpolicies", "singular": "clusterpolicy", "kind": "ClusterPolicy"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": ANYTHING},
                "subresources": {"status": {}},
            }
        ],
    },
}


@pytest.fixture
def transport(apiserver):
    made = Transport(str(apiserver.kubeconfig()))
    yield made
    made.close()


def make_pod(api, name, **spec):
    body = {"metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    body["spec"]["containers"][0] |= spec.pop("container", {})
    status, made = api.request("POST", PODS, {**body, "spec": {**body["spec"], **spec}})
    assert status == 201, made
    return made


def test_pods_of_the_node_and_pods_that_wait_for_gpus(apiserver, transport, node, name):
    make_pod(apiserver, f"{name}-train", nodeName=name, container={"resources": GPU})
    make_pod(apiserver, f"{name}-waits", container={"resources": GPU})
    make_pod(apiserver, f"{name}-web", nodeName=name)
    plugin = f"{name}-nvidia-device-plugin"
    make_pod(
        apiserver, plugin, nodeName=name, container={"env": [{"name": "DP_X", "value": "1"}, {"name": "PASSWORD"}]}
    )
    waiting = {"name": "c", "image": "i", "imageID": "", "restartCount": 3, "ready": False}
    waiting["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
    patch = {"status": {"containerStatuses": [waiting], "conditions": [{"type": "Ready", "status": "False"}]}}
    assert apiserver.request("PATCH", f"{PODS}/{plugin}/status", patch, STRATEGIC).status == 200
    reader = SurveyReader(transport, name)
    found = {pod.name: pod for pod in reader.gpu_pods()}
    assert found.keys() == {f"{name}-train", plugin}
    assert found[f"{name}-train"].gpus == 2
    assert (found[plugin].ready, found[plugin].waiting, found[plugin].restarts) == (False, "CrashLoopBackOff", 3)
    assert found[plugin].environment == {"DP_X": "1"}
    assert f"{name}-waits" in {pod.name for pod in reader.pending()}
    assert f"{name}-train" not in {pod.name for pod in reader.pending()}


def test_a_node_has_its_devices(apiserver, transport, node, name):
    amounts = {"cpu": "8", "nvidia.com/gpu": "8", "nvidia.com/mig-1g.10gb": "2k", "example.com/gpu": "3"}
    status = {"status": {"capacity": amounts, "allocatable": {**amounts, "nvidia.com/gpu": "7"}}}
    assert apiserver.request("PATCH", f"{NODES}/{name}/status", status, STRATEGIC).status == 200
    found = SurveyReader(transport, name).node()
    assert found.capacity == {"nvidia.com/gpu": 8, "nvidia.com/mig-1g.10gb": 2000}
    assert found.allocatable["nvidia.com/gpu"] == 7


@pytest.fixture
def plane(control_plane):
    """A real one, for what the simulated server does not serve."""
    return Api(control_plane)


@pytest.mark.cluster
def test_runtime_classes_and_the_operators_policy(plane, name):
    reader = SurveyReader(Transport(str(plane.kubeconfig())), name)
    made = {"metadata": {"name": name}, "handler": "nvidia"}
    assert plane.request("POST", RUNTIME_CLASSES, made).status == 201
    assert reader.runtime_classes()[name] == "nvidia"
    with pytest.raises(NotFound):
        reader.policy_state()
    assert plane.request("POST", CRDS, POLICY_KIND).status == 201
    try:
        until(lambda: plane.request("GET", POLICIES).status == 200, "ClusterPolicies are served")
        assert reader.policy_state() is None
        policy = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": name}}
        assert plane.request("POST", POLICIES, policy).status == 201
        status = {"status": {"state": "notReady"}}
        content = "application/merge-patch+json"
        assert plane.request("PATCH", f"{POLICIES}/{name}/status", status, content).status == 200
        assert reader.policy_state() == "notReady"
    finally:
        plane.request("DELETE", f"{CRDS}/clusterpolicies.nvidia.com")


@pytest.mark.cluster
def test_the_kubelets_own_rights_show_its_node_and_pods(plane, name):
    """As RBAC and the Node authorizer have it: no list of Nodes, no ClusterPolicies."""
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "resourceNames": [name], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": ["node.k8s.io"], "resources": ["runtimeclasses"], "verbs": ["list"]},
    ]
    group, user = "/apis/rbac.authorization.k8s.io/v1", f"kubelet-{name}"
    kubeconfig = str(plane.kubeconfig(user))
    assert plane.request("POST", f"{group}/clusterroles", {"metadata": {"name": name}, "rules": rules}).status == 201
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}],
    }
    assert plane.request("POST", f"{group}/clusterrolebindings", binding).status == 201
    plane.request("POST", NODES, {"metadata": {"name": name}})
    info = {"status": {"nodeInfo": {"bootID": f"boot-{name}"}}}
    assert plane.request("PATCH", f"{NODES}/{name}/status", info, STRATEGIC).status == 200

    def asked():
        return read_cluster(name, SECONDS, host=Host(boot_id=f"boot-{name}"), kubeconfig=kubeconfig, environment={})

    until(lambda: asked().pods is not None, "the right is in force")
    found = asked()
    assert (found.node.name, found.pods) == (name, ())
    assert found.runtime_classes is not None
    assert set(found.unseen) == {"clusterpolicy"}
    assert found.unseen["clusterpolicy"].startswith(("forbidden: ", "absent: "))
