"""The simulated Node: its devices are those the kubelet hands out, its labels those of discovery and operator."""

import re

import msgspec
import pytest

from gpuwatch.diagnose.model import ClusterFacts
from gpuwatch.sim.host.cluster import cluster
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.node.pods import allocatable
from gpuwatch.sim.node.profiles import MODELS
from gpuwatch.sim.node.scenario import parse

LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")


def simulated(timeline=(), workloads=(), **spec):
    document = {"description": "t", "node": spec, "timeline": list(timeline), "workloads": list(workloads)}
    node = SimNode(parse(document, "test"), physical=False)
    node.advance(1.0)
    return node


def shown(node):
    (text,) = cluster(node).values()
    return msgspec.json.decode(text, type=ClusterFacts)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {"nvidia.com/gpu": 8}),
        ({"model": "l40s", "gpus": 2, "replicas": 4}, {"nvidia.com/gpu": 8}),
        ({"gpus": 2, "mig": {1: ["3g.40gb", "3g.40gb"]}}, {"nvidia.com/gpu": 1, "nvidia.com/mig-3g.40gb": 2}),
        ({"gpus": 0}, {}),
    ],
)
def test_devices_are_those_that_the_kubelet_provides(spec, expected):
    node = simulated(**spec)
    found = shown(node).node
    assert found.capacity == found.allocatable == expected
    assert found.allocatable == {each.resource: len(each.device_ids) for each in allocatable(node)}


def test_a_lost_gpu_is_registered_and_not_handed_out():
    found = shown(simulated([{"do": "lose", "gpu": 3}])).node
    assert (found.capacity, found.allocatable) == ({"nvidia.com/gpu": 8}, {"nvidia.com/gpu": 7})


@pytest.mark.parametrize("model", MODELS)
def test_labels_are_labels_and_name_the_model(model):
    labels = shown(simulated(model=model)).node.labels
    assert labels["nvidia.com/gpu.product"] == MODELS[model].name.replace(" ", "-")
    assert all(len(value) <= 63 and LABEL.fullmatch(value) for value in labels.values())


def test_labels_follow_the_driver_that_is_loaded():
    node = simulated([{"do": "reload", "seconds": 0.1, "driver": "570.86.15"}])
    labels = shown(node).node.labels
    assert labels["nvidia.com/cuda.driver-version.full"] == "570.86.15"
    assert labels["nvidia.com/cuda.runtime-version.full"] == "12.8"


def test_pods_are_those_with_gpus_and_the_operators():
    node = simulated(workloads=[{"name": "ml/train", "gpus": [0, 1]}, {"name": "batch", "gpus": [2], "slurm": "7"}])
    pods = {pod.path: pod for pod in shown(node).pods}
    assert pods["ml/train"].gpus == 2
    assert {pod.namespace for pod in pods.values()} == {"ml", "gpu-operator"}
