"""What one agent costs: time to its first complete page, memory, CPU; and where the memory is.

    python -m tests.bench.agent_cost

PSS divides pages among all who map them, so beside a benchmark that maps the same files the agent looks smaller than it
is on a node. `alone` counts what the agent and its reader would take if nobody else ran the same libraries.
"""

import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import psutil

from gpuwatch.model.workload import Allocation, Workload
from gpuwatch.sim.surroundings.kubelet import SimKubelet
from tests.e2e.processes import agent as running
from tests.e2e.processes import fetch
from tests.fakes.libnvml import FakeDriver
from tests.waiting import until

GPUS = 8
INTERVAL = 1.0
WARM_SECONDS = 5.0
CPU_SECONDS = 10.0
_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ (\S+) \S+ \S+\s*(.*)$")


class Mapped(NamedTuple):
    """One mapping of a process, in KiB: pages of its own and pages of the file."""

    path: str
    offset: str
    anonymous: int
    of_file: int


def mappings(pid: int) -> list[Mapped]:
    """Every mapping of a process (/proc/PID/smaps)."""
    found: list[Mapped] = []
    path, offset, rss = "", "", 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if start := _MAPPING.match(line):
            offset, path = start[1], start[2]
        elif line.startswith("Rss:"):
            rss = int(line.split()[1])
        elif line.startswith("Anonymous:"):
            own = int(line.split()[1])
            found.append(Mapped(path, offset, own, rss - own))
    return found


def alone(pids: Iterable[int]) -> float:
    """MiB that these processes would take on a machine of their own: a file's pages count once for all of them."""
    anonymous, files = 0, defaultdict[tuple[str, str], int](int)
    for pid in pids:
        for mapping in mappings(pid):
            anonymous += mapping.anonymous
            key = (mapping.path, mapping.offset)
            files[key] = max(files[key], mapping.of_file)
    return (anonymous + sum(files.values())) / 1024


def breakdown(pids: Mapping[str, int], top: int = 6) -> list[tuple[str, float]]:
    """MiB by what it is: pages of each process's own, then the largest files."""
    rows = [(f"{name}, own", sum(m.anonymous for m in mappings(pid)) / 1024) for name, pid in pids.items()]
    files: dict[str, int] = {}
    for pid in pids.values():
        of_process = defaultdict[str, int](int)
        for mapping in mappings(pid):
            of_process[Path(mapping.path).name] += mapping.of_file
        files |= {name: max(size, files.get(name, 0)) for name, size in of_process.items()}
    largest = sorted(files.items(), key=lambda item: -item[1])[:top]
    return rows + [(name, size / 1024) for name, size in largest]


def pss(pid: int) -> float:
    """MiB (/proc/PID/smaps_rollup)."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.findall(r"^Pss:\s+(\d+)", rollup, re.M)[0]) / 1024


def cpu_per_minute(pids: Iterable[int], seconds: float = CPU_SECONDS) -> list[float]:
    """CPU seconds a minute of each process."""
    processes = [psutil.Process(pid) for pid in pids]

    def used() -> list[float]:
        return [times.user + times.system for times in (process.cpu_times() for process in processes)]

    before, start = used(), time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - start
    return [(after - was) * 60 / passed for after, was in zip(used(), before, strict=True)]


def main() -> None:
    """Print all of it for eight GPUs with a pod each."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        with FakeDriver(place / "driver", gpus=GPUS) as driver, SimKubelet(place / "kubelet.sock") as kubelet:
            pods = [Workload(namespace="ml", pod=f"train-{gpu}", container="main") for gpu in range(GPUS)]
            uuids = [driver.get(gpu, "uuid") for gpu in range(GPUS)]
            kubelet.show(
                Allocation(workload=pod, resource="nvidia.com/gpu", device_ids=(uuid,))
                for pod, uuid in zip(pods, uuids, strict=True)
            )
            sources = {"pod_resources": str(kubelet.path), "disabled": ["kmsg"]}
            config = {"agent": {"interval": INTERVAL}, "sources": sources}
            options = ("--source", "nvml", "--nvml-library", str(driver.library))
            started = time.monotonic()
            with running(place / "agent", source=options, config=config, env=driver.env) as agent:
                temperatures = b'sensor="gpu"} '
                until(lambda: (fetch(f"{agent.url}/metrics") or b"").count(temperatures) == GPUS, step=0.005)
                print(f"first complete page after {time.monotonic() - started:.2f} s")
                until(lambda: agent.page().count(b"\ngpuwatch_gpu_workload_info{") == GPUS)
                time.sleep(WARM_SECONDS)
                (reader,) = psutil.Process(agent.process.pid).children()
                pids = {"agent": agent.process.pid, "reader": reader.pid}
                print("PSS " + ", ".join(f"{name} {pss(pid):.1f}" for name, pid in pids.items()) + " MiB")
                print(f"alone on a machine {alone(pids.values()):.1f} MiB:")
                for name, size in breakdown(pids):
                    print(f"  {size:5.1f}  {name}")
                cpu = cpu_per_minute(pids.values())
                print(
                    "CPU "
                    + ", ".join(f"{n} {c:.2f}" for n, c in zip(pids, cpu, strict=True))
                    + " s a minute, unscraped"
                )


if __name__ == "__main__":
    main()
