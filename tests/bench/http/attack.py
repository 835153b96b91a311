"""The agent's web server under attack, before and after a change, in one run: `python -m tests.bench.http.attack`.

`--before DIR` names a working tree of another commit, whose agent is attacked in the same way:
`git worktree add DIR COMMIT`. Both read the same fake driver; the memory part runs under the limit of the DaemonSet in
a memory cgroup of its own, where root can make one (v1).

The attackers are: 4 clients that pipeline as fast as they can, 200 that connect and say nothing, 1,000 that connect,
stay for a second and connect again (more than the agent holds: it closes others for them). A probe (a new connection
each time), a scrape (a kept one, as Prometheus has) and a View over the unix socket are timed beside them. Then 30
clients read the largest events answer (100,000 of a store at its own retention) again and again.
"""

import argparse
import contextlib
import http.client
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psutil

from gpuwatch.model.event import ActionEvent, Change, FindingEvent, Result
from gpuwatch.model.finding import Finding, Severity
from gpuwatch.model.xid import BusLossEvent, SxidEvent, XidEvent
from gpuwatch.storage.file import StoreFile
from gpuwatch.storage.rows import StoredEvent, row_of
from tests.bench.measure import PROMETHEUS, Scraper, cpu_per_minute, pss, scraping, table
from tests.bench.node import Node, Shape
from tests.e2e.processes import ROOT, fetch
from tests.ports import free_port
from tests.waiting import until

ATTACKERS = (("pipelining", 4), ("idle", 200), ("connecting", 1000))
READERS = 30
ROWS = 20_000
"""Of each kind: the store's own retention."""
LIMIT = 256 << 20
"""Of the agent's container in deploy/base."""
CGROUP = Path("/sys/fs/cgroup/memory")
PAUSE_SECONDS = 0.02
PATIENCE_SECONDS = 10.0
"""A probe that takes longer counts as this long; the kubelet gives up after five."""


class Running(NamedTuple):
    """An agent."""

    pid: int
    port: int
    socket: Path


def fill(state: Path) -> None:
    """A store at its own retention."""
    state.mkdir(parents=True)
    now = time.time()

    def events(number: int) -> Iterator[StoredEvent]:
        at, gpu = now - 86400 + number, f"GPU-{number % 8:08x}-5c1b-9d1e-7e6d-5c4b3a295c4b"
        message = (
            "NVRM: Xid (PCI:0000:0f:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000. MMU Fault: ENGINE"
        )
        boot = "b00d0000-0000-4000-8000-000000000000"
        yield XidEvent(at=at, xid=31, source="kernel", uuid=gpu, message=message, sequence=number, boot_id=boot)
        yield SxidEvent(
            at=at, sxid=22013, switch=1, severity="fatal", message=message, sequence=ROWS + number, boot_id=boot
        )
        yield BusLossEvent(at=at, pci="0000:0f:00.0", sequence=2 * ROWS + number, boot_id=boot)
        finding = Finding(
            check="xid_fatal", severity=Severity.CRITICAL, gpu=gpu, message=message, action="reset the GPU"
        )
        yield FindingEvent(at=at, change=Change.BEGAN, finding=finding, boot_id=boot)
        yield ActionEvent(
            at=at,
            actor="remediator",
            action="taint",
            target="node/gpu-7",
            result=Result.DONE,
            why=message,
            number=number,
        )

    file = StoreFile(state)
    for start in range(0, ROWS, 1000):
        file.put([row_of(event) for number in range(start, start + 1000) for event in events(number)], [])
    file.close()


