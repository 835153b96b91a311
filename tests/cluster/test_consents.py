"""Consents on a real API server, with the rights that an installation grants and no others."""

import pytest

from gpuwatch.config import MetricsConfig
from gpuwatch.consents.file import ConsentsFile
from gpuwatch.consents.kube import ConsentsReader
from gpuwatch.consents.service import NAMESPACE_CYCLES, Consenting
from gpuwatch.kube.errors import Forbidden
from gpuwatch.kube.objects import TAINT
from gpuwatch.kube.transport import Transport
from gpuwatch.model.consent import AUTOTUNE, CLASS, GANG, MAX_SLOWDOWN, PodConsent
from tests.cluster.api import MERGE, NODES
from tests.cluster.manifests import ACCOUNT
from tests.cluster.remediating import make_node
from tests.cluster.rights import asked
from tests.remediation.model.remediating import NAMESPACE, FakeClock
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]  # quick: tests/consents on the simulated API server

NAMESPACES = "/api/v1/namespaces"
COMPONENTS = {
    "gpuwatch": ("consents",),
    ACCOUNT: ("remediation", "tuner", "consents", "tuner-enforce"),
}
"""The account of the pod -> components that make it so."""
BINDING = "gpuwatch-tuner-consents"
CONSENTS = {("", "nodes", "get"), ("", "namespaces", "get"), ("", "pods", "list")}


class Team:
    """A node, a namespace of the same name and its pods; `reader` asks as the container does."""

    def __init__(self, fresh, name, token, folder):
        self.api, self.name, self.clock, self.file = fresh.api, name, FakeClock(), ConsentsFile(folder)
        self.node, self.namespace = f"{NODES}/{name}", f"{NAMESPACES}/{name}"
        self.pods = f"{self.namespace}/pods"
        make_node(self.api, name, f"boot-of-{name}")
        accounts = f"{self.namespace}/serviceaccounts"
        for path, made in ((NAMESPACES, name), (accounts, "default")):
            assert self.api.request("POST", path, {"metadata": {"name": made}}).status == 201
        self.transport = Transport(str(fresh.plane.token_kubeconfig(token)))
        self.reader = ConsentsReader(self.transport, name)
        self.consenting = Consenting(self.reader, self.file, self.clock, boot_id=f"boot-of-{name}")

    def annotate(self, path, **annotations):
        body = {
            "metadata": {"annotations": {f"gpuwatch.io/{key.replace('_', '-')}": v for key, v in annotations.items()}}
        }
        status, answer = self.api.request("PATCH", path, body, MERGE)
        assert status == 200, answer

    def add_pod(self, name, *, gpus=1, node="", labels=None, annotations=None, **spec):
        resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        container = {"name": "main", "image": "none", "resources": resources}
        metadata = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
        body = {"metadata": metadata, "spec": {"nodeName": node or self.name, "containers": [container], **spec}}
        status, made = self.api.request("POST", self.pods, body)
        assert status == 201, made
        return made["metadata"]["uid"]

    def read(self):
        """What is in the file after one look."""
        self.consenting.step()
        return self.file.read()

    def sees(self, said, what):
        """The server's cache, of which lists are made, may be some milliseconds behind."""
        until(lambda: said(self.read()), what)


@pytest.fixture(scope="module", params=COMPONENTS)
def account(request, fresh, tmp_path_factory):
    """Of the pod, as installed."""
    folder = fresh.folder(tmp_path_factory.mktemp("consents"), *COMPONENTS[request.param])
    fresh.kubectl("apply", "-k", folder)
    yield request.param
    fresh.uninstall(folder)


@pytest.fixture
def team(fresh, account, name, tmp_path):
    made = Team(fresh, name, fresh.plane.service_account_token(NAMESPACE, account), tmp_path)
    until(lambda: made.read() is not None, "the right is in force")
    yield made
    made.transport.close()


