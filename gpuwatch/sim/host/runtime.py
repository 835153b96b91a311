"""Container runtime, toolkit, CDI and kubelet files of the simulated host, and what the GPU operator has noted."""

from gpuwatch.sim.host.files import Files
from gpuwatch.sim.node import Node


def runtime(node: Node) -> Files:
    """The files."""
    return {}
