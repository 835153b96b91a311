"""Every query of every dashboard on a real Prometheus that has a simulated fleet's hours: it returns data, and sense.

The variables are as the dashboard opens: All. Queries of graphs are asked for the whole range, others for its end.
"""

import json
import math
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from dashboards.history.fleet import BEGIN, END, STEP
from tests.dashboards.boards import (
    Panel,
    Target,
    all_annotations,
    all_panels,
    all_targets,
    all_variables,
    label_values,
)  # fmt: skip
from tests.promql import filled

EMPTY = {
    "node / Hardware / Fans A": "servers' GPUs have none; a fan speed is on workstation cards only",
    "node / Faults / Memory and recovery J": "retired pages: Volta and older only, and no such GPU is in the fleet",
    "fleet / Power / Power by node, the 15 highest B": "the fleet of the history has fewer nodes",
    "node / Links / NVLink errors and PCIe replays B": "no link of the fleet has errors",
    "operations / Agents and their sources / Sources that do not answer A": "all sources answer at the end",
    "operations / What it does: tuning / GPUs, tuned ones first C": "all limits fit the only budget of the fleet",
    "operations / Events, configuration, web server / Configuration in use A": "no configuration was refused",
}
"""Queries that rightly return nothing: `dashboard / row / panel ref` -> why. One that returns something must leave."""

NEGATIVE = {"node / Why is it slow? / Headroom to the slowdown A": "past its limit, a GPU has less than no headroom"}
"""Queries whose values may be below zero."""

PEERS = "workload / Is one GPU slower than its peers?"
ABOVE_ONE = {
    f"{PEERS} / SM clock beside the peers A": "1 is the median of the peers",
    f"{PEERS} / Activity beside the peers A": "1 is the median of the peers",
}
"""Queries in ratios that may be above one."""

COLUMNS = {
    "cost / Who had them / By namespace, account, project and GPU": {"account": "the fleet runs Kubernetes"},
    "node / Processes / Processes": {"slurm_job": "the fleet runs Kubernetes"},
}
"""Columns that are rightly missing: `dashboard / row / panel` -> field -> why."""

VARIABLES = {
    **dict.fromkeys(("cluster", "node", "gpu", "kind", "namespace", "workload"), ".*"),
    "price": "2.5",
    "kwh": "0.15",
    "1": "$1",  # of label_replace
    "__interval": f"{STEP:.0f}s",
    "__rate_interval": f"{4 * STEP:.0f}s",
    "__range": f"{END - BEGIN:.0f}s",
    "__range_s": f"{END - BEGIN:.0f}",
}
Series = dict[str, Any]
Ask = Callable[..., list[Series]]

each_target = pytest.mark.parametrize("target", all_targets(), ids=str)


def get(url: str, path: str, **parameters: str | float) -> Any:
    """An answer of Prometheus' API; its own words where it refuses."""
    try:
        with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=60) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as refused:
        pytest.fail(f"{parameters}: {json.load(refused)['error']}")
    assert "warnings" not in found, found["warnings"]
    return found["data"]


@pytest.fixture(scope="module")
def answers(url: str) -> Callable[[Target], list[Series]]:
    """What Prometheus says to a target, asked once."""
    known: dict[str, list[Series]] = {}

    def answer(target: Target) -> list[Series]:
        if str(target) not in known:
            known[str(target)] = ask(url, target.expr, at_the_end=target.instant)
        return known[str(target)]

    return answer


def ask(url: str, expression: str, *, at_the_end: bool) -> list[Series]:
    """Series, each with its `metric` and its `values`."""
    query = filled(expression, VARIABLES)
    if at_the_end:
        found = get(url, "query", query=query, time=END)["result"]
        return [{"metric": each["metric"], "values": [each["value"]]} for each in found]
    result: list[Series] = get(url, "query_range", query=query, start=BEGIN, end=END, step=STEP)["result"]
    return result


def numbers(found: list[Series]) -> list[float]:
    return [float(value) for series in found for _, value in series["values"]]


@each_target
def test_every_query_returns_data(answers: Callable[[Target], list[Series]], target: Target):
    found = answers(target)
    if str(target) in EMPTY:
        assert found == [], "it does return something: take it off the list"
    else:
        assert found, target.expr


