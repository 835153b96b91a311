"""From a fault of a simulated GPU to the message that wakes somebody: `python -m tests.e2e.alerting` prints the table.

Simulated nodes, the real agent and remediator before a simulated API server, a real Prometheus with the rules as they
are, a real Alertmanager with the example's inhibition, and a webhook. Of the rules only `for` and `keep_firing_for` are
shorter: divided by DIVISOR, and at most LONGEST seconds.
"""

import contextlib
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gpuwatch.sim.directory import inject
from gpuwatch.sim.kubeapi import Cluster, SimulatedApiServer
from tests.e2e.alert_cases import CASES, NODES, Case
from tests.e2e.alertmanager import ROOT, Alert, Alertmanager, alertmanager
from tests.e2e.processes import Agent, agent, fetch, free_port, prometheus, running, until

RULES = ROOT / "alerts" / "gpuwatch.rules.yaml"
DIVISOR, LONGEST = 300.0, 12.0
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
TELL_SECONDS, SETTLE_SECONDS, RESOLVE_SECONDS = 60.0, 4.0, 60.0
AT_ONCE = 4
"""Agents that start together."""

NAMESPACE = "gpuwatch"
CONFIG = {
    "agent": {"interval": 0.5},
    "checks": {"boot_grace": 0, "unresponsive_after": 2, "xid_expire": 30},
}
POLICY = {
    "recovery_hold": 1.0,
    "min_quarantine": 0.0,
    "budget": {"max_unavailable": 1, "namespace": NAMESPACE},
}


def hurried() -> dict[str, Any]:
    """The rules with shorter waits, else word for word."""
    rules: dict[str, Any] = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule |= {key: _shorter(rule[key]) for key in ("for", "keep_firing_for") if key in rule}
    return rules


