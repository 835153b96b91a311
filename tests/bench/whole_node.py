"""What all of gpuwatch costs a node: `python -m tests.bench.whole_node`.

Two sets of processes on eight busy GPUs of the fake driver, each with a pod, scraped every 15 s: what a fleet of fault
agents has (agent, reader, remediator), and everything that can be switched on (with tuner, guard and consents, all in
mode enforce). Memory is what the set would take on a machine of its own: its own pages, and each file's pages once.
"""

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from gpuwatch.host.machine import boot_id_file
from gpuwatch.sim.kubeapi.cluster import ADMIN
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from tests.bench.agent_cost import alone
from tests.bench.measure import Compared, at_most, cpu_seconds, scraping, show, tree
from tests.bench.node import Node, Shape, gpuwatch
from tests.cluster.simulated import Simulated
from tests.e2e.processes import fetch, running

START = """
from pathlib import Path
from gpuwatch.kube import credentials
credentials.SERVICE_ACCOUNT = Path({token!r})
from gpuwatch.cli.main import main
main()
"""
NODE, NAMESPACE = "gpu-1", "gpuwatch"
SCRAPED_EVERY = 15.0
SETTLE_SECONDS = 45.0
"""Three scrapes: an agent then knows when the next one comes, and every other process has begun its rounds."""

MEASURED_SECONDS = 60.0
ROLES = {
    "remediator": ("remediator",),
    "tuner": ("tuner",),
    "guard": ("tuner", "--guard"),
    "consents": ("tuner", "--consents"),
}


@contextlib.contextmanager
def roles(
    node: Node, names: tuple[str, ...], agent_socket: Path, server: SimulatedApiServer
) -> Iterator[dict[str, int]]:
    """Pids of the processes beside the agent, by name; who needs the API server has the files of a pod for it."""
    (node.place / "token").write_text(server.cluster.access.token_of(ADMIN) or "")
    in_pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}
    start = START.format(token=str(node.place / "token"))
    file, state = node.place / "roles.json", node.place / "state"
    settings = {
        **node.config,
        "agent": {"interval": node.interval, "socket": str(agent_socket)},
        "state_dir": str(state),
        "remediation": {
            "mode": "enforce",
            "budget": {"max_unavailable": 1, "namespace": NAMESPACE},
            "listen": "127.0.0.1:0",
        },
        "tuning": {"mode": "enforce", "work_class": "batch", "listen": "127.0.0.1:0"},
    }
    file.write_text(json.dumps(settings))
    with contextlib.ExitStack() as stack:
        pids = {}
        for name in names:
            command = [sys.executable, "-c", start, "--config", str(file)]
            command += ["--nvml-library", str(node.driver.library), *ROLES[name]]
            command += ["--node-name", NODE] if name in ("remediator", "consents") else []
            process = running(command, node.place / f"{name}.log", node.driver.env | in_pod)
            pids[name] = stack.enter_context(process).pid
        yield pids


def cost(names: tuple[str, ...], interval: float) -> tuple[float, float, dict[str, float]]:
    """MiB and CPU seconds a minute of the agent with these processes beside it; CPU seconds a minute of each."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        node = Node(folder, Shape("8 GPUs"), stack, interval)
        boot_id = boot_id_file(folder / "proc")
        boot_id.parent.mkdir(parents=True)
        boot_id.write_text("4f3b1a52-6d0e-4c8e-9a39-0d6f5b0c7e11\n")
        server = stack.enter_context(Simulated(folder))
        (folder / "ca.crt").write_bytes(server.ca_file.read_bytes())
        ours = stack.enter_context(gpuwatch(node))
        cluster = server.cluster
        cluster.add_namespace(NAMESPACE)
        host = json.loads(fetch(ours.url.replace("/metrics", "/api/v1/view")) or b"")["snapshot"]["host"]
        cluster.add_node(NODE, boot_id=host["boot_id"], machine_id=host.get("machine_id", ""))
        socket = folder / "gpuwatch" / "agent.sock"
        pids = {"agent and reader": ours.pid, **stack.enter_context(roles(node, names, socket, server))}
        stack.enter_context(scraping((ours.url,), SCRAPED_EVERY))
        time.sleep(SETTLE_SECONDS)
        for name, pid in pids.items():
            assert psutil.pid_exists(pid), f"{name} has ended:\n{(folder / f'{name}.log').read_text()}"
        conditions = {each["type"] for each in cluster.get("nodes", "", NODE)["status"].get("conditions", ())}
        assert "GPUHealthy" in conditions, (folder / "remediator.log").read_text()
        assert "consents" not in pids or list((folder / "state").glob("consents*")), (
            folder / "consents.log"
        ).read_text()
        before, began = {name: cpu_seconds(pid) for name, pid in pids.items()}, time.monotonic()
        time.sleep(MEASURED_SECONDS)
        minutes = (time.monotonic() - began) / 60
        used = {name: (cpu_seconds(pid) - before[name]) / minutes for name, pid in pids.items()}
        memory = alone(process.pid for pid in pids.values() for process in tree(pid))
    return memory, sum(used.values()), used


def main() -> None:
    """Print both sets."""
    os.environ |= {"NODE_NAME": NODE, "MALLOC_ARENA_MAX": "1"}  # for every process, as manifests and image have it
    for title, names, interval, most_mib, most_cpu in (
        ("agent, reader and remediator, a sample every 15 s", ("remediator",), SCRAPED_EVERY, 84, 0.25),
        ("everything on, a sample every second, as the tuner needs it", tuple(ROLES), 1.0, 170, 2.0),
    ):
        memory, cpu, used = cost(names, interval)
        rows = [
            at_most("memory of all", memory, None, "MiB", most_mib),
            at_most("CPU a minute of all", cpu, None, "s", most_cpu),
        ]
        rows += [Compared(f"CPU a minute, {name}", seconds, None, "s") for name, seconds in used.items()]
        show(title, rows, "peer")


if __name__ == "__main__":
    main()
