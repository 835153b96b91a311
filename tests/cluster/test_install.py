"""From an empty API server to an installation and back with kubectl: two commands, and nothing left in the end."""

import json
from pathlib import Path

import pytest

import gpuwatch
from tests.cluster.api import MERGE, NODES
from tests.cluster.installing import NVIDIA, made_by_controller
from tests.cluster.manifests import ACCOUNT
from tests.cluster.remediating import make_node
from tests.cluster.rights import objects
from tests.deploy.rendering import COMPONENTS, OVERLAYS, built
from tests.remediation.model.remediating import NAMESPACE
from tests.waiting import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
]  # quick: objects and rights are compared without a cluster in tests/deploy

PAGE = Path(gpuwatch.__file__).parents[1] / "docs/kubernetes.md"
NOT_OWN = "the token is not of a pod on this Node"


def outcomes(said):
    """What `kubectl apply` did to each object."""
    return [line.split()[-1] for line in said.splitlines()]


@pytest.mark.parametrize(
    "chosen",
    [
        *(pytest.param((name,), marks=pytest.mark.slow, id=name) for name in OVERLAYS),
        pytest.param(COMPONENTS, id="all"),
    ],
)
def test_two_commands_install_and_prove_it(tmp_path, fresh, request, chosen):
    """All components at once hold the case of the overlays, which choose among them."""
    folder, kubectl = fresh.folder(tmp_path, *chosen), fresh.kubectl
    before, wanted = objects(fresh.api), built(folder)
    request.addfinalizer(lambda: fresh.uninstall(folder))

    first = kubectl("apply", "-k", folder)
    assert kubectl("diff", "-k", folder) == ""

    assert outcomes(first) == ["created"] * len(wanted)
    assert len(objects(fresh.api) - before) == len(wanted)
    assert outcomes(kubectl("apply", "-k", folder)) == ["unchanged"] * len(wanted)
    made = kubectl("create", "--dry-run=server", "-f", "-", stdin=made_by_controller(folder))
    assert outcomes(made) == ["run)"], "the pod would not be admitted"

    kubectl("delete", "-k", folder, "--wait=false")
    assert objects(fresh.api) - before == {("", "namespaces", NAMESPACE)}  # going; its controller does not run here


@pytest.mark.slow  # of kubectl alone: ours is the namespace, which every installation makes first
def test_the_server_says_what_would_be_done_before_it_is_done(tmp_path, fresh, request):
    """It has to know the namespace: what is only said does not make one."""
    folder, kubectl = fresh.folder(tmp_path, "remediation", "remediation-enforce"), fresh.kubectl
    request.addfinalizer(lambda: fresh.uninstall(folder))
    assert 'namespaces "gpuwatch" not found' in kubectl.run("apply", "--dry-run=server", "-k", folder).stderr
    kubectl("create", "namespace", NAMESPACE)
    before = objects(fresh.api)
    said = kubectl("apply", "--dry-run=server", "-k", folder)
    assert len(said.splitlines()) == len(built(folder))
    assert objects(fresh.api) == before


def test_a_component_without_the_one_it_builds_on_is_refused(tmp_path, fresh, request):
    folder = fresh.folder(tmp_path, "remediation-enforce")
    request.addfinalizer(lambda: fresh.uninstall(folder))
    done = fresh.kubectl.run("apply", "-k", folder)
    assert done.returncode == 1
    assert "containers[0].image: Required value" in done.stderr


def test_a_missing_runtime_class_and_a_stricter_namespace_are_reported(fresh, install):
    """The words of docs/kubernetes.md, where they stand as what `kubectl describe daemonset` shows."""
    kubectl, made = fresh.kubectl, made_by_controller(install())

    def refusal():
        return kubectl.run("create", "--dry-run=server", "-f", "-", stdin=made).stderr

    kubectl("delete", "runtimeclass", "nvidia")
    without_class = refusal()
    kubectl("apply", "-f", "-", stdin=json.dumps(NVIDIA))
    kubectl("label", "namespace", NAMESPACE, "--overwrite", "pod-security.kubernetes.io/enforce=baseline")
    for words, said in (
        ('pod rejected: RuntimeClass "nvidia" not found', without_class),
        ('violates PodSecurity "baseline:latest"', refusal()),
    ):
        assert words in said
        assert words in PAGE.read_text()


@pytest.mark.slow  # test_installed.py holds what an account may do without the component that this takes away
def test_one_command_stops_all_remediators_and_the_next_apply_lets_them_act_again(fresh, install):
    folder, kubectl, user = install(*COMPONENTS), fresh.kubectl, f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
    page = PAGE.with_name("remediation.md").read_text()
    ((_, *command),) = (line.split() for line in page.splitlines() if "kubectl delete clusterroleb" in line)

    def may():
        asked = (
            ("get", "nodes"),
            ("patch", "nodes"),
            ("patch", "nodes", "--subresource=status"),
            ("create", "pods", "--subresource=eviction"),
        )
        return [each[0] for each in asked if kubectl.run("auth", "can-i", *each, "--as", user).returncode == 0]

    until(lambda: may() == ["get", "patch", "patch", "create"], "it may act")
    kubectl(*command)
    until(lambda: may() == ["get"], "it may only look")
    kubectl("apply", "-k", folder)
    until(lambda: may() == ["get", "patch", "patch", "create"], "it may act again")


@pytest.mark.slow  # test_own_node_policy.py holds the policies for a token of a pod, which names the node the same way
def test_a_token_made_manually_for_a_node_acts_on_that_node_alone(fresh, install):
    """Outside of pods: the command of docs/remediation.md."""
    install("remediation", "remediation-enforce")
    api, page = fresh.api, PAGE.with_name("remediation.md").read_text()
    ((_, *command),) = (line.split() for line in page.splitlines() if "kubectl -n gpuwatch create token" in line)
    for name in ("machine", "another"):
        make_node(api, name, f"boot-of-{name}")
    token = fresh.kubectl(*("machine" if word == "NODE" else word for word in command)).strip()

    def label(node):
        return api.request(
            "PATCH", f"{NODES}/{node}", {"metadata": {"labels": {"gpuwatch.io/a": "1"}}}, MERGE, token=token
        )

    until(lambda: NOT_OWN in label("another").body.get("message", ""), "the policies hold")
    assert label("machine").status == 200
    for name in ("machine", "another"):
        api.request("DELETE", f"{NODES}/{name}")


@pytest.mark.slow  # tests/deploy/test_kustomize.py holds that no policy names a namespace
def test_in_another_namespace_the_policies_hold_as_well(fresh, install):
    elsewhere, api = "elsewhere", fresh.api
    install(*COMPONENTS, namespace=elsewhere)
    spec = {"nodeName": "here", "serviceAccountName": ACCOUNT, "containers": [{"name": "main", "image": "none"}]}
    for name in ("here", "there"):
        make_node(api, name, f"boot-of-{name}")
    pods = f"/api/v1/namespaces/{elsewhere}/pods"
    running = api.request("POST", pods, {"metadata": {"name": "gpuwatch-1"}, "spec": spec}).body
    token = fresh.plane.service_account_token(elsewhere, ACCOUNT, running)

    def label(node):
        body = {"metadata": {"labels": {"gpuwatch.io/a": "1"}}}
        return api.request("PATCH", f"{NODES}/{node}", body, MERGE, token=token)

    until(lambda: NOT_OWN in label("there").body.get("message", ""), "the policies hold")
    assert label("here").status == 200
    for path in (f"{NODES}/here", f"{NODES}/there", f"{pods}/gpuwatch-1?gracePeriodSeconds=0"):
        api.request("DELETE", path)
