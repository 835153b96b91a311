"""The real control plane has what this project builds on: node claims in tokens, admission policies, the client."""

import contextlib

import pytest
from kubernetes import client, config

from tests.cluster.api import MERGE, NODES, Api
from tests.cluster.binaries import find
from tests.cluster.controlplane import ControlPlane
from tests.waiting import until

pytestmark = pytest.mark.cluster

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
PODS = "/api/v1/namespaces/default/pods"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
NODE_CLAIM = "authentication.kubernetes.io/node-name"


@pytest.fixture
def api(control_plane):
    return Api(control_plane)


@pytest.fixture
def token(api, control_plane, name):
    """What the kubelet would give to a pod on the node of this name, whose service account may patch all nodes."""
    made(api, NODES, {"metadata": {"name": name}})
    made(api, ACCOUNTS, {"metadata": {"name": name}})
    spec = {"serviceAccountName": name, "nodeName": name, "containers": [{"name": "main", "image": "none"}]}
    pod = made(api, PODS, {"metadata": {"name": name}, "spec": spec})
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}]
    made(api, f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": "default"}]
    made(api, f"{RBAC}/clusterrolebindings", {"metadata": {"name": name}, "roleRef": role, "subjects": subjects})
    return control_plane.service_account_token("default", name, pod)


def made(api, path, body):
    status, answer = api.request("POST", path, body)
    assert status == 201, answer
    return answer


def test_the_official_client_comes_in_with_a_kubeconfig(control_plane, name):
    with contextlib.closing(config.new_client_from_config(str(control_plane.kubeconfig()))) as loaded:
        core = client.CoreV1Api(loaded)
        core.create_node({"metadata": {"name": name}})
        assert core.read_node(name).spec.taints[0].key == "node.kubernetes.io/not-ready"


def test_a_token_says_which_node_it_is_for(api, token, name):
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    _, answer = api.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, token=token)
    assert answer["status"]["userInfo"]["username"] == f"system:serviceaccount:default:{name}"
    assert answer["status"]["userInfo"]["extra"][NODE_CLAIM] == [name]


def test_a_policy_keeps_a_token_to_its_own_node(api, token, name, names):
    other = next(names)
    made(api, NODES, {"metadata": {"name": other}})
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"], "operations": ["UPDATE"]}
    own = f"request.userInfo.extra['{NODE_CLAIM}'][0] == object.metadata.name"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "user", "expression": f"request.userInfo.username.endsWith(':{name}')"}],
        "validations": [{"expression": own, "message": "not its own node"}],
    }
    made(api, f"{ADMISSION}/validatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec})
    binding = {"policyName": name, "validationActions": ["Deny"]}
    made(api, f"{ADMISSION}/validatingadmissionpolicybindings", {"metadata": {"name": name}, "spec": binding})
    until(lambda: "not its own node" in patched(api, other, token).body.get("message", ""), "the policy holds")
    assert patched(api, name, token).status == 200


def patched(api, node, token):
    return api.request("PATCH", f"{NODES}/{node}", {"metadata": {"labels": {"a": "1"}}}, MERGE, token=token)


@pytest.mark.slow  # the fixture `fresh` starts a second one beside the first, and all of them are stopped in the end
def test_a_second_one_runs_beside_it_and_stops(tmp_path, control_plane):
    with ControlPlane(tmp_path, find()) as second:
        assert second.url != control_plane.url
        assert Api(second).request("GET", "/version").status == 200
    with pytest.raises(OSError, match="refused"):
        Api(second).request("GET", "/version")
    with pytest.raises(AssertionError, match="kube-apiserver ended"):
        ControlPlane(tmp_path / "broken", find()._replace(apiserver=find().etcd)).start()
