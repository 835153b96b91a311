"""From a fault of a simulated GPU to the message that wakes somebody: `python -m tests.e2e.alerting` prints the table.

Simulated nodes, the real agent and remediator before a simulated API server, a real Prometheus with the rules as they
are, a real Alertmanager with the example's inhibition, another one without any, and a webhook for each. Of the rules
only `for` and `keep_firing_for` are shorter: divided by DIVISOR, and at most LONGEST seconds.
"""

import contextlib
import json
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from tests import fast_yaml
from tests.e2e.alert_cases import CASES, NODES, Case
from tests.e2e.alert_stage import NAMESPACE, Stage
from tests.e2e.alertmanager import ROOT, Alert, Alertmanager, alertmanager
from tests.e2e.processes import prometheus
from tests.waiting import BOUND_SECONDS, until

RULES = ROOT / "alerts" / "gpuwatch.rules.yaml"
DIVISOR, LONGEST = 50.0, 16.0
SCRAPES = 4
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
SETTLE_SECONDS = 4.0
"""How long a story is watched after all that is expected has come: what should not come needs time, too."""


def hurried() -> dict[str, Any]:
    """The rules with shorter waits, else word for word."""
    rules: dict[str, Any] = fast_yaml.load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule |= {key: _shorter(rule[key]) for key in ("for", "keep_firing_for") if key in rule}
    return rules


def _shorter(duration: str) -> str:
    number, unit = re.fullmatch(r"(\d+)([smhd])", duration).groups()  # type: ignore[union-attr]
    return f"{min(int(number) * UNITS[unit] / DIVISOR, LONGEST) * 1000:.0f}ms"


class Result(NamedTuple):
    """What came of a case. `seconds`: from the fault to the webhook."""

    case: Case
    notified: set[Alert]
    held_back: dict[Alert, set[str]]
    without: set[Alert]
    """What the Alertmanager without inhibition told."""
    seconds: dict[Alert, float]
    resolved: set[Alert]


def wanted(case: Case, names: tuple[str, ...]) -> set[Alert]:
    """The alerts that names in a case stand for."""
    return {Alert(name, case.node, gpu if at else case.gpus[0]) for name, at, gpu in (n.partition("@") for n in names)}


def run(place: Path, cases: Sequence[Case] = CASES) -> list[Result]:
    """These cases side by side, on the nodes that they are about."""
    nodes = list(dict.fromkeys(case.node for case in cases))
    cluster = SimulatedCluster()
    cluster.add_namespace(NAMESPACE)
    rules = place / "rules.json"
    rules.write_text(json.dumps(hurried()))
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(SimulatedApiServer(cluster, folder=place))
        stage = Stage(place, server)
        stack.callback(stage.end_all)
        manager = stack.enter_context(alertmanager(place / "alertmanager"))
        plain = stack.enter_context(alertmanager(place / "plain", inhibits=False))
        stage.begin(*(node for node in nodes if not NODES[node].get("late")))
        stack.enter_context(_prometheus(place / "prometheus", stage, (manager, plain), rules))
        began = _strike(stage, manager, plain, cases)
        notified, without = manager.notified(), plain.notified()
        held = {alert: set(by) for alert, by in manager.held_back.copy().items()}  # a thread goes on filling it
        resolved = _repair(stage, manager, cases)
    return [_result(case, began[case.story], manager, notified, held, without, resolved) for case in cases]


@contextlib.contextmanager
def _prometheus(place: Path, stage: Stage, managers: tuple[Alertmanager, ...], rules: Path) -> Iterator[None]:
    jobs = [{"job_name": "nodes", "honor_labels": True, "file_sd_configs": [{"files": [f"{stage.targets}/*.json"]}]}]
    hosts = [manager.url.removeprefix("http://") for manager in managers]
    to = {"alertmanagers": [{"static_configs": [{"targets": hosts}]}]}
    with prometheus(place, jobs, rule_files=[str(rules)], alerting=to) as found:
        targets = len(list(stage.targets.glob("*.json")))
        until(lambda: found.value('sum(up{job=~"gpuwatch.*"})') == targets, "every node is scraped")
        scrapes = 'min(count_over_time(up{job=~"gpuwatch.*"}[1m]))'
        until(lambda: (found.value(scrapes) or 0) >= SCRAPES, "counters are there before they grow")
        yield


