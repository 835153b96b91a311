"""A simulated node hands its pods' annotations to a tuner that asks no API server, and keeps them fresh."""

import time
from pathlib import Path

from gpuwatch.consents.file import ConsentsFile
from gpuwatch.model.consent import AUTOTUNE, CLASS, Consents, PodConsent
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.node import noise
from gpuwatch.sim.node.actions import StopWorkload
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.node.scenario import load
from gpuwatch.sim.surroundings.consents import REFRESH_SECONDS, ConsentsWriter
from gpuwatch.sim.surroundings.demo_cluster import GPUS, PodWorkloads
from gpuwatch.sim.world import World
from tests.sim.node.nodes import FakeClock, scenario, work
from tests.waiting import until

SAID = {AUTOTUNE: "enforce", CLASS: "batch"}


def read(world: World, enough: int) -> Consents:
    """What the tuner reads, once it tells of so many pods."""
    file = ConsentsFile(world.directory / "state")
    return until(lambda: (found := file.read()) is not None and len(found.pods) == enough and found)


def test_annotations_of_pods_reach_the_file_and_leave_with_the_pod(tmp_path: Path) -> None:
    began = time.time()
    node = scenario("h100", 1, [work(0, annotations={**SAID, "example.org/team": "a"})])
    with World(node, tmp_path) as world:
        uid = noise.uuid(1, "pod", "ml", "train-0")
        found = read(world, 1)
        labels = {"label_team": "ml", "label_app_kubernetes_io_name": "train"}
        assert found.pods == (PodConsent(namespace="ml", name="train-0", uid=uid, annotations=SAID, labels=labels),)
        assert began - 0.01 <= found.at <= time.time() + 0.01
        assert found.namespaces == {"ml": {}}
        world.inject(StopWorkload(name="ml/train-0"))
        assert read(world, 0).namespaces == {}


def test_it_is_written_again_before_it_is_taken_for_old(tmp_path: Path) -> None:
    clock = FakeClock()
    node, consenting = SimNode(scenario("h100", 1, [work(0)])), ConsentsWriter(tmp_path, clock)
    ages = []
    for _ in range(100):
        consenting.step(node)
        written = ConsentsFile(tmp_path).read()
        assert written is not None
        ages.append(clock.time() - written.at)
        clock.advance(1.0)
    assert 0 < max(ages) <= REFRESH_SECONDS


def test_a_simulated_cluster_says_the_same_of_the_same_pods(tmp_path: Path) -> None:
    cluster, workloads = SimulatedCluster(), load("tuning").workloads
    cluster.add_node("here", gpus=GPUS)
    world = World("tuning", tmp_path)
    PodWorkloads(cluster, world, "here", workloads, {})
    told = {
        (pod["metadata"]["name"], pod["metadata"]["uid"]): pod["metadata"].get("annotations", {})
        for pod in cluster.pods_on("here")
    }
    with world:
        found = read(world, len(workloads))
    assert told == {(pod.name, pod.uid): pod.annotations for pod in found.pods}
    assert sorted(said.get(AUTOTUNE, "") for said in told.values()) == [
        "",
        "enforce",
        "enforce",
        "enforce",
        "enforce",
        "off",
    ]
