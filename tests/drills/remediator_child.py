"""A remediator in a process of its own that is killed at one point.

Its clock is turned by hand, so that hours pass in a moment; store, API server and the kill are real.
"""

import os
import signal
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.config import RemediationConfig
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.storage.store import Store
from tests.remediation.model.remediating import START, Bench, FakeClock, fatal


class Orders(msgspec.Struct):
    """What the child is told."""

    kubeconfig: str
    state_dir: str
    config: RemediationConfig
    point: str  # the crash point at which it is killed
    sick: bool
    after: float  # seconds since the story began
    seconds: float = 300.0
    withheld: bool = False  # the device plugin has taken the sick GPU out


def bench(orders: Orders, cluster: Any, store: Store, **more: Any) -> Bench:
    """The remediator of the story, in whichever process."""
    clock = FakeClock()
    clock.go(orders.after)
    made = Bench(cluster, orders.kubeconfig, clock, orders.config, store, **more)
    made.views.withheld = ("GPU-0",) if orders.withheld else None
    made.finds(*([fatal(START)] if orders.sick else []))
    return made


def die(orders: Orders, log: Path) -> None:
    """Live until the point is passed; what it says, and that it survived, is in `log`."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)

    def checkpoint(name: str) -> None:
        if name == orders.point:
            os.kill(os.getpid(), signal.SIGKILL)

    store = Store.open(Path(orders.state_dir))
    bench(orders, SimulatedCluster(), store, checkpoint=checkpoint).run(orders.seconds)
    print(f"survived {orders.point}")
