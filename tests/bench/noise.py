"""How many alerts, messages and pages one cause makes: `python -m tests.bench.noise` prints the table.

Scenarios of the simulator are played on imaginary time, the agent's own pages become series, and promtool evaluates the
rules on them. Inhibition and grouping of the Alertmanager example are then applied minute by minute.
"""

import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from gpuwatch.config import Config
from gpuwatch.metrics.exposition import Encoder
from gpuwatch.metrics.native import collect
from gpuwatch.sim.node.scenario import Scenario, load, parse
from gpuwatch.sim.playback import views
from tests.alerts.test_alertmanager import holds_back
from tests.alerts.timeline import ask
from tests.promql import RULES, alerts

STEP = 60
MINUTES = 30
SWITCH = {
    "description": "The links of all GPUs go down at one switch",
    "node": {"model": "h100", "gpus": 8},
    "timeline": [
        {"at": "5m", "do": "nvlink", "gpu": [0, 1, 2, 3, 4, 5, 6, 7], "link": 7, "active": False},
        {"at": "6m", "do": "sxid", "switch": 1, "sxid": 20034, "severity": "Fatal", "link": 48},
    ],
}
SCENARIOS: Mapping[str, Scenario] = {
    "lost GPU": load("fallen-off-bus"),
    "ECC storm": load("ecc-storm"),
    "thermal": load("thermal"),
    "driver upgrade": load("driver-reload"),
    "switch failure": parse(SWITCH, "the switch"),
}
FLEET = 20
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
NAMES = frozenset(re.findall(r"gpuwatch_\w+", RULES.read_text()))
FIRED = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Noise(NamedTuple):
    """One row of the table."""

    cause: str
    raw: int
    told: int
    pages: tuple[str, ...]


def measure(cause: str, series: list[dict[str, str]], place: Path) -> Noise:
    """What one cause makes."""
    firing = _firing(series, place)
    told = {_group(alert) for now in firing for alert in now if not any(holds_back(a, alert) for a in now)}  # type: ignore[no-untyped-call]
    raw = {tuple(sorted(alert.items())) for now in firing for alert in now}
    pages = tuple(sorted(name for name, _ in told if alerts()[name]["labels"]["severity"] == "critical"))
    return Noise(cause, len(raw), len(told), pages)


def _group(alert: Mapping[str, str]) -> tuple[str, str]:
    """The message that it is part of, as `group_by` of the example has it."""
    one_for_all = alert["component"] in {"gpuwatch", "remediation", "tuning"} and alert["severity"] == "warning"
    return alert["alertname"], alert.get("reason", "") if one_for_all else alert.get("node", "")


def causes() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """What happens, and the series that it makes. What the simulator does not play is made of a node that is well."""
    for cause, scenario in SCENARIOS.items():
        yield cause, played(scenario)
    well = parse({"description": "well", "node": {"model": "h100", "gpus": 1}}, "a node")
    yield "node reboot", _target("n1", range(10, 18)) + played(well, away=range(10, 18))
    source = {"series": f'gpuwatch_source_up{{source="podresources",{TARGET}}}', "values": "1x9 0x1 1x19"}
    yield "kubelet restart", [source, *_target("n1", range(0)), *played(well)]
    nodes = [f"n{number}" for number in range(FLEET)]
    yield (
        "API outage",
        [
            {
                "series": f'gpuwatch_remediator_blocked{{reason="api",node="{node}",instance="{node}",cluster="c1"}}',
                "values": "0x9 1x20",
            }
            for node in nodes
        ],
    )
    yield (
        "agent upgrade",
        [
            series
            for number, node in enumerate(nodes)
            for away in [range(2 + number, 4 + number)]
            for series in (*_target(node, away), *played(well, node, away))
        ],
    )


def _target(node: str, away: range) -> list[dict[str, str]]:
    values = " ".join("0" if minute in away else "1" for minute in range(MINUTES + 1))
    return [{"series": f"up{{{TARGET.replace('n1', node)}}}", "values": values}]


def played(scenario: Scenario, node: str = "n1", away: range = range(0)) -> list[dict[str, str]]:
    """Input series of promtool: what a scrape of every minute brings; nothing in the minutes of `away`."""
    values: dict[str, list[str]] = {}
    target = TARGET.replace("n1", node)
    for minute, page in enumerate(_pages(scenario)):
        if minute in away:
            continue
        for line in page.splitlines():
            found = SAMPLE.match(line)
            if found and found[1] in NAMES:
                name = f"{found[1]}{{{','.join(filter(None, (found[2], target)))}}}"
                known = values.setdefault(name, [])
                known += ["stale"] * (minute - len(known)) + [found[3]]
    return [
        {"series": name, "values": " ".join(known + ["stale"] * (len(known) <= MINUTES))}
        for name, known in values.items()
    ]


TARGET = 'cluster="c1",node="n1",instance="n1",job="gpuwatch"'


def _pages(scenario: Scenario) -> Iterator[str]:
    config, encoder = Config(), Encoder()
    for view in views(scenario, config, 0.0, MINUTES * STEP, node="n1", short_step=10.0):
        if view.snapshot.at % STEP == 0:
            yield encoder.encode(collect(view, config.metrics)).decode()


def _firing(series: list[dict[str, str]], place: Path) -> list[list[dict[str, str]]]:
    """The alerts that fire, minute by minute. promtool prints them, as it expects none."""
    found = 'label_replace(ALERTS{{alertstate="firing"}}, "minute", "{}", "", "")'
    questions = [{"expr": found.format(n), "eval_time": f"{n}m", "exp_samples": []} for n in range(MINUTES + 1)]
    played = {"interval": "1m", "input_series": series, "promql_expr_test": questions}
    said = ask({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [played]}, place)
    firing: list[list[dict[str, str]]] = [[] for _ in range(MINUTES + 1)]
    for text in re.findall(r"\{[^{}]*alertname=[^{}]*\}", said):
        labels = dict(FIRED.findall(text))
        if "minute" in labels:
            firing[int(labels.pop("minute"))].append(labels)
    return firing


def main() -> None:
    """Print the table."""
    print("| cause | raw alerts | messages | pages |\n|---|---|---|---|")
    for cause, series in causes():
        with tempfile.TemporaryDirectory() as place:
            found = measure(cause, series, Path(place))
            print(f"| {cause} | {found.raw} | {found.told} | {len(found.pages)} {', '.join(found.pages)} |", flush=True)


if __name__ == "__main__":
    main()
