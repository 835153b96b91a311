"""A simulated API server over HTTP, and remediators before it whose clock is turned by hand."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from gpuwatch.model.finding import SchedulingLabel
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from tests.remediation.model.remediating import NAMESPACE, NODE, Bench, FakeClock, settings

Start = Callable[..., Bench]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def server(clock: FakeClock, tmp_path: Path) -> Iterator[SimulatedApiServer]:
    cluster = SimulatedCluster(clock)
    cluster.add_namespace(NAMESPACE)
    with SimulatedApiServer(cluster, folder=tmp_path) as running:
        yield running


@pytest.fixture
def start(server: SimulatedApiServer, clock: FakeClock) -> Start:
    """Return `start(user="admin", **remediation) -> Bench`: a node and its remediator."""

    def make(user: str = "admin", **changes: Any) -> Bench:
        if server.cluster.get("nodes", "", NODE) is None:
            server.cluster.add_node(NODE, gpus=4)
        everything = {"labels": get_args(SchedulingLabel), **changes}
        return Bench(server.cluster, server.kubeconfig(user), clock, settings(**everything))

    return make
