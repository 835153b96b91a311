"""Reading the API server for a diagnosis: whose Node it is, by which credentials, and what could not be seen."""

import json
import shutil
import time
from pathlib import Path

import pytest

from gpuwatch.diagnose.gathering.cluster import read_cluster
from gpuwatch.kube.credentials import NoCluster
from gpuwatch.kube.errors import NotFound, Unavailable
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import Host
from gpuwatch.sim.kubeapi.access import AccessRule
from tests import fast_yaml
from tests.kube.kube_server import NODE, served

HERE = Host(boot_id=f"boot-of-{NODE}", machine_id=f"machine-of-{NODE}")
PLUGIN = "nvidia-device-plugin-daemonset"
SECONDS = 20.0


@pytest.fixture
def api():
    with served() as given:
        yield given


def read(api, node_name=NODE, host=HERE, user=None, seconds=SECONDS, environment=None, **more):
    kubeconfig = str(api.server.kubeconfig(user) if user else api.server.kubeconfig())
    environment = {"KUBECONFIG": kubeconfig} if environment is None else environment
    return read_cluster(node_name, seconds, host=host, environment=environment, **more)


def test_what_may_be_seen_is_seen(api):
    api.cluster.add_pod("gpu-operator", PLUGIN, node=NODE, gpus=0, labels={"app": PLUGIN})
    found = read(api)
    assert (found.node.name, found.way) == (NODE, str(api.server.kubeconfig()))
    assert found.node.capacity == found.node.allocatable == {"nvidia.com/gpu": 8}
    assert {pod.path for pod in found.pods} == {"ml/train-0", f"gpu-operator/{PLUGIN}"}
    assert (found.pending, found.plugin_environment) == ((), {})
    assert found.unseen["clusterpolicy"].startswith("absent: ")


def test_what_is_forbidden_is_reported_with_the_way_to_ask_for_it(api):
    api.cluster.add_user("kubelet", [AccessRule(verbs=["get"], resources=["nodes"], names=[NODE])])
    found = read(api, user="kubelet")
    assert (found.pods, found.pending, found.runtime_classes, found.plugin_environment) == (None, None, None, None)
    assert found.unseen["pods"].startswith("forbidden: ")
    assert "`kubectl auth can-i list pods -A`" in found.unseen["pods"]


@pytest.mark.parametrize("name", [NODE, ""])
def test_another_machines_node_is_not_judged(api, name):
    other = Host(boot_id="boot-of-another")
    with pytest.raises(
        GpuwatchError, match=f"node {NODE} has the boot id boot-of-{NODE}, this machine boot-of-another"
    ):
        read(api, name, host=other, names=(NODE,))


def test_a_node_that_cannot_be_distinguished_from_another_is_not_judged(api):
    with pytest.raises(GpuwatchError, match="neither boot id nor machine id can be compared"):
        read(api, host=Host())


def test_the_environment_names_the_node(api):
    environment = {"KUBECONFIG": str(api.server.kubeconfig()), "NODE_NAME": NODE}
    assert read(api, "", environment=environment).node.name == NODE
    with pytest.raises(NotFound):
        read(api, "", environment=environment | {"NODE_NAME": "nobody"}, names=(NODE,))


def test_a_node_may_have_another_name_than_its_host(api):
    api.cluster.add_node("ip-10-0-0-1.internal", labels={"kubernetes.io/hostname": "gpu-7"})
    host = Host(boot_id="boot-of-ip-10-0-0-1.internal")
    assert read(api, "", host=host, names=("gpu-7",)).node.name == "ip-10-0-0-1.internal"


def test_no_node_of_this_machine_is_reported(api):
    with pytest.raises(GpuwatchError, match="no Node is known to be this machine"):
        read(api, "", names=("elsewhere",))


def test_the_kubelets_own_credentials_come_last_and_name_the_node(api, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(NoCluster):
        read(api, "", environment={}, root=tmp_path)
    own = tmp_path / "etc/kubernetes/kubelet.conf"
    own.parent.mkdir(parents=True)
    own.write_text(_of_kubelet(api.server.kubeconfig()))
    found = read(api, "", environment={}, root=tmp_path, names=("elsewhere",))
    assert (found.node.name, found.way) == (NODE, f"the kubelet's own kubeconfig, {own}")


def test_a_server_that_is_away_keeps_nobody(api, tmp_path):
    copy = shutil.copy(api.server.kubeconfig(), tmp_path / "away")
    api.server.stop()
    began = time.monotonic()
    with pytest.raises(Unavailable):
        read_cluster(NODE, 1.0, host=HERE, kubeconfig=str(copy), environment={})
    assert time.monotonic() - began < SECONDS


def test_what_there_was_no_time_for_is_reported(api):
    found = read(api, seconds=0.0)
    assert found.node.name == NODE
    assert set(found.unseen) == {"pods", "pending", "runtimeclasses", "clusterpolicy"}
    assert "no time left" in found.unseen["pods"]


def _of_kubelet(kubeconfig):

    document = fast_yaml.load(Path(kubeconfig).read_text())
    for each in (*document["users"], *(context["context"] for context in document["contexts"])):
        each["name" if "name" in each else "user"] = f"system:node:{NODE}"
    return json.dumps(document)
