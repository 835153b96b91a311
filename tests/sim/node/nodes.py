"""Simulated nodes under a clock that tests turn by hand."""

from gpuwatch.sim import directory
from gpuwatch.sim.node.scenario import Scenario, parse
from gpuwatch.sim.nvml import SimNvml


class FakeClock:
    """Time that passes only when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return 1_700_000_000.0 + self.now

    def monotonic(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def scenario(model="h100", gpus=2, workloads=(), timeline=(), **node) -> Scenario:
    """A scenario written in place."""
    document = {
        "description": "a test",
        "node": {"model": model, "gpus": gpus, **node},
        "workloads": list(workloads),
        "timeline": list(timeline),
    }
    return parse(document, "test")


def work(*gpus, load="training", **rest):
    """One workload of a scenario."""
    return {"name": "ml/train-0", "gpus": list(gpus), "load": load, **rest}


def open_driver(path, of: Scenario, clock: FakeClock, seed: int = 1) -> SimNvml:
    """An initialized driver on a node of its own that nobody else hosts."""
    directory.create(path, of, seed, 1.0, clock).release()
    driver = SimNvml(directory.attach(path, clock))
    driver.nvmlInit()
    return driver
