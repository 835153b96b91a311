"""A simulated cluster behind HTTP and the writer of its one node, for the tests of the Kubernetes client."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from gpuwatch.kube.transport import Transport
from gpuwatch.remediation.service.node_writer import NodeWriter
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.server import SimulatedApiServer

NODE = "n1"
NAMESPACE = "gpuwatch"


class Served(NamedTuple):
    """One cluster, its server and who asks it."""

    cluster: SimulatedCluster
    server: SimulatedApiServer
    transport: Transport
    writer: NodeWriter


@contextmanager
def served() -> Iterator[Served]:
    """A node with a pod; everybody may do everything."""
    cluster = SimulatedCluster()
    cluster.add_node(NODE, labels={"nvidia.com/gpu.present": "true"})
    cluster.add_namespace(NAMESPACE)
    cluster.add_pod("ml", "train-0", node=NODE, labels={"app": "train"})
    with SimulatedApiServer(cluster) as server:
        transport = Transport(str(server.kubeconfig()))
        try:
            yield Served(cluster, server, transport, NodeWriter(transport, NODE))
        finally:
            transport.close()