@each_target
def test_values_make_sense(answers: Callable[[Target], list[Series]], target: Target):
    values = numbers(answers(target))
    assert all(math.isfinite(value) for value in values)
    if str(target) not in NEGATIVE:
        assert min(values, default=0) >= 0
    if unit(target) == "percentunit" and str(target) not in ABOVE_ONE:
        assert max(values, default=0) <= 1


def unit(target: Target) -> str:
    """The unit of what a query gives: of the column, in a table."""
    panel = target.panel.json
    for override in panel["fieldConfig"].get("overrides", ()):
        settings = {setting["id"]: setting["value"] for setting in override["properties"]}
        if override["matcher"]["options"] in ("Value", f"Value #{target.json['refId']}"):
            return settings.get("unit", "")
    return target.panel.unit


@each_target
def test_legends_name_labels_that_are_there(answers: Callable[[Target], list[Series]], target: Target):
    """All but `gi`, which whole GPUs do not have."""
    named = set(re.findall(r"\{\{(\w+)\}\}", target.json.get("legendFormat", "")))
    there = {label for series in answers(target) for label in series["metric"]}
    assert named - {"gi"} <= there or str(target) in EMPTY, target.json["legendFormat"]


@each_target
def test_series_of_a_graph_are_distinguished(answers: Callable[[Target], list[Series]], target: Target):
    if target.panel.json["type"] == "table":
        return
    node = "{{node}} " if target.panel.board == "node" else ""  # of which one is chosen
    names = [shown(node + target.json["legendFormat"], each["metric"]) for each in answers(target)]
    assert len(names) == len(set(names)), sorted(names)


def shown(legend: str, labels: dict[str, str]) -> str:
    """A legend as Grafana fills it in; `__auto` shows all labels."""
    text = str(sorted(labels.items())) if legend.endswith("__auto") else legend
    return re.sub(r"\{\{(\w+)\}\}", lambda label: labels.get(label[1], ""), text)


@pytest.mark.parametrize("panel", [panel for panel in all_panels() if panel.columns], ids=str)
def test_tables_have_the_columns_they_show(answers: Callable[[Target], list[Series]], panel: Panel):
    targets = [Target(panel, target) for target in panel.json["targets"]]
    value = "Value" if len(targets) == 1 else "Value #"
    fields = {f"{value}{target.json['refId']}" if len(targets) > 1 else value for target in targets}
    fields.update(label for target in targets for series in answers(target) for label in series["metric"])
    fields.update(COLUMNS.get(str(panel), {}))
    assert set(panel.columns) <= fields or any(str(target) in EMPTY for target in targets), set(panel.columns) - fields


@pytest.mark.parametrize(
    ("board", "variable"),
    [(board, variable) for board, variable in all_variables() if variable["type"] == "query"],
    ids=lambda each: each if isinstance(each, str) else each["name"],
)
def test_variables_have_values(url: str, board: str, variable: dict[str, Any]):
    series, label = label_values(variable)
    found = get(url, f"label/{label}/values", start=BEGIN, end=END, **{"match[]": filled(series, VARIABLES)})
    assert len(found) >= (1 if variable["name"] == "kind" else 2)  # the fleet runs Kubernetes


@pytest.mark.parametrize(
    ("board", "annotation"),
    all_annotations(),
    ids=lambda each: each if isinstance(each, str) else each["name"],
)
def test_annotations_mark_something(url: str, board: str, annotation: dict[str, Any]):
    found = ask(url, annotation["expr"], at_the_end=False)
    values = numbers(found)
    assert values
    if annotation["useValueForTime"]:
        times = [value / 1000 for value in values]
        assert max(times) <= END
        assert any(time >= BEGIN for time in times), "the events are outside of the range"
    else:
        moments = {at for series in found for at, _ in series["values"]}
        assert len(moments) < (END - BEGIN) / STEP / 2, "events are moments, this is a state"


def test_the_lists_name_queries_that_exist():
    assert {*EMPTY, *NEGATIVE, *ABOVE_ONE} <= {str(target) for target in all_targets()}
