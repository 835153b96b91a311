"""A case of an alert: what series do minute by minute, and when the alert has to fire; and promtool, which is asked.

promtool's own test files are long: a case becomes one group of such a file, with questions at the minutes that decide.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.promql import alerts, metrics, rule_groups

FAULT = 10
"""The minute in which a fault begins."""
AFTER = 5
"""Minutes for which a fault outlasts the time that an alert waits."""
CLUSTER = "c1"
NODE = {"node": "n1", "instance": "n1"}

Value = float | None
"""None: the series is not there."""
Values = tuple[Value, Value] | Callable[[int], Value]
"""Well and ill, or the value of every minute."""


class Case(NamedTuple):
    """`series` by their selector, without the labels of the target; with `fires` False the alert says nothing at all.

    `delay`: minutes from the fault until the expression is true; `linger`: from its end until it is not. `lasts`: of
    the fault; by default a little longer than the alert waits. `labels`: of the alert, beyond the rule's and target's.
    """

    alert: str
    series: Mapping[str, Values]
    labels: Mapping[str, str] = {}
    delay: int = 0
    linger: int = 0
    lasts: int | None = None
    fires: bool = True
    why: str = ""
    target: Mapping[str, str] = NODE

    def __str__(self) -> str:
        return f"{self.alert}: {self.why or ', '.join(self.series)}"


def minutes(duration: str | None) -> int:
    """A duration of a rule."""
    units = {"m": 1, "h": 60, "d": 24 * 60}
    return int(duration[:-1]) * units[duration[-1]] if duration else 0


class Rule(NamedTuple):
    """What a rule file says of an alert."""

    waits: int
    keeps: int
    labels: Mapping[str, str]


def rule(path: Path, name: str) -> Rule:
    """The alert of that name; KeyError where there is none."""
    found = alerts(path)[name]
    return Rule(minutes(found.get("for")), minutes(found.get("keep_firing_for")), found["labels"])


def firing_minutes(case: Case, of: Rule) -> tuple[int, int]:
    """The first minute in which the alert fires, and the first in which it does not any more."""
    begins = FAULT + case.delay
    return begins + of.waits, _end(case, of) + case.linger + of.keeps


def _end(case: Case, of: Rule) -> int:
    return FAULT + (case.lasts or case.delay + of.waits + AFTER)


def group(path: Path, case: Case, cluster: str | None = CLUSTER) -> dict[str, Any]:
    """One group of a promtool test file."""
    of = rule(path, case.alert)
    starts, stops = firing_minutes(case, of)
    length = stops + AFTER
    target = {label: value for label, value in {"cluster": cluster, **case.target}.items() if value}
    firing = f'ALERTS{{alertname="{case.alert}",alertstate="firing"}}'
    labels = {**target, **case.labels, **of.labels, "alertname": case.alert, "alertstate": "firing"}
    if case.fires:
        asked = [(0, 0), (FAULT - 1, 0), (starts - 1, 0), (starts, 1), (stops - 1, 1), (stops, 0), (length, 0)]
        questions = [_question(firing, minute, labels if count else None) for minute, count in asked]
        always = f"{firing} and count_over_time({firing}[{stops - starts}m]) == {stops - starts}"
        questions.append(_question(always, stops - 1, labels))
    else:
        questions = [_question(f"count_over_time({firing}[{length + 1}m])", length, None)]
    return {
        "name": str(case),
        "interval": "1m",
        "input_series": [
            {"series": _selector(name, target), "values": values_text(_values(values, _end(case, of), length))}
            for name, values in case.series.items()
        ],
        "promql_expr_test": questions,
    }


def check(path: Path, names: Iterable[str], groups: Iterable[Mapping[str, Any]], place: Path) -> str:
    """What promtool says against the groups; empty when all is as it should be. Only the named alerts are evaluated."""
    rules, chosen = place / "rules.yaml", list(_only(path, set(names)))
    rules.write_text(json.dumps({"groups": chosen}))
    order = [each["name"] for each in chosen]
    tests = {"rule_files": [str(rules)], "evaluation_interval": "1m", "group_eval_order": order, "tests": list(groups)}
    return ask(tests, place)


def ask(tests: Mapping[str, Any], place: Path) -> str:
    """What promtool says against a test file; empty when all is as it should be."""
    file = place / "tests.yaml"
    file.write_text(json.dumps(tests))  # JSON is YAML
    command = ["promtool", "test", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def description_of(path: Path, case: Case, beside: Mapping[str, Values], place: Path) -> str:
    """The description of the alert as soon as it fires, with further series `beside`; as promtool shows what it got."""
    asked = group(path, case._replace(series={**beside, **case.series}))
    asked["promql_expr_test"] = []
    starts, _ = firing_minutes(case, rule(path, case.alert))
    asked["alert_rule_test"] = [{"eval_time": f"{starts}m", "alertname": case.alert, "exp_alerts": []}]
    found = re.search(r'description="((?:[^"\\]|\\.)*)"', check(path, [case.alert], [asked], place))
    assert found, f"{case.alert} does not fire"
    return found[1].encode("latin-1", "backslashreplace").decode("unicode_escape")


def _only(path: Path, names: set[str]) -> Iterator[dict[str, Any]]:
    """The groups of a rule file with these alerts, and with the records where one of them reads records."""
    records = any(":" in metric for name in names for metric in metrics(alerts(path)[name]["expr"]))
    for each in rule_groups(path):
        rules = [rule for rule in each["rules"] if rule.get("alert") in names or (records and "record" in rule)]
        if rules:
            yield {**each, "rules": rules}


def _question(expression: str, minute: int, labels: Mapping[str, str] | None) -> dict[str, Any]:
    samples = [] if labels is None else [{"labels": _selector("ALERTS", labels), "value": 1}]
    return {"expr": expression, "eval_time": f"{minute}m", "exp_samples": samples}


def _selector(name: str, labels: Mapping[str, str]) -> str:
    """The selector with more labels; those it has stay."""
    family, _, own = name.partition("{")
    more = [f'{label}="{value}"' for label, value in labels.items() if f"{label}=" not in f",{own}".replace("{", ",")]
    return f"{family}{{{','.join([part for part in (own.removesuffix('}'), *more) if part])}}}"


def _values(values: Values, end: int, length: int) -> Iterator[Value]:
    for minute in range(length + 1):
        if callable(values):
            yield values(minute)
        else:
            yield values[FAULT <= minute < end]


def values_text(values: Iterable[Value]) -> str:
    """In promtool's notation; a series that goes is marked as Prometheus does."""
    said: list[str] = []
    before: Value = None
    for value in values:
        said.append(f"{value:g}" if value is not None else "_" if before is None else "stale")
        before = value
    return " ".join(said)
