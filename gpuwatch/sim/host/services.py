"""Daemons, sockets and ports of the simulated host."""

from gpuwatch.sim.host.files import Files
from gpuwatch.sim.node import Node


def services(node: Node) -> Files:
    """The files."""
    return {}
