"""From the agent's start to the first complete page it takes less than a second."""

import time
from pathlib import Path

import psutil
import pytest

from gpuwatch.sim.fakelib import FakeDriver
from tests.e2e.processes import agent, fetch, series
from tests.waiting import until

GPUS = 8
TRIES = 6  # the best counts: not all that a busy machine costs is known
LIMIT_SECONDS = 1.0
WANTED = ("gpuwatch_gpu_temperature_celsius", "gpuwatch_gpu_power_watts", "gpuwatch_gpu_health", "gpuwatch_node_health")


def complete(page):
    """Whether every GPU and the node are judged and every GPU's readings are there."""
    if b"gpuwatch_gpu_health{" not in page:
        return False
    seen = {}
    for found in series(page):
        seen.setdefault(found.name, set()).add(dict(found.labels).get("gpu"))
    return all(len(seen.get(name, ())) == (1 if "node" in name else GPUS) for name in WANTED)


def in_line(pid):
    """Seconds for which a process and its children stood in line for a processor, each by its longest waiting thread,
    as far as Linux tells.
    """
    pids = (pid, *(child.pid for child in psutil.Process(pid).children(recursive=True)))
    threads = (
        [file.read_text().split()[1] for file in Path(f"/proc/{each}/task").glob("*/schedstat")] for each in pids
    )
    return sum(max(map(int, told), default=0) for told in threads) / 1e9


def first_page(directory, **options):
    """Seconds from the process' start, but for those that others had the processors."""
    started = time.monotonic()
    with agent(directory, **options) as found:
        until(lambda: complete(fetch(f"{found.url}/metrics") or b""), "a complete page", step=0.005)
        return time.monotonic() - started - in_line(found.process.pid)


@pytest.mark.parametrize("source", ["simulator", "library"])
def test_a_complete_page_comes_within_a_second(tmp_path, source, capsys):
    taken = []
    for number in range(TRIES):
        if taken and min(taken) < LIMIT_SECONDS:
            break
        if source == "simulator":
            taken.append(first_page(tmp_path / str(number), source=("--source", "sim")))
            continue
        with FakeDriver(tmp_path / f"driver-{number}", gpus=GPUS) as driver:
            options = ("--source", "nvml", "--nvml-library", str(driver.library))
            taken.append(first_page(tmp_path / str(number), source=options, env=driver.env))
    with capsys.disabled():
        print(f"\nfirst complete /metrics of {GPUS} GPUs ({source}): {', '.join(f'{t:.2f}' for t in taken)} s")
    assert min(taken) < LIMIT_SECONDS


def test_a_pod_without_the_drivers_library_serves_on_and_says_what_is_missing(tmp_path):
    """No runtime class, and no kubelet socket either: a pod that ends is only started again and tells nobody."""
    config = {
        "agent": {"wait_for_driver": True, "interval": 0.5},
        "sources": {"pod_resources": str(tmp_path / "nowhere/kubelet.sock")},
    }
    with agent(
        tmp_path, source=("--source", "nvml"), config=config, env={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    ) as found:
        until(lambda: b'gpuwatch_source_up{source="nvml"' in (fetch(f"{found.url}/metrics") or b""), "a page")
        until(lambda: b'gpuwatch_source_up{source="podresources"' in found.page(), "the kubelet was looked for")
        assert fetch(f"{found.url}/-/healthy")
        assert not fetch(f"{found.url}/-/ready")
        up = {
            dict(row.labels)["source"]: value for row, value in series(found.page()).items() if "source_up" in row.name
        }
        assert up["nvml"] == up["podresources"] == 0
        until(lambda: "is mounted" in found.log.read_text(), "both are in the log")
        told = found.log.read_text()
        assert found.process.poll() is None
    assert "Library Not Found" in told
    assert "runtimeClassName" in told
    assert told.count("runtimeClassName") == 1, "said once, however often it is looked for"


def test_without_a_library_and_without_waiting_it_ends_with_5(tmp_path):
    with agent(tmp_path, source=("--source", "nvml")) as found:
        assert found.process.wait(20) == 5
        assert "try --source sim" in found.log.read_text()
