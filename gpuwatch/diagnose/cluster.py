"""What the API server tells of this node, with whatever right this process has."""

from gpuwatch.model.cluster import Cluster

__all__ = ["Cluster"]
