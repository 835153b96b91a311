"""Kernel, modules, libraries and device files of the simulated host."""

from gpuwatch.sim.host.files import Files
from gpuwatch.sim.node import Node


def machine(node: Node) -> Files:
    """The files."""
    return {}
