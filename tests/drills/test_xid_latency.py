"""From an XID to `/metrics`: within 100 ms, exactly once, on the right GPU and pod, whoever tells it.

`/metrics` is asked all the time, so what is measured holds the scrape's own time too.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.model.workload import Allocation, Workload
from gpuwatch.sim.surroundings.kubelet import SimKubelet
from tests.drills.agent_process import AgentProcess
from tests.fakes.libnvml import FakeDriver

LIMIT_SECONDS = 0.1
FEW, RUNS = 9, 30
WINDOW_SECONDS = 1.0
"""Long enough for the other source to have been counted, had it been counted twice."""
Start = Callable[..., AgentProcess]


class Kernel:
    """A kernel log in the form of /dev/kmsg, through a FIFO."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._sequence = 0

    def say(self, message: str) -> None:
        self._sequence += 1
        os.write(self._fd, f"4,{self._sequence},{int(time.monotonic() * 1e6)},-;{message}\n".encode())

    def xid(self, bus_id: str, code: int, rest: str = "pid='<unknown>', name=<unknown>, Ch 00000010") -> None:
        self.say(f"NVRM: Xid (PCI:{bus_id.lower()[4:-2]}): {code}, {rest}")

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    kernel = Kernel(tmp_path / "kmsg")
    yield kernel
    kernel.close()


def bus_id(driver: FakeDriver, gpu: int) -> str:
    return f"00000000:{driver.get(gpu, 'pci_bus'):02X}:00.0"


def count(agent: AgentProcess, uuid: str, code: int) -> float:
    return agent.value("gpuwatch_gpu_xid_errors_total", uuid=uuid, xid=code) or 0


