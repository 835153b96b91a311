"""The Node object, its pods and what else the API server tells of the simulated host, as a recording."""

from gpuwatch.sim.host.files import Files
from gpuwatch.sim.node import Node


def cluster(node: Node) -> Files:
    """The files."""
    return {}
