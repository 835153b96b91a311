"""A cluster of one node behind HTTP, and its remediator."""

import pytest

from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from tests.remediation.model.remediating import NAMESPACE, NODE, Bench, FakeClock, settings


@pytest.fixture
def server():
    """Serves a cluster with one node, four pods on it, and the namespace of the budget."""
    cluster = SimulatedCluster()
    cluster.add_node(NODE, labels={"nvidia.com/gpu.present": "true"})
    cluster.add_namespace(NAMESPACE)
    for index in range(4):
        cluster.add_pod("ml", f"train-{index}", node=NODE, labels={"app": "train"})
    with SimulatedApiServer(cluster) as running:
        yield running


@pytest.fixture
def cluster(server):
    return server.cluster


@pytest.fixture
def bench(server):
    """A remediator in mode enforce, on a node that is well."""
    made = Bench(server.cluster, server.kubeconfig(), FakeClock(), settings())
    made.remediator.step()
    return made
