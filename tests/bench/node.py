"""The node that is measured: fake driver, kubelet, /proc and pods, with both exporters on it."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gpuwatch.model.workload import Allocation, Workload
from gpuwatch.sim.surroundings.kubelet import SimKubelet
from gpuwatch.sim.surroundings.proctree import ProcTree, SimProcess
from tests.e2e.processes import Agent, agent, fetch, running
from tests.fakes.libnvml import FakeDriver, FakeMig, FakeProcess
from tests.ports import free_port
from tests.waiting import until

GIB = 1 << 30
KMSG = "/dev/kmsg"
SLICES = 7


class Shape(NamedTuple):
    """A kind of node. `mig`: each GPU is cut into seven; `pods`: how many share the GPUs (None: one per device)."""

    name: str
    gpus: int = 8
    mig: bool = False
    pods: int | None = None


class Node:
    """A node of some shape, as gpuwatch and its peers find it. Every pod has one process, and that one is real.
    `interval`: the agent's, in seconds.
    """

    def __init__(self, place: Path, shape: Shape, stack: contextlib.ExitStack, interval: float = 1.0) -> None:
        self.place, self.shape, self.interval = place, shape, interval
        self.driver = stack.enter_context(FakeDriver(place / "driver", gpus=shape.gpus))
        devices = self._devices()
        count = shape.pods or len(devices)
        self._sleepers = stack.enter_context(_sleepers(count))
        pods = [
            Workload(namespace="ml", pod=f"train-{i}-7d9f8b6c5-x{i:04}", container="main", pod_uid=f"{i:032x}")
            for i in range(count)
        ]
        kubelet = stack.enter_context(SimKubelet(place / "kubelet/kubelet.sock"))
        kubelet.show([self._allocation(pod, devices[i % len(devices)][2], i) for i, pod in enumerate(pods)])
        tree = ProcTree(place)
        tree.show([SimProcess(pid=p, workload=w) for p, w in zip(self._sleepers, pods, strict=True)], pods=pods)
        self._occupy(devices)

    @property
    def config(self) -> dict[str, object]:
        """Where gpuwatch finds this node's parts."""
        return {
            "agent": {"interval": self.interval},
            "sources": {
                # the real one, as a file in its place would be polled; without the right to read it: none
                **({"kmsg": KMSG} if os.access(KMSG, os.R_OK) else {"disabled": ["kmsg"]}),
                "pod_resources": str(self.place / "kubelet/kubelet.sock"),
                "proc": str(self.place / "proc"),
                "sys": str(self.place / "no-sys"),
                "pod_logs": str(self.place / "log/pods"),
            },
        }

    def _devices(self) -> list[tuple[int, int | None, str]]:
        """(GPU, instance, id) of everything a pod can have."""
        uuids = [str(self.driver.get(gpu, "uuid")) for gpu in range(self.shape.gpus)]
        if not self.shape.mig:
            return [(gpu, None, uuid) for gpu, uuid in enumerate(uuids)]
        for gpu in range(self.shape.gpus):
            cut = [FakeMig(gi=7 + i, uuid=_mig_uuid(gpu, i), memory_used=4 * GIB) for i in range(SLICES)]
            self.driver.set_mig(gpu, cut)
        return [(gpu, 7 + i, _mig_uuid(gpu, i)) for gpu in range(self.shape.gpus) for i in range(SLICES)]

    def _allocation(self, pod: Workload, device: str, number: int) -> Allocation:
        device_id = f"{device}::{number}" if self.shape.pods else device
        resource = "nvidia.com/mig-1g.10gb" if self.shape.mig else "nvidia.com/gpu"
        named = Workload(namespace=pod.namespace, pod=pod.pod, container=pod.container)
        return Allocation(workload=named, resource=resource, device_ids=(device_id,))

    def _occupy(self, devices: list[tuple[int, int | None, str]]) -> None:
        """One process of each pod on its device."""
        of_gpu: dict[int, list[FakeProcess]] = {}
        for number, pid in enumerate(self._sleepers):
            gpu, instance, _ = devices[number % len(devices)]
            place = {} if instance is None else {"gi": instance, "ci": 0}
            of_gpu.setdefault(gpu, []).append(FakeProcess(pid=pid, memory=GIB, sm=40, **place))
        for gpu, processes in of_gpu.items():
            self.driver.set_processes(gpu, processes)
            self.driver.set(gpu, util_gpu=80, power_mw=550_000, memory_used=40 * GIB)


@contextlib.contextmanager
def _sleepers(count: int) -> Iterator[list[int]]:
    processes = [subprocess.Popen(["sleep", "3600"]) for _ in range(count)]
    try:
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()


def _mig_uuid(gpu: int, instance: int) -> str:
    return f"MIG-{gpu:08x}-{instance:04x}-5c1b-9d1e-7e6d5c4b3a29"


class Exporter(NamedTuple):
    """A running exporter: root of its process tree, its page, seconds from start to the first complete page."""

    pid: int
    url: str
    started: float


CALL_SECONDS = 1 / 2743
"""A call of the driver: 2,743 readings of power were counted in a second (wookayin/gpustat#76)."""

PCIE_SECONDS = 0.02
"""nvmlDeviceGetPcieThroughput counts for 20 ms before it answers (NVML's reference)."""


def take_time(driver: FakeDriver) -> None:
    """Every call takes as long as a real one; in it the caller waits, as it does for an ioctl, and uses no CPU."""
    driver.delay(CALL_SECONDS)
    driver.delay(PCIE_SECONDS, "nvmlDeviceGetPcieThroughput")


@contextlib.contextmanager
def gpuwatch(node: Node, name: str = "gpuwatch") -> Iterator[Exporter]:
    """The agent as people start it."""
    start = time.monotonic()
    source = ("--source", "nvml", "--nvml-library", str(node.driver.library))
    with agent(node.place / name, source=source, config=node.config, env=node.driver.env) as found:
        yield _first(found, b"gpuwatch_gpu_temperature_celsius{", start, node.shape.gpus)


@contextlib.contextmanager
def nvitop_exporter(node: Node) -> Iterator[Exporter]:
    """The peer on the same library."""
    port, start = free_port(), time.monotonic()
    command = [str(Path(sys.executable).with_name("nvitop-exporter")), "--port", str(port)]
    command += ["--interval", f"{node.interval:g}"]
    with running(command, node.place / "nvitop-exporter.log", node.driver.env) as process:
        found = Agent(process, f"http://127.0.0.1:{port}", node.place, node.place / "nvitop-exporter.log")
        yield _first(found, b"gpu_temperature_C{", start, node.shape.gpus)


def _first(found: Agent, family: bytes, start: float, gpus: int) -> Exporter:
    url = f"{found.url}/metrics"
    until(lambda: (fetch(url) or b"").count(family) >= gpus, f"a page of {found.log.name}", step=0.005)
    return Exporter(found.process.pid, url, time.monotonic() - start)
