"""The Helm chart in a real cluster: installed, upgraded to act, rolled back, and gone without a trace."""

from typing import NamedTuple

import pytest
import yaml

from deploy.helm.generate import CHART
from tests.cluster.api import MERGE, NODES, Api
from tests.deploy.charts import OPERATOR, case, is_test, rendered, run, warnings
from tests.deploy.kubectl import Kubectl
from tests.waiting import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
]  # quick: the rendered chart is compared with the manifests in tests/deploy

EVERYTHING = case("everything")
LABEL = "gpuwatch.io/gpu-healthy-count"


class Release(NamedTuple):
    """An installation, or one to be: its name is its namespace, too."""

    plane: object
    name: str

    def helm(self, *arguments, values=None):
        said = run(*arguments, "--namespace", self.name, "--kubeconfig", str(self.plane.kubeconfig()), values=values)
        assert said.code == 0, said.error
        return said.out

    def install(self, values=None):
        return self.helm("install", self.name, CHART, "--create-namespace", values=values or {})

    def upgrade(self, values):
        return self.helm("upgrade", self.name, CHART, values=values)

    def kubectl(self, *arguments, stdin=""):
        return Kubectl(self.plane.kubeconfig())(*arguments, stdin=stdin)

    def objects(self):
        """What is in the cluster of this release: kind/name."""
        kinds = ",".join(sorted({each["kind"] for each in rendered(EVERYTHING)}))
        selector = f"app.kubernetes.io/instance={self.name}"
        return set(self.kubectl("get", kinds, "-A", "-l", selector, "-o", "name").split())


@pytest.fixture(scope="module")
def plane(fresh):
    """A cluster that knows the Prometheus operator's kinds.

    It is that of the tests that install: an API server from which a release is taken away ends its watch of Leases with
    the last policy that compares them (test_reinstall.py), and so fails those who try that policy there.
    """
    return fresh.plane


@pytest.fixture
def release(plane, name):
    """One that is not there yet, and not afterwards."""
    made = Release(plane, f"chart-{name}")
    yield made
    run("uninstall", made.name, "--namespace", made.name, "--kubeconfig", str(plane.kubeconfig()), "--ignore-not-found")


@pytest.mark.slow  # test_install.py has the same objects by kubectl, test_chart_same.py that they are the same
def test_install_enforce_roll_back_uninstall(release):
    release.install()
    alone = release.objects()
    assert {each.split("/")[0].split(".")[0] for each in alone} == {"daemonset", "configmap", "serviceaccount"}

    release.upgrade(EVERYTHING)
    with_all = release.objects()
    assert len(with_all) == len([each for each in rendered(EVERYTHING, release.name) if not is_test(each)])
    assert with_all > alone

    release.helm("rollback", release.name, "1")
    assert release.objects() == alone

    release.helm("uninstall", release.name)
    assert release.objects() == set()
    left = release.kubectl("get", "secrets,configmaps,leases", "-n", release.name, "-o", "name")
    assert left.split() in ([], ["configmap/kube-root-ca.crt"])


@pytest.mark.slow  # tests/deploy/test_chart_notes.py has the same warnings where Helm cannot ask
def test_notes_of_a_cluster_that_helm_can_ask(release, name):
    """It looks for the namespace's label and the runtime class; and is content once both are there."""
    values = {**case("observe"), "runtimeClassName": name, "podMonitor": {"enabled": True}}
    told = warnings(release.install(values))
    assert [each.split(":")[0] for each in told] == [
        f"the namespace {release.name} has no label pod-security.kubernetes.io/enforce=privileged",
        f"there is no RuntimeClass {name}",
    ]
    _, _, command = told[0].rpartition("run: kubectl ")
    release.kubectl(*command.split())
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "nvidia"}
    release.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(runtime))
    assert warnings(release.upgrade(values)) == []


@pytest.mark.slow  # the same objects as those of kustomize (tests/deploy/test_chart_same.py), and those are tried
def test_the_policy_guards_the_release_s_own_account(release, name):
    """The token of a pod of this release changes its own Node, and no other."""
    release.install({"remediation": {"mode": "enforce"}})
    api = Api(release.plane)
    own, other = f"{name}-own", f"{name}-other"
    for node in (own, other):
        assert api.request("POST", NODES, {"metadata": {"name": node}}).status == 201
    account = f"{release.name}-gpuwatch-remediator"
    spec = {"nodeName": own, "serviceAccountName": account, "containers": [{"name": "main", "image": "none"}]}
    path = f"/api/v1/namespaces/{release.name}/pods"
    status, pod = api.request("POST", path, {"metadata": {"name": name}, "spec": spec})
    assert status == 201, pod
    token = release.plane.service_account_token(release.name, account, pod)
    change = {"metadata": {"labels": {LABEL: "7"}}}

    def refusal():
        status, said = api.request("PATCH", f"{NODES}/{other}", change, MERGE, token=token)
        return status == 403 and said["message"]

    until(refusal, "the new policy is in force")  # the server's own watch has to bring it
    assert "the token is not of a pod on this Node" in refusal()
    assert api.request("PATCH", f"{NODES}/{own}", change, MERGE, token=token).status == 200
    foreign = {"metadata": {"labels": {"example.com/mine": "7"}}}
    assert api.request("PATCH", f"{NODES}/{own}", foreign, MERGE, token=token).status == 403


@pytest.mark.slow  # tests/deploy/test_chart_objects.py holds that all names have the release in them
def test_two_releases_live_side_by_side(plane, name):
    first, second = Release(plane, f"chart-{name}-a"), Release(plane, f"chart-{name}-b")
    try:
        first.install({"remediation": {"mode": "enforce"}})
        before = first.objects()
        second.install({"remediation": {"mode": "enforce"}})
        assert not first.objects() & second.objects()
        second.helm("uninstall", second.name)
        assert first.objects() == before
    finally:
        first.helm("uninstall", first.name)


def test_the_operator_s_kinds_are_found(plane):
    """The names that the warnings look for are those that a cluster tells."""
    known = Kubectl(plane.kubeconfig())("api-resources", "--api-group=monitoring.coreos.com", "-o", "name").split()
    assert sorted(known) == sorted(f"{each.rpartition('/')[2].lower()}s.monitoring.coreos.com" for each in OPERATOR)
