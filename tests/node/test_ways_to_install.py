"""The base and each overlay become ready as shipped, each on a node as its platform makes one.

The last file, as each takes the place of what the other files use: the GPU Operator's overlay. The chart is in
`test_uninstall.py`.
"""

import json

import pytest

from tests.deploy.rendering import DEPLOY, kustomization
from tests.node.cluster import NODE
from tests.node.nvidia_runc import CONTROL
from tests.node.work import SECONDS, gpuwatch, holders, pod
from tests.waiting import until

GKE_DRIVER = "/home/kubernetes/bin/nvidia"


@pytest.fixture
def install(plugin):
    """Applies a folder with `kubectl apply -k`, and returns when its DaemonSet has rolled out; takes it away again."""
    plugin.kubectl("delete", "namespace", "gpuwatch", "--ignore-not-found")
    applied = []

    def install(folder):
        applied.append(folder)
        plugin.kubectl("apply", "-k", folder)
        plugin.kubectl("-n", "gpuwatch", "rollout", "status", "daemonset/gpuwatch", f"--timeout={SECONDS:.0f}s")
        return plugin

    yield install
    for folder in applied:
        plugin.kubectl("delete", "-k", folder)


@pytest.fixture
def worker(plugin):
    """A pod with two GPUs."""
    plugin.apply(pod("worker", 2))
    yield "worker"
    plugin.kubectl("-n", "ml", "delete", "pod", "worker")


@pytest.fixture
def eks(plugin):
    """NVIDIA's container runtime is the default one there."""
    plugin.stop("containerd")
    plugin.start_containerd("nvidia")
    yield
    plugin.stop("containerd")
    plugin.start_containerd()


@pytest.fixture
def gke(plugin, tmp_path):
    """No runtime of NVIDIA's, a driver in a folder of its own, device files; and a patch to where the fake is read."""
    label = "cloud.google.com/gke-accelerator"
    plugin.kubectl("label", "node", NODE, f"{label}=nvidia-h100-80gb")
    plugin.run("mkdir", "-p", f"{GKE_DRIVER}/lib64")
    plugin.run("cp", plugin.driver.library, f"{GKE_DRIVER}/lib64/libnvidia-ml.so.1")
    plugin.run("mknod", "/dev/nvidiactl", "c", "195", "255")
    fake = {"name": "fake", "hostPath": {"path": str(plugin.driver.path)}}
    agent = {
        "name": "agent",
        "env": [{"name": "GPUWATCH_FAKE_NVML", "value": CONTROL}],
        "volumeMounts": [{"name": "fake", "mountPath": CONTROL}],
    }
    patch = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "gpuwatch", "namespace": "gpuwatch"},
        "spec": {"template": {"spec": {"containers": [agent], "volumes": [fake]}}},
    }
    yield kustomization(tmp_path / "gke", on="overlays/gke", patches=[{"patch": json.dumps(patch)}])
    plugin.run("rm", "-r", GKE_DRIVER, "/dev/nvidiactl")
    plugin.kubectl("label", "node", NODE, f"{label}-")


def check(node, worker):
    """All GPUs are read, and whose they are is known."""
    assert len(json.loads(gpuwatch(node, "get", "gpus", "-o", "json"))["items"]) == 8
    until(lambda: len(holders(node).get(worker, ())) == 2, f"{worker} is known", SECONDS, step=1)


@pytest.mark.parametrize("way", ["base", "overlays/migrate"])
def test_with_a_runtime_class(install, worker, way):
    check(install(DEPLOY / way), worker)


def test_eks(eks, install, worker):
    check(install(DEPLOY / "overlays/eks"), worker)


def test_gke(gke, install, worker):
    check(install(gke), worker)


def test_demo(install):
    """The simulator, which needs nothing of the node: here a node that has GPUs, of which it is not aware."""
    node = install(DEPLOY / "overlays/demo")
    assert len(json.loads(gpuwatch(node, "get", "gpus", "-o", "json"))["items"]) == 8
    gpuwatch(node, "status")
    gpuwatch(node, "sim", "inject", "--gpu", "2", "--xid", "79")
    until(lambda: "xid_fatal" in gpuwatch(node, "get", "findings", check=False), "it is found", SECONDS, step=1)
