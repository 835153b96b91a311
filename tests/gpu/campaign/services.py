"""The stages that run gpuwatch's long-running processes: what they cost beside a peer, and what they attribute."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpuwatch.model.workload import Allocation, Workload
from gpuwatch.sim.surroundings.kubelet import SimKubelet
from gpuwatch.sim.surroundings.proctree import ProcTree, SimProcess
from tests.bench.measure import PROMETHEUS, cpu_per_minute, latencies, pss, scrape, scraping
from tests.gpu.campaign.activity import idle_gpu, load
from tests.gpu.campaign.commands import gpuwatch
from tests.gpu.campaign.reads import open_driver
from tests.gpu.campaign.report import Findings
from tests.waiting import until

START_SECONDS = 20.0
COST_SECONDS = float(os.environ.get("GPUWATCH_CAMPAIGN_COST", "24"))
SCRAPE_EVERY = 4.0
ROUNDS = 100
ENERGY_SECONDS = 8.0
MOST_PSS_MIB = 52.0
SAMPLE = re.compile(rb"^(\w+)(\{[^\n]*\})? (\S+)$", re.MULTILINE)


def page(port: int) -> bytes:
    """The metrics of a process; empty while it does not answer."""
    with contextlib.suppress(OSError, AssertionError), socket.create_connection(("127.0.0.1", port), 5) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        received = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        return received.partition(b"\r\n\r\n")[2] if b" 200 " in received[:20] else b""
    return b""


def total(text: bytes, family: str) -> float | None:
    """The sum of a family's series on a page."""
    values = [float(value) for name, _, value in SAMPLE.findall(text) if name.decode() == family]
    return sum(values) if values else None


