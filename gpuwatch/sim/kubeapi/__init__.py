"""A Kubernetes API server in a box, for the official client, curl and kubectl: nodes, pods, leases, evictions, ..."""

from gpuwatch.sim.kubeapi.access import Rule
from gpuwatch.sim.kubeapi.cluster import Cluster
from gpuwatch.sim.kubeapi.controllers import NodeLifecycle, ReplicaSets, Scheduler, TaintEviction
from gpuwatch.sim.kubeapi.faults import ApiFaults
from gpuwatch.sim.kubeapi.message import Object, Request, Response
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from gpuwatch.sim.kubeapi.status import ApiError
from gpuwatch.sim.kubeapi.store import Key, Write

__all__ = [
    "ApiError",
    "ApiFaults",
    "Cluster",
    "Key",
    "NodeLifecycle",
    "Object",
    "ReplicaSets",
    "Request",
    "Response",
    "Rule",
    "Scheduler",
    "SimulatedApiServer",
    "TaintEviction",
    "Write",
]