def batched(nodes: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Parts of at most `size`."""
    return (nodes[start : start + size] for start in range(0, len(nodes), size))


def _shorter(duration: str) -> str:
    number, unit = re.fullmatch(r"(\d+)([smhd])", duration).groups()  # type: ignore[union-attr]
    return f"{min(int(number) * UNITS[unit] / DIVISOR, LONGEST) * 1000:.0f}ms"


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
        """As a person would: the processes run, the configuration is right, the GPUs were reset."""
        if NODES[node].get("late"):
            self.end(node)
        self._repaired.add(node)
        if node not in self._running:
            self.begin(node)
        (self.place / node / "gpuwatch.yaml").write_text(json.dumps(self._config(node)))
        pods = [{"do": "stop", "name": "team/notebook"}]
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
        url = f"127.0.0.1:{free_port()}"
        host = json.loads(fetch(f"{self._agents[node].url}/api/v1/view") or b"")["snapshot"]["host"]
        if not any(found["metadata"]["name"] == node for found in self._server.cluster.objects("nodes", "")):
            self._server.cluster.add_node(node, boot_id=host["boot_id"], machine_id=host["machine_id"])
        folder = self.place / node
        file = folder / "policy.yaml"
        file.write_text(json.dumps({"remediation": {**POLICY, "mode": NODES[node]["remediator"], "node_name": node}}))
        command = [sys.executable, "-m", "gpuwatch", "--config", str(file), "remediator", "--listen", url]
        command += ["--state-dir", str(folder / "state"), "--agent", str(folder / "agent.sock")]
        command += ["--kubeconfig", str(self._server.kubeconfig())]
        self._running[node].enter_context(running(command, folder / "remediator.log"))
        until(lambda: fetch(f"http://{url}/-/ready"), f"the remediator of {node} is ready")
        self._scrape("gpuwatch-remediator", node, f"http://{url}")

    def _scrape(self, job: str, node: str, url: str) -> None:
        labels = {"job": job, "node": node, "instance": node}
        new = self.targets / f".{job}-{node}"
        new.write_text(json.dumps([{"targets": [url.removeprefix("http://")], "labels": labels}]))
        new.replace(self.targets / f"{job}-{node}.json")


class Result(NamedTuple):
    """What came of a case. `seconds`: from the fault to the webhook."""

    case: Case
    told: set[Alert]
    held_back: dict[Alert, set[str]]
    seconds: dict[Alert, float]
    resolved: set[Alert]


def wanted(case: Case, names: tuple[str, ...]) -> set[Alert]:
    """The alerts that names in a case stand for."""
    return {Alert(name, case.node, gpu if at else case.gpus[0]) for name, at, gpu in (n.partition("@") for n in names)}


def run(place: Path) -> list[Result]:
    """All cases side by side."""
    cluster = Cluster()
    cluster.add_namespace(NAMESPACE)
    rules = place / "rules.json"
    rules.write_text(json.dumps(hurried()))
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(SimulatedApiServer(cluster, folder=place))
        stage = Stage(place, server)
        stack.callback(stage.end_all)
        manager = stack.enter_context(alertmanager(place / "alertmanager"))
        stage.begin(*(node for node, spec in NODES.items() if not spec.get("late")))
        stack.enter_context(_prometheus(place / "prometheus", stage, manager, rules))
        began = _strike(stage, manager)
        told, held = manager.told(), dict(manager.held_back)
        resolved = _repair(stage, manager)
    return [_result(case, began[case.story], manager, told, held, resolved) for case in CASES]


@contextlib.contextmanager
def _prometheus(place: Path, stage: Stage, manager: Alertmanager, rules: Path) -> Iterator[None]:
    jobs = [{"job_name": "nodes", "honor_labels": True, "file_sd_configs": [{"files": [f"{stage.targets}/*.json"]}]}]
    to = {"alertmanagers": [{"static_configs": [{"targets": [manager.url.removeprefix("http://")]}]}]}
    with prometheus(place, jobs, rule_files=[str(rules)], alerting=to) as found:
        targets = len(list(stage.targets.glob("*.json")))
        until(lambda: found.value('sum(up{job=~"gpuwatch.*"})') == targets, "every node is scraped")
        time.sleep(SETTLE_SECONDS)  # counters must have been there before they grow
        yield


def _strike(stage: Stage, manager: Alertmanager) -> dict[str, float]:
    """Story -> when its fault was; over when all that is expected has come, and some more seconds have passed."""
    began: dict[str, float] = {}
    deadline = time.monotonic() + TELL_SECONDS
    while time.monotonic() < deadline:
        for case in CASES:
            if case.story not in began and (case.after is None or _has_come(manager, *case.after)):
                began[case.story] = time.monotonic()
                stage.do(case)
        told, held = manager.told(), set(manager.held_back)
        if len(began) == len(CASES) and all(
            wanted(case, case.told) <= told and wanted(case, case.held_back) <= held for case in CASES
        ):
            break
        time.sleep(0.1)
    time.sleep(SETTLE_SECONDS)
    return {case.story: began.get(case.story, time.monotonic()) for case in CASES}


def _has_come(manager: Alertmanager, node: str, name: str) -> bool:
    return any((alert.node, alert.name) == (node, name) for alert in manager.told())


def _repair(stage: Stage, manager: Alertmanager) -> set[Alert]:
    """What the webhook heard the end of."""
    since = time.monotonic()
    for node in NODES:
        stage.repair(node)
    due = {alert for case in CASES for alert in wanted(case, case.told) if alert.name not in case.lasts}
    deadline = time.monotonic() + RESOLVE_SECONDS
    while time.monotonic() < deadline:
        if all(manager.first(alert, "resolved", after=since) for alert in due):
            break
        time.sleep(0.1)
    return manager.told("resolved")


def _result(
    case: Case,
    began: float,
    manager: Alertmanager,
    told: set[Alert],
    held: dict[Alert, set[str]],
    resolved: set[Alert],
) -> Result:
    mine = {alert for alert in told if (alert.node, alert.gpu) in {(case.node, gpu) for gpu in case.gpus}}
    kept = {a: by for a, by in held.items() if (a.node, a.gpu) in {(case.node, gpu) for gpu in case.gpus}}
    seconds = {alert: (manager.first(alert) or began) - began for alert in mine}
    return Result(case, mine, kept, seconds, mine & resolved)


def table(results: list[Result]) -> str:
    """In Markdown."""
    head = "| what happens | alerts expected | told, after seconds | held back, by | resolved |\n|---|---|---|---|---|"
    return "\n".join([head, *(_row(result) for result in results)])


def _row(result: Result) -> str:
    case = result.case
    expected = ", ".join(alert.name for alert in _sorted(wanted(case, case.told), result)) or "none"
    told = ", ".join(f"{a.name} {result.seconds[a]:.1f}" for a in _sorted(result.told, result)) or "none"
    held = ", ".join(f"{a.name} by {' and '.join(sorted(by))}" for a, by in sorted(result.held_back.items()))
    late = result.told - result.resolved
    resolved = "" if not result.told else "yes" if not late else "not " + ", ".join(sorted(a.name for a in late))
    return f"| {case.story} | {expected} | {told} | {held} | {resolved} |"


def _sorted(alerts: set[Alert], result: Result) -> list[Alert]:
    return sorted(alerts, key=lambda alert: (result.seconds.get(alert, 0.0), alert))


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(prefix="gpuwatch-alerts-") as place:
        print(table(run(Path(place))))


if __name__ == "__main__":
    main()
