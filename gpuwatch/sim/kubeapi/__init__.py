"""A simulated Kubernetes API server: nodes, pods, leases, events, budgets and evictions, as gpuwatch asks for them."""

from gpuwatch.sim.kubeapi.access import AccessRule
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.controllers import NodeLifecycle, ReplicaSets, Scheduler
from gpuwatch.sim.kubeapi.faults import ApiFaults
from gpuwatch.sim.kubeapi.messages import ApiError, ApiRequest, ApiResponse, Object
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from gpuwatch.sim.kubeapi.store import CommittedWrite, ObjectKey

__all__ = [
    "AccessRule",
    "ApiError",
    "ApiFaults",
    "ApiRequest",
    "ApiResponse",
    "CommittedWrite",
    "NodeLifecycle",
    "Object",
    "ObjectKey",
    "ReplicaSets",
    "Scheduler",
    "SimulatedApiServer",
    "SimulatedCluster",
]
