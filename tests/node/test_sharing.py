"""What else NVIDIA's device plugin gives: replicas by time-slicing or MPS, MIG by each strategy; and static pods."""

import json
import os
from collections import Counter

import pytest

from tests.fakes.libnvml import FakeMig
from tests.node.cluster import NODE, NodeCluster
from tests.node.work import SECONDS, gpuwatch, holders, pod
from tests.waiting import until

GPU = "nvidia.com/gpu"


@pytest.fixture
def restarted(deployed: NodeCluster):
    """Starts the plugin with other options; `offers`: the resources it then offers, and no others."""

    def restart(offers, *options, **variables):
        deployed.stop("device-plugin")
        deployed.start_plugin(*options, **variables)
        until(lambda: offered(deployed) == offers, f"the plugin offers {offers}", SECONDS, step=0.5)
        return deployed

    yield restart
    deployed.kubectl("-n", "ml", "delete", "pod", "--all")
    for gpu in range(8):
        deployed.driver.set_mig(gpu, None)
    restart({GPU: 8})


def offered(node):
    return {name: count for name, count in node.allocatable().items() if count}


def asking(name, resource, count):
    """A pod with so many of a resource."""
    made = pod(name, 0)
    made["spec"]["containers"][0]["resources"]["limits"] = {f"nvidia.com/{resource}": count}
    return made


def taken(node):
    """What diagnose says of the allocations: no device that is not there, none given twice."""
    said = json.loads(gpuwatch(node, "diagnose", "-o", "json", check=False))["items"]
    return next(each["result"] for each in said if each["id"] == "K05")


def ready(node, *pods):
    node.kubectl("-n", "ml", "wait", "--for=condition=Ready", "pod", "--all", f"--timeout={SECONDS:.0f}s")
    until(lambda: set(holders(node)) == set(pods), f"{pods} are known", SECONDS, step=1)


def rows(node):
    return json.loads(gpuwatch(node, "get", "pods", "-o", "json"))["items"]


def sharing(folder, strategy):
    """The plugin's configuration file: four replicas of each GPU."""
    file = folder / "sharing.json"
    resources = {"resources": [{"name": GPU, "replicas": 4}]}
    file.write_text(json.dumps({"version": "v1", "sharing": {strategy: resources}}))
    return f"--config-file={file}"


def share(node):
    """More pods than GPUs, each with one replica."""
    pods = [f"slice-{number}" for number in range(9)]
    node.apply(*(pod(name, 1) for name in pods))
    ready(node, *pods)
    by_gpu = Counter(row["gpu"] for row in rows(node))
    assert max(by_gpu.values()) > 1, "nine pods share eight GPUs"
    assert sum(row["replicas"] for row in rows(node)) == 9
    assert taken(node) == "pass", "shared, not given twice"


def test_time_sliced_replicas(deployed, restarted):
    share(restarted({GPU: 32}, sharing(deployed.folder, "timeSlicing")))


def test_replicas_by_mps(deployed, restarted):
    """The plugin asks MPS's control program whether it runs, and mounts its pipe and memory into each pod."""
    programs, root = deployed.folder / "mps-programs", deployed.folder / "mps"
    for place in (programs, root / GPU / "pipe", root / "shm"):
        place.mkdir(parents=True)
    control = programs / "nvidia-cuda-mps-control"
    control.write_text("#!/bin/sh\ncat > /dev/null\necho 25.0\n")
    control.chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    node = restarted({GPU: 32}, sharing(deployed.folder, "mps"), f"--mps-root={root}", PATH=path)
    share(node)
    said = node.kubectl("-n", "ml", "exec", "slice-0", "--", "env")
    assert f"CUDA_MPS_PIPE_DIRECTORY=/mps/{GPU}/pipe" in said


MIXED = [FakeMig(gi=1, profile="1g.10gb"), FakeMig(gi=2, profile="1g.10gb"), FakeMig(gi=3, profile="2g.20gb")]


def test_mig_strategy_mixed(deployed, restarted):
    deployed.driver.set_mig(2, MIXED)
    node = restarted({GPU: 7, "nvidia.com/mig-1g.10gb": 2, "nvidia.com/mig-2g.20gb": 1}, "--mig-strategy=mixed")
    node.apply(asking("small", "mig-1g.10gb", 2), asking("large", "mig-2g.20gb", 1), pod("whole", 1))
    ready(node, "small", "large", "whole")
    found = {(row["pod"], row["gpu"], row["gi"], row["profile"]) for row in rows(node) if row["pod"] != "whole"}
    assert found == {("small", 2, 1, "1g.10gb"), ("small", 2, 2, "1g.10gb"), ("large", 2, 3, "2g.20gb")}
    assert 2 not in holders(node)["whole"]
    assert taken(node) == "pass"


def test_mig_strategy_single(deployed, restarted):
    for gpu in range(8):
        deployed.driver.set_mig(gpu, [FakeMig(gi=gi, profile="1g.10gb") for gi in (7, 8)])
    node = restarted({GPU: 16}, "--mig-strategy=single")
    node.apply(pod("two-instances", 2), pod("one", 1))
    ready(node, "two-instances", "one")
    found = [(row["gpu"], row["gi"]) for row in rows(node)]
    assert len(set(found)) == 3
    assert {gi for _, gi in found} <= {7, 8}
    assert taken(node) == "pass"


def test_mig_strategy_none(deployed, restarted):
    """The plugin takes no notice of MIG: a pod that has the GPU has all its instances."""
    deployed.driver.set_mig(0, MIXED)
    node = restarted({GPU: 8}, "--mig-strategy=none")
    node.apply(pod("all", 8))
    ready(node, "all")
    assert {row["gi"] for row in rows(node) if row["gpu"] == 0} == {1, 2, 3}
    assert holders(node)["all"] == set(range(8))


def test_a_static_pod_is_known(deployed):
    """The kubelet runs it from a file; the API server has a mirror of it."""
    file = deployed.folder / "static/still.yaml"
    file.write_text(json.dumps(pod("still", 1)))
    name = f"still-{NODE}"
    until(lambda: name in holders(deployed), "it is known", SECONDS, step=1)
    file.unlink()
    until(lambda: name not in holders(deployed), "it holds nothing", SECONDS, step=1)