def _strike(stage: Stage, manager: Alertmanager, plain: Alertmanager, cases: Sequence[Case]) -> dict[str, float]:
    """Story -> when its fault was; over when all that is expected has come, and some more seconds have passed."""
    began: dict[str, float] = {}
    due = {alert for case in cases for alert in wanted(case, case.notified)}
    kept = {alert for case in cases for alert in wanted(case, case.held_back)}
    deadline = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < deadline:
        for case in cases:
            if case.story not in began and (case.after is None or _has_come(manager, *case.after)):
                began[case.story] = time.monotonic()
                stage.do(case)
        if due <= manager.notified() and kept <= set(manager.held_back) and due | kept <= plain.notified():
            break
        time.sleep(0.1)
    time.sleep(SETTLE_SECONDS)
    return {case.story: began.get(case.story, time.monotonic()) for case in cases}


def _has_come(manager: Alertmanager, node: str, name: str) -> bool:
    return any((alert.node, alert.name) == (node, name) for alert in manager.notified())


def _repair(stage: Stage, manager: Alertmanager, cases: Sequence[Case]) -> set[Alert]:
    """What the webhook heard the end of."""
    since = time.monotonic()
    for node in dict.fromkeys(case.node for case in cases):
        stage.repair(node)
    due = {alert for case in cases for alert in wanted(case, case.notified) if alert.name not in case.lasts}
    deadline = since + BOUND_SECONDS
    while time.monotonic() < deadline and not all(manager.first(alert, "resolved", after=since) for alert in due):
        time.sleep(0.1)
    return manager.notified("resolved")


def _result(
    case: Case,
    began: float,
    manager: Alertmanager,
    notified: set[Alert],
    held: dict[Alert, set[str]],
    without: set[Alert],
    resolved: set[Alert],
) -> Result:
    places = {(case.node, gpu) for gpu in case.gpus}
    mine = {alert for alert in notified if (alert.node, alert.gpu) in places}
    return Result(
        case=case,
        notified=mine,
        held_back={alert: by for alert, by in held.items() if (alert.node, alert.gpu) in places},
        without={alert for alert in without if (alert.node, alert.gpu) in places},
        seconds={alert: (manager.first(alert) or began) - began for alert in mine},
        resolved=mine & resolved,
    )


def table(results: list[Result]) -> str:
    """In Markdown."""
    head = "| fault | alerts, after seconds | held back |\n|---|---|---|"
    return "\n".join([head, *(_row(result) for result in results)])


def _row(result: Result) -> str:
    case = result.case
    sent = (
        ", ".join(_sent(alert, result) for alert in _sorted(result.notified | wanted(case, case.notified), result))
        or "none"
    )
    held = ", ".join(sorted({f"{alert.name} by {' and '.join(sorted(by))}" for alert, by in result.held_back.items()}))
    return f"| {case.story} | {sent} | {held} |"


def _sent(alert: Alert, result: Result) -> str:
    if alert not in result.notified:
        return f"{alert.name} missing"
    why = "" if alert in result.resolved else f" (not yet resolved: {result.case.lasts.get(alert.name, 'unexpected')})"
    return f"{alert.name} {result.seconds[alert]:.1f}{why}"


def _sorted(alerts: set[Alert], result: Result) -> list[Alert]:
    return sorted(alerts, key=lambda alert: (result.seconds.get(alert, 0.0), alert))


def summary(results: list[Result]) -> str:
    """What inhibition saves."""
    notified, without = (
        sum(len(found) for found in sets) for sets in zip(*((r.notified, r.without) for r in results), strict=True)
    )
    return f"{notified} alerts told; without inhibition {without}."


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(prefix="gpuwatch-alerts-") as place:
        results = run(Path(place))
    print(table(results))
    print(f"\n{summary(results)}")


if __name__ == "__main__":
    main()