def test_pods_of_the_node_with_gpus_come_with_what_they_and_their_namespace_say(team):
    said = {AUTOTUNE: "enforce", MAX_SLOWDOWN: "3%", GANG: "local"}
    uid = team.add_pod("rank-0", labels={"jobset.sigs.k8s.io/jobset-name": "llm"}, annotations={**said, "x/y": "z"})
    team.add_pod("web", gpus=0)
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    team.add_pod("claims", gpus=0, resourceClaims=claims)
    team.add_pod("elsewhere", node="other")
    team.annotate(team.namespace, autotune_class="batch")
    team.sees(lambda found: len(found.pods) == 2, "both pods")
    found = team.file.read()
    rank = PodConsent(namespace=team.name, name="rank-0", uid=uid, annotations=said, job="llm", images={"main": "none"})
    assert {pod.name for pod in found.pods} == {"rank-0", "claims"}
    assert rank in found.pods
    assert found.namespaces == {team.name: {CLASS: "batch"}}
    assert (found.node, found.quarantined) == ({}, False)


def test_a_changed_consent_is_seen_at_the_next_cycle(team):
    team.add_pod("train", annotations={AUTOTUNE: "enforce"})
    team.sees(lambda found: [pod.annotations for pod in found.pods] == [{AUTOTUNE: "enforce"}], "the pod's wish")
    team.annotate(f"{team.pods}/train", autotune="off")
    team.annotate(team.node, autotune="observe")
    team.sees(lambda found: [pod.annotations for pod in found.pods] == [{AUTOTUNE: "off"}], "the pod's new wish")
    assert team.read().node == {AUTOTUNE: "observe"}
    team.annotate(team.node, autotune=None)
    assert team.read().node == {}
    team.annotate(team.namespace, autotune="off")
    for _ in range(NAMESPACE_CYCLES):
        found = team.read()
    assert found.namespaces == {team.name: {AUTOTUNE: "off"}}


def test_labels_that_the_metrics_export_come_with_the_same_rights(team):
    team.reader.metrics = MetricsConfig(pod_labels=("team",), pod_annotations=("x/y",), node_labels=("zone",))
    team.add_pod("train", labels={"team": "vision", "app": "planted"}, annotations={"x/y": 'a\n"b"'})
    assert team.api.request("PATCH", team.node, {"metadata": {"labels": {"zone": "a"}}}, MERGE).status == 200
    exported = {"label_team": "vision", "annotation_x_y": 'a\\n"b"'}
    team.sees(lambda found: [pod.labels for pod in found.pods] == [exported], "the pod's labels")
    assert team.read().node_labels == {"label_zone": "a"}


def test_our_taint_is_seen(team):
    taint = {"key": TAINT, "value": "gpu_lost", "effect": "NoSchedule"}
    assert team.api.request("PATCH", team.node, {"spec": {"taints": [taint]}}, MERGE).status == 200
    assert team.read().quarantined is True


@pytest.mark.slow  # 1,500 questions; test_installed.py holds what the server lists
@pytest.mark.parametrize("account", ["gpuwatch"], indirect=True)
def test_everything_else_is_forbidden(fresh, account):
    """Asked about each verb on each resource, as not every right has to be in the list that an account gets."""
    assert asked(fresh.api, f"system:serviceaccount:{NAMESPACE}:gpuwatch") == CONSENTS


def test_even_one_pod_by_its_name_is_forbidden(team):
    with pytest.raises(Forbidden, match="cannot get pods"):
        team.reader.tolerates(team.name, "train")


def test_without_the_right_the_file_stays_and_the_right_is_named(team, fresh, request, caplog):
    """As `kubectl delete clusterrolebinding` has it."""
    before = team.read()
    binding = fresh.kubectl("get", "clusterrolebinding", BINDING, "-o", "yaml")
    fresh.kubectl("delete", "clusterrolebinding", BINDING)
    request.addfinalizer(lambda: fresh.kubectl("create", "-f", "-", stdin=binding))

    def refused():
        team.consenting.step()
        return "Forbidden" in caplog.text or "grant" in caplog.text

    until(refused, "the right is gone")
    left = team.file.read()
    assert (left.node, left.pods, left.namespaces) == (before.node, before.pods, before.namespaces)
    assert "grant list on pods" in caplog.text or "grant get on nodes" in caplog.text