@contextlib.contextmanager
def agent(node: Node, tree: Path, place: Path, cgroup: Path | None = None) -> Iterator[Running]:
    """The agent of a working tree, with its files in `place`; with `cgroup` in it."""
    place.mkdir(exist_ok=True)
    config = dict(node.config)
    if tree == ROOT:  # an older one does not know it
        config["agent"] = {**config["agent"], "api": "open"}  # type: ignore[dict-item]
    (place / "gpuwatch.yaml").write_bytes(msgspec.json.encode(config))
    port, sock = free_port(), place / "agent.sock"
    command = [sys.executable, "-m", "gpuwatch", "--config", str(place / "gpuwatch.yaml")]
    command += [
        "--source",
        "nvml",
        "--nvml-library",
        str(node.driver.library),
        "agent",
        "--listen",
        f"127.0.0.1:{port}",
    ]
    command += ["--socket", str(sock), "--state-dir", str(place / "state")]
    if cgroup is not None:
        command = ["sh", "-c", 'echo $$ > "$0"; exec "$@"', str(cgroup / "cgroup.procs"), *command]
    env = {**os.environ, **node.driver.env, "PYTHONPATH": str(tree)}
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tree, env=env, stdout=log, stderr=log)
    try:
        until(lambda: fetch(f"http://127.0.0.1:{port}/-/ready") or process.poll() is not None, "the agent is ready")
        assert process.poll() is None, (place / "log").read_text()
        yield Running(process.pid, port, sock)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


