"""The simulated nodes of the alert tests, with the real agents and remediators on them, as targets of a Prometheus."""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpuwatch.sim.directory import inject
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from tests.e2e.alert_cases import NODES, Case
from tests.e2e.processes import Agent, agent, fetch, running
from tests.ports import free_port
from tests.waiting import until

AT_ONCE = 4
"""Agents that start together."""

NAMESPACE = "gpuwatch"
CONFIG = {
    "agent": {"interval": 0.5},
    "checks": {"boot_grace": 0, "unresponsive_after": 1.5, "xid_expire": 30},
}
"""Quicker than the defaults where those wait for a machine to come up, or for somebody to read of an XID."""

POLICY = {
    "recovery_hold": 1.0,
    "min_quarantine": 0.0,
    "budget": {"max_unavailable": 1, "namespace": NAMESPACE},
}


class Stage:
    """The nodes, and what runs on them."""

    def __init__(self, place: Path, server: SimulatedApiServer) -> None:
        self.place, self._server = place, server
        self._running: dict[str, contextlib.ExitStack] = {}
        self._agents: dict[str, Agent] = {}
        self._repaired: set[str] = set()
        self.targets = place / "targets"
        self.targets.mkdir()

    def begin(self, *nodes: str) -> None:
        """Start agents and remediators and have them scraped once they answer."""
        for some in batched(nodes, AT_ONCE):
            for node in some:
                self._running[node] = contextlib.ExitStack()
                self._agents[node] = self._running[node].enter_context(self._agent(node))
            for node in some:
                self._agents[node].settle()
                self._scrape("gpuwatch", node, self._agents[node].url)
        for node in nodes:
            if "remediator" in NODES[node]:
                self._remediate(node)

    def end(self, *nodes: str) -> None:
        """Stop what runs there; Prometheus goes on asking."""
        for node in nodes:
            self._running.pop(node).close()

    def end_all(self) -> None:
        """Stop everything."""
        self.end(*self._running)

    def do(self, case: Case) -> None:
        """Let the case's faults happen."""
        for fault in case.faults:
            if callable(fault):
                fault(self, case.node)
            else:
                inject(self._agents[case.node].directory, fault)

    def repair(self, node: str) -> None:
        """As a person would: processes run, the configuration is right, idle and hot pods left, GPUs were reset."""
        if NODES[node].get("late"):
            self.end(node)
        self._repaired.add(node)
        if node not in self._running:
            self.begin(node)
        (self.place / node / "gpuwatch.yaml").write_text(json.dumps(self._config(node)))
        pods = [{"do": "stop", "name": name} for name in ("team/notebook", f"{node}/hot-0")]
        for action in (*pods, {"do": "unhang"}, {"do": "kubelet", "state": "ok"}, {"do": "recover", "gpu": "all"}):
            inject(self._agents[node].directory, action)
        inject(self._agents[node].directory, {"do": "reload", "seconds": 0.5})

    def _agent(self, node: str) -> contextlib.AbstractContextManager[Agent]:
        spec = NODES[node]
        pods = [
            {"name": f"{node}/{name}-0", "gpus": gpus, "load": "training", "memory": 0.5, "process": "python3"}
            for name, gpus in spec.get("workloads", ())
        ]
        file = self.place / f"{node}.yaml"
        file.write_text(json.dumps({"description": node, "node": spec["node"], "workloads": pods}))
        environment = {"NODE_NAME": node}
        return agent(self.place / node, source=("--source", f"sim:{file}"), config=self._config(node), env=environment)

    def _config(self, node: str) -> dict[str, Any]:
        """What is special about a node is its fault."""
        special = {} if node in self._repaired else NODES[node].get("config", {})
        return {**CONFIG, **{key: {**CONFIG[key], **more} for key, more in special.items()}}

    def _remediate(self, node: str) -> None:
        mode = NODES[node]["remediator"]
        started = remediator(self.place / node, self._agents[node], self._server, node, mode)
        self._scrape("gpuwatch-remediator", node, self._running[node].enter_context(started))

    def wait_until_found(self, node: str, check: str) -> None:
        """Wait for a finding of the node's agent."""
        agent = self._agents[node]
        until(lambda: f'check="{check}"'.encode() in (fetch(f"{agent.url}/metrics") or b""), f"{check} on {node}")

    def _scrape(self, job: str, node: str, url: str) -> None:
        labels = {"job": job, "node": node, "instance": node}
        new = self.targets / f".{job}-{node}"
        new.write_text(json.dumps([{"targets": [url.removeprefix("http://")], "labels": labels}]))
        new.replace(self.targets / f"{job}-{node}.json")


@contextlib.contextmanager
def remediator(folder: Path, found: Agent, server: SimulatedApiServer, node: str, mode: str) -> Iterator[str]:
    """The URL of one that acts on the agent's View, on the Node of that name."""
    url = f"127.0.0.1:{free_port()}"
    host = json.loads(fetch(f"{found.url}/api/v1/view") or b"")["snapshot"]["host"]
    if not any(known["metadata"]["name"] == node for known in server.cluster.objects("nodes", "")):
        server.cluster.add_node(node, boot_id=host["boot_id"], machine_id=host["machine_id"])
    file = folder / "policy.yaml"
    file.write_text(json.dumps({"remediation": {**POLICY, "mode": mode, "node_name": node}}))
    command = [sys.executable, "-m", "gpuwatch", "--config", str(file), "remediator", "--listen", url]
    command += ["--state-dir", str(folder / "state"), "--agent", str(folder / "agent.sock")]
    command += ["--kubeconfig", str(server.kubeconfig())]
    with running(command, folder / "remediator.log"):
        until(lambda: fetch(f"http://{url}/-/ready"), f"the remediator of {node} is ready")
        yield f"http://{url}"


def batched(nodes: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Parts of at most `size`."""
    return (nodes[start : start + size] for start in range(0, len(nodes), size))