@contextlib.contextmanager
def process(command: Sequence[str], log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """A Python module as a process, ended with SIGTERM."""
    with log.open("ab") as output:
        running = subprocess.Popen(
            [sys.executable, "-m", *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        yield running
    finally:
        running.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            running.wait(8)


@contextlib.contextmanager
def agent(work: Path, name: str, config: dict[str, object]) -> "Iterator[tuple[subprocess.Popen[bytes], int, Path]]":
    """The agent with state and socket of its own: process, port, configuration file."""
    place, port = work / name, _free_port()
    place.mkdir()
    settings: dict[str, object] = {
        "state_dir": str(place / "state"),
        "agent": {"listen": f"127.0.0.1:{port}", "socket": str(place / "agent.sock"), "interval": 1.0},
        **config,
    }
    (place / "state").mkdir()
    file = place / "gpuwatch.yaml"
    file.write_text(json.dumps(settings), encoding="utf-8")
    with process(("gpuwatch", "--config", str(file), "agent"), work / "logs" / f"{name}-agent.log") as running:
        yield running, port, file


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def exporters(work: Path, findings: Findings) -> None:
    """gpuwatch's agent and nvitop-exporter side by side: `expected` is at most the peer's figure."""
    peer_port = _free_port()
    began = time.monotonic()
    with agent(work, "exporters", {}) as (ours, port, _):
        first = until(
            lambda: page(port).count(b"gpuwatch_gpu_info{") and time.monotonic() - began, "agent", START_SECONDS
        )
        began = time.monotonic()
        peer_command = ("nvitop_exporter", "--port", str(peer_port), "--bind-address", "127.0.0.1")
        with process(peer_command, work / "logs/nvitop.log") as peer:
            peer_first = until(
                lambda: b"gpu_temperature" in page(peer_port) and time.monotonic() - began, "nvitop", START_SECONDS
            )
            findings.between("first page, s", 0, peer_first, first, "expected: at most nvitop-exporter's")
            urls = [f"http://127.0.0.1:{number}/metrics" for number in (port, peer_port)]
            for form, headers in (("plain", None), ("as Prometheus asks", PROMETHEUS)):
                (p50, p99), (peer50, peer99) = latencies(urls, ROUNDS, headers)
                findings.between(
                    f"scrape p50, {form}, ms", 0, peer50, p50, f"p99 {p99:.2f}; nvitop-exporter {peer99:.2f}"
                )
            samples = [
                sum(not line.startswith(b"#") for line in page(number).splitlines()) for number in (port, peer_port)
            ]
            findings.add("samples on a page", "", samples[0], "unknown", f"nvitop-exporter {samples[1]}")
            with scraping(urls, SCRAPE_EVERY):
                time.sleep(2 * SCRAPE_EVERY)  # by then the agent has learnt the rhythm
                cpu, peer_cpu = cpu_per_minute((ours.pid, peer.pid), COST_SECONDS)
            findings.between(
                "CPU s a minute, at 2 samples for each scrape", 0, peer_cpu, cpu, "expected: at most nvitop-exporter's"
            )
            own, other = pss(ours.pid), pss(peer.pid)
            findings.between(
                "PSS of agent and reader, MiB", 0, MOST_PSS_MIB, sum(own), f"{own}; nvitop-exporter {sum(other):.0f}"
            )
            (work / "captures/metrics.txt").write_bytes(page(port))
            findings.add("bytes of a page, gzip", "", scrape(urls[0], PROMETHEUS).size, "unknown", "")


def attribution(work: Path, findings: Findings) -> None:
    """Memory and energy of a load that the agent takes for a pod; kubelet and /proc are simulated, the GPU is not."""
    reader = idle_gpu(open_driver())
    if reader is None:
        findings.add("a GPU to load", "one without MIG and processes", "none", "unknown")
        return
    pod = Workload(namespace="campaign", pod="load", container="main", pod_uid=f"{1:032x}")
    place = work / "attribution-node"
    place.mkdir()
    uuid = reader.identity.uuid
    tree = ProcTree(place)
    sources = {"kmsg": str(place / "kmsg"), "pod_resources": str(place / "kubelet.sock"), "proc": str(place / "proc"),
               "pod_logs": str(place / "log/pods"), "pod_resources_interval": 1.0}  # fmt: skip
    with SimKubelet(place / "kubelet.sock") as kubelet, load("fp32", uuid, 60) as running:
        named = Workload(namespace=pod.namespace, pod=pod.pod, container=pod.container)
        kubelet.show([Allocation(workload=named, resource="nvidia.com/gpu", device_ids=(uuid,))])
        try:
            allocated = running.ready()["allocated"]
        except RuntimeError as error:
            findings.add("the load", "runs", str(error), "unknown")
            return
        tree.show([SimProcess(pid=running.process.pid, workload=pod)], pods=[pod])
        with agent(work, "attribution", {"sources": sources}) as (_, port, _):
            energy, memory = "gpuwatch_pod_gpu_energy_joules_total", "gpuwatch_pod_gpu_memory_bytes"
            with contextlib.suppress(AssertionError):
                until(lambda: total(page(port), energy), "energy of the pod", START_SECONDS / 2, 0.1)
            before = page(port)
            time.sleep(ENERGY_SECONDS)
            after = page(port)
            used = total(after, memory)
            findings.between(
                "memory of the pod, bytes", allocated, allocated + (2 << 30), used, "allocated, and CUDA's context"
            )
            board = [total(text, "gpuwatch_gpu_energy_joules_total") for text in (before, after)]
            own = [total(text, energy) for text in (before, after)]
            spent = board[1] - board[0] if None not in board else None  # type: ignore[operator]
            found = own[1] - own[0] if None not in own else None  # type: ignore[operator]
            note = (
                "the pod is alone on its GPU; other GPUs' energy counts against it"
                if page(port).count(b"gpuwatch_gpu_info{") > 1
                else ""
            )
            findings.near(
                "energy of the pod, J", spent, found, 0.05 * (spent or 0), note or "the board's energy counter"
            )
            (work / "captures/attribution.txt").write_bytes(after)


def tuner(work: Path, findings: Findings) -> None:
    """A tuner in mode observe follows the agent: its cycle runs, and nothing is set or recorded."""
    port = _free_port()
    with agent(work, "tuner", {"tuning": {"mode": "observe", "listen": f"127.0.0.1:{port}"}}) as (_, agent_port, file):
        until(lambda: b"gpuwatch_gpu_info{" in page(agent_port), "agent", START_SECONDS)
        with process(("gpuwatch", "--config", str(file), "tuner"), work / "logs/tuner-tuner.log"):
            seen: set[float | None] = set()
            family = "gpuwatch_tuner_view_timestamp_seconds"
            with contextlib.suppress(AssertionError):
                until(
                    lambda: seen.add(total(page(port), family)) or len(seen - {None, 0.0}) >= 3,
                    "three cycles",
                    START_SECONDS,
                    0.2,
                )
            text = page(port)
            findings.between("cycles with a newer View", 3, 1000, len(seen - {None, 0.0}))
            mode = re.findall(rb'tuner_mode\{mode="(\w+)"\} 1', text)
            findings.add("mode", "observe", b" ".join(mode).decode(), "pass" if mode == [b"observe"] else "differs")
            findings.between("settings changed", 0, 0, total(text, "gpuwatch_tuner_actions_total") or 0.0)
            states = [
                line.decode()
                for line in text.splitlines()
                if line.startswith(b"gpuwatch_tuner_state{") and line.endswith(b" 1")
            ]
            findings.add(
                "state of each GPU", "one a GPU", len(states), "pass" if states else "differs", "; ".join(states)
            )
            done = gpuwatch("--config", str(file), "tune", "status")
            findings.add(
                "tune status", "exit status 0 or 3", done.returncode, "pass" if done.returncode in (0, 3) else "differs"
            )
    record = [path.name for path in (work / "tuner/state").iterdir() if path.name.startswith("actuation")]
    findings.add("record of settings", "none", record or "none", "differs" if record else "pass")