@contextlib.contextmanager
def attack(kind: str, port: int, number: int, output: Any = subprocess.DEVNULL) -> Iterator[None]:
    """Clients of a kind, for as long as the block runs."""
    command = [sys.executable, "-m", "tests.bench.http.clients", kind, str(port), str(number)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def probe(target: Running) -> None:
    """As the kubelet does: a connection for each."""
    client = http.client.HTTPConnection("127.0.0.1", target.port, timeout=PATIENCE_SECONDS)
    with contextlib.closing(client):
        client.request("GET", "/-/healthy")
        assert client.getresponse().read()


def unix(target: Running) -> None:
    """A View, as the remediator and the tuner ask for it."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE_SECONDS)
        client.connect(str(target.socket))
        client.sendall(b"GET /api/v1/view HTTP/1.0\r\n\r\n")
        while client.recv(1 << 20):
            pass


def latencies(target: Running, seconds: float) -> dict[str, list[float]]:
    """Seconds of each probe, scrape and View, in turns."""
    scraper = Scraper(f"http://127.0.0.1:{target.port}/metrics", PROMETHEUS)
    asks: dict[str, Callable[[], object]] = {
        "probe": lambda: probe(target), "scrape": scraper.scrape, "unix socket": lambda: unix(target)
    }  # fmt: skip
    taken: dict[str, list[float]] = {name: [] for name in asks}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, ask in asks.items():
            start = time.perf_counter()
            try:
                ask()
            except (OSError, http.client.HTTPException, AssertionError):
                scraper.close()
                taken[name].append(PATIENCE_SECONDS)
            else:
                taken[name].append(time.perf_counter() - start)
            time.sleep(PAUSE_SECONDS)
    scraper.close()
    return taken


def p99(seconds: list[float]) -> float:
    """In ms; of a few the slowest."""
    return sorted(seconds)[int(0.99 * len(seconds))] * 1e3


def attacked(target: Running, seconds: float) -> dict[str, float]:
    """p99 of each, in ms, without and beside the attackers."""
    with scraping((f"http://127.0.0.1:{target.port}/metrics",), 1.0):
        time.sleep(4)  # by then it is known when the next scrape comes
        found = {"CPU a minute, scraped every second": cpu_per_minute((target.pid,), seconds)[0]}
    for name, each in latencies(target, seconds / 2).items():
        found |= {f"{name} p50, quiet": statistics.median(each) * 1e3, f"{name} p99, quiet": p99(each)}
    with contextlib.ExitStack() as stack:
        for kind, number in ATTACKERS:
            stack.enter_context(attack(kind, target.port, number))
        time.sleep(2)
        for name, each in latencies(target, seconds).items():
            found[f"{name} p99, attacked"] = p99(each)
            found[f"{name}: tries, attacked"] = len(each)
    print(found, flush=True)
    return found


@contextlib.contextmanager
def limited(name: str) -> Iterator[Path | None]:
    """A memory cgroup with the limit of the agent's container; None where there can be none."""
    group = CGROUP / f"gpuwatch-attack-{name}-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(LIMIT))
    except OSError as error:
        print(f"no memory cgroup: {error}; the limit is not applied")
        yield None
        return
    try:
        yield group
    finally:
        until(lambda: not (group / "cgroup.procs").read_text(), "the cgroup is empty")
        group.rmdir()


def high_water(pid: int) -> float:
    """MiB of resident memory the process had at most since it was last reset."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def read_largest(target: Running, group: Path | None, seconds: float) -> dict[str, float]:
    """MiB at rest and at most, while the readers read."""
    fetch(f"http://127.0.0.1:{target.port}/metrics")
    time.sleep(5)
    Path(f"/proc/{target.pid}/clear_refs").write_text("5")  # resets VmHWM
    rest = high_water(target.pid)
    found = {"RSS at rest": rest}
    with tempfile.TemporaryFile("w+") as output:
        with attack("reading", target.port, READERS, output):
            time.sleep(seconds)
        output.seek(0)
        answers = [line.split() for line in output]
    counts = Counter(status for status, _ in answers)
    found["events answers given"] = counts["200"]
    found["largest events answer"] = max((int(size) for _, size in answers), default=0) / 2**20
    killed = psutil.Process(target.pid).status() == psutil.STATUS_ZOMBIE
    if group is not None:
        found["cgroup at most"] = int((group / "memory.max_usage_in_bytes").read_text()) / 2**20
        found["limit hit, times"] = int((group / "memory.failcnt").read_text())
    with contextlib.suppress(OSError, StopIteration, ValueError):
        found["RSS at most"] = high_water(target.pid)
        found["RSS at most / at rest"] = found["RSS at most"] / rest
        time.sleep(5)
        found["PSS 5 s later"] = pss(target.pid)[0]
    found["killed"] = killed
    print(found, flush=True)
    return found


AIMS = {
    "probe p99, attacked": 100.0, "scrape p99, attacked": 100.0, "unix socket p99, attacked": 50.0,
    "RSS at most / at rest": 2.0, "killed": 0.0,
}  # fmt: skip
UNITS = {
    "CPU": "s",
    "p50": "ms",
    "p99": "ms",
    "RSS at most / at rest": "",
    "RSS": "MiB",
    "cgroup": "MiB",
    "PSS": "MiB",
    "largest": "MiB",
}


def main() -> int:
    """Run it; 1 where an aim is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.http.attack", description=__doc__)
    parser.add_argument("--before", type=Path, help="a working tree of an older commit")
    parser.add_argument("--seconds", type=float, default=20.0, help="of attack")
    parser.add_argument(
        "--priority",
        type=int,
        default=0,
        help="-15 on a machine that others use; as root below `setsid --wait`, for nice values count within a session",
    )
    options = parser.parse_args()
    if options.priority:
        Path("/proc/self/autogroup").write_text(str(options.priority))
    trees = {"before": options.before.resolve()} if options.before else {}
    trees["after"] = ROOT
    found: dict[str, dict[str, float]] = {name: {} for name in trees}
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, priority {options.priority}", flush=True)
    with tempfile.TemporaryDirectory(prefix="attack-") as directory, contextlib.ExitStack() as stack:
        place = Path(directory)
        node = Node(place / "node", Shape("8 GPUs"), stack)
        for name, tree in trees.items():
            with agent(node, tree, place / f"attacked-{name}") as target:
                found[name] |= attacked(target, options.seconds)
        for name, tree in trees.items():
            there = place / f"read-{name}"
            fill(there / "state")
            with limited(name) as group, agent(node, tree, there, group) as target:
                found[name] |= read_largest(target, group, 2 * options.seconds)
    rows = []
    for what in dict.fromkeys(key for each in found.values() for key in each):
        aim, value = AIMS.get(what), found["after"].get(what)
        verdict = "" if aim is None else "met" if value is not None and value <= aim else "MISSED"
        unit = next((unit for start, unit in UNITS.items() if start in what), "")
        bound = "" if aim is None else f"<= {aim:g}"
        rows.append((what, *(each.get(what) for each in found.values()), unit, bound, verdict))
    table("The web server under attack", ("", *found, "unit", "aim", ""), rows)
    return int(any(row[-1] == "MISSED" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