def latencies(agent: AgentProcess, driver: FakeDriver, tell: Callable[[int, int], None], runs: int) -> list[float]:
    """Seconds for each of so many XIDs, over GPUs in turn, at other moments of the interval each time."""
    found = []
    for run in range(runs):
        gpu, code = run % 4, (31, 43, 45, 79)[run // 4 % 4]
        uuid = driver.get(gpu, "uuid")
        before = count(agent, uuid, code)
        since = time.monotonic()
        tell(gpu, code)
        agent.wait(lambda uuid=uuid, code=code, before=before: count(agent, uuid, code) == before + 1)
        found.append(time.monotonic() - since)
        time.sleep(0.037)
    return found


def tellers(driver: FakeDriver, kernel: Kernel) -> dict[str, Callable[[int, int], None]]:
    """Who tells of an XID."""
    return {"the event set": driver.xid, "a kernel line": lambda gpu, code: kernel.xid(bus_id(driver, gpu), code)}


@pytest.mark.parametrize("origin", ["the event set", "a kernel line"])
def test_most_xids_are_reported_within_a_tenth_of_a_second(
    driver: FakeDriver, start: Start, kernel: Kernel, origin: str
) -> None:
    agent = start(interval=1.0, kmsg=str(kernel.path))
    agent.wait_complete(4)
    found = latencies(agent, driver, tellers(driver, kernel)[origin], FEW)
    assert statistics.median(found) <= LIMIT_SECONDS + 2 * max(agent.noise)
    assert agent.value("gpuwatch_source_up", source="kmsg") == 1


@pytest.mark.slow  # 99 of 100, where the machine lets it; the median above holds the case
@pytest.mark.parametrize("origin", ["the event set", "a kernel line"])
def test_nearly_all_xids_are_reported_within_a_tenth_of_a_second(
    driver: FakeDriver, start: Start, kernel: Kernel, origin: str
) -> None:
    agent = start(interval=1.0, kmsg=str(kernel.path))
    agent.wait_complete(4)
    found = latencies(agent, driver, tellers(driver, kernel)[origin], RUNS)
    p50, p99 = statistics.median(found), statistics.quantiles(found, n=100)[98]
    print(f"XID from {origin} to /metrics: p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms, {len(found)} runs")
    print(f"the machine's own delays: up to {max(agent.noise) * 1e3:.1f} ms")
    assert p99 <= LIMIT_SECONDS + agent.grace()


@pytest.mark.parametrize("first", ["nvml", "kernel"])
def test_reported_by_both_it_counts_once(driver: FakeDriver, start: Start, kernel: Kernel, first: str) -> None:
    agent = start(kmsg=str(kernel.path))
    agent.wait_complete(4)
    uuid = driver.get(2, "uuid")
    told = tellers(driver, kernel).values()
    for tell in told if first == "nvml" else reversed(told):
        tell(2, 48)
        agent.wait(lambda: count(agent, uuid, 48) == 1)
    agent.wait(lambda: len(agent.get("/api/v1/events")["xids"]) == 1 and agent.get("/api/v1/events")["xids"][0]["also"])
    time.sleep(WINDOW_SECONDS)
    assert count(agent, uuid, 48) == 1
    (event,) = agent.get("/api/v1/events")["xids"]
    assert {event["source"], event["also"]} == {"nvml", "kernel"}
    assert event["source"] == first


def test_two_of_the_same_kind_count_twice(driver: FakeDriver, start: Start, kernel: Kernel) -> None:
    agent = start(kmsg=str(kernel.path))
    agent.wait_complete(4)
    for _ in range(2):
        driver.xid(1, 31)
        kernel.xid(bus_id(driver, 1), 31)
    uuid = driver.get(1, "uuid")
    agent.wait(lambda: count(agent, uuid, 31) >= 2)
    time.sleep(WINDOW_SECONDS)
    assert count(agent, uuid, 31) == 2


def test_a_gpu_that_has_vanished_still_shows_its_xid_and_its_pod(
    driver: FakeDriver, start: Start, kernel: Kernel, tmp_path: Path
) -> None:
    uuid = driver.get(3, "uuid")
    pod = Workload(namespace="ml", pod="train-0", container="main")
    kubelet = SimKubelet(tmp_path / "kubelet.sock")
    kubelet.show([Allocation(workload=pod, resource="nvidia.com/gpu", device_ids=(uuid,))])
    with kubelet:
        agent = start(kmsg=str(kernel.path), pod_resources=str(kubelet.path))
        agent.wait(lambda: agent.value("gpuwatch_gpu_workload_info", uuid=uuid, pod="train-0") == 1)
        driver.remove(3)
        driver.reload()
        agent.wait(lambda: agent.value("gpuwatch_gpu_lost", uuid=uuid) == 1)
        agent.wait(lambda: agent.value("gpuwatch_gpu_temperature_celsius", uuid=uuid) is None)
        since = time.monotonic()
        kernel.xid(bus_id(driver, 3), 79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
        agent.wait(lambda: count(agent, uuid, 79) == 1)
        took = time.monotonic() - since
        print(f"XID 79 of a vanished GPU to /metrics: {took * 1e3:.1f} ms")
        assert took <= LIMIT_SECONDS + agent.grace()
        assert agent.value("gpuwatch_gpu_workload_info", uuid=uuid, namespace="ml", pod="train-0") == 1
        (event,) = agent.get("/api/v1/events")["xids"]
        assert (event["uuid"], event["xid"]) == (uuid, 79)


def test_an_event_of_a_gpu_that_is_lost_in_the_same_moment(driver: FakeDriver, start: Start) -> None:
    agent = start()
    agent.wait_complete(4)
    driver.lose(0)
    driver.xid(0, 79)
    agent.wait(lambda: count(agent, driver.get(0, "uuid"), 79) == 1)
    (event,) = agent.get("/api/v1/events")["xids"]
    assert event["pci"] == "0000:0f:00"


def test_an_event_set_that_fails_for_one_lost_gpu_reports_the_others(driver: FakeDriver, start: Start) -> None:
    """As drivers do: the wait answers that a GPU is lost, whichever GPU it was asked for."""
    agent = start()
    agent.wait_complete(4)
    driver.lose(0)
    driver.error(15, "nvmlEventSetWait")  # NVML_ERROR_GPU_IS_LOST
    agent.wait(lambda: driver.calls("nvmlEventSetFree") >= 1)
    driver.clear()
    agent.wait(lambda: driver.in_flight("nvmlEventSetWait") == 1)
    driver.xid(1, 63)
    agent.wait(lambda: count(agent, driver.get(1, "uuid"), 63) == 1)


def test_a_storm_counts_every_xid_and_keeps_serving(driver: FakeDriver, start: Start, kernel: Kernel) -> None:
    agent = start(kmsg=str(kernel.path))
    agent.wait_complete(4)
    for number in range(400):
        kernel.xid(bus_id(driver, number % 4), 63, f"pid=7, name=python, Row Remapper: 0x{number:x}")
        time.sleep(0.001)
    for gpu in range(4):
        agent.wait(lambda gpu=gpu: count(agent, driver.get(gpu, "uuid"), 63) == 100)
    agent.serves_within(0.05)


@pytest.mark.slow  # the rate; tests/health/xid/test_ledger_storms.py holds the case
def test_a_killed_jobs_xids_from_both_sources_count_once_and_few_are_kept(
    driver: FakeDriver, start: Start, tmp_path: Path
) -> None:
    """11,000 at once: as many as the kernel log has, although the driver's queue holds 256 and loses some of them."""
    log = tmp_path / "log"
    log.touch()
    agent = start(kmsg=str(log))
    agent.wait_complete(4)
    uuid, address = driver.get(1, "uuid"), bus_id(driver, 1).lower()[4:-2]
    since = time.monotonic()
    with log.open("a") as file:
        for number in range(1, 11_001):
            file.write(
                f"4,{number},{int(time.monotonic() * 1e6)},-;NVRM: Xid (PCI:{address}): 45, pid=7, name=x, Ch 8\n"
            )
            driver.xid(1, 45)
    written = time.monotonic() - since
    agent.wait(lambda: count(agent, uuid, 45) >= 11_000)
    print(f"11,000 XIDs written in {written:.1f} s, counted after {time.monotonic() - since:.1f} s")
    agent.wait(lambda: len(agent.get("/api/v1/events")["xids"]) >= 100)
    time.sleep(WINDOW_SECONDS)
    assert count(agent, uuid, 45) == 11_000
    assert len(agent.get("/api/v1/events")["xids"]) <= 110
