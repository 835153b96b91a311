"""The rules of grafana/dashboard-linter, as far as they make sense here, and that nothing named is made up.

Left out, with the reason:
- template-job-rule, target-job-rule, template-instance-rule: no variables `job` and `instance`. Metrics of gpuwatch
  have names of their own, whatever a site calls its scrape jobs; an instance is its node, and that is a variable.
- target-instance-rule: so every series is narrowed by `node` (and `cluster`) in place of `instance`.
- target-rate-interval-rule also allows sums over the whole range, where only the value at its end is asked for:
  `$__range` itself, or the step of a subquery over it.
- target-counter-agg-rule: a count may be shown as it stands (errors of memory so far), but not drawn over time.
- target-logql rules, panel-histogram rules: there are no logs and no histograms.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import promql_parser
import pytest
from grafana_foundation_sdk.models import units

from dashboards.source.__main__ import documents
from dashboards.source.fields import PLAIN_COLORS
from gpuwatch import RUNBOOKS
from tests import fast_yaml
from tests.dashboards.boards import (
    FILES,
    PLACE,
    Panel,
    Target,
    all_annotations,
    all_panels,
    all_targets,
    all_variables,
    label_values,
    links,
    load,
    panels,
)  # fmt: skip
from tests.deploy.tools import kubectl
from tests.promql import TARGET, Selector, families, filled, grouping, is_known, recorded, rule_groups, selectors
from tests.promql import label_values as known_values

KNOWN_UNITS = {value for name, value in vars(units).items() if isinstance(value, str) and not name.startswith("_")}
FOR_COUNTERS = {"rate", "irate", "increase", "resets", "changes", "timestamp"}
"""Functions that a counter makes sense in."""
RATES = {"rate", "irate", "increase"}
RATE_INTERVAL, RANGE = "7001s", "9001s"
INTERVALS = {"__rate_interval": RATE_INTERVAL, "__range": RANGE, "__range_s": "9001", "price": "2.5", "kwh": "0.15"}
TITLES = {"cost": "Cost and energy"}


def name(each: str | dict[str, Any]) -> str:
    """What a test of a variable or an annotation is called."""
    return each if isinstance(each, str) else each["name"]


boards = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
each_panel = pytest.mark.parametrize("panel", all_panels(), ids=str)


def parsed(expression: str) -> Any:
    return promql_parser.parse(filled(expression, INTERVALS))


def nodes(expression: str, kind: type[Any]) -> list[Any]:
    """All parts of a query that are of that kind."""
    found: list[Any] = []
    promql_parser.walk(parsed(expression), lambda node: found.append(node) if isinstance(node, kind) else None)
    return found


def calls(expression: str) -> Iterator[tuple[str, Any]]:
    """(function, argument) of every call of a function."""
    for call in nodes(expression, promql_parser.Call):
        yield from ((call.func.name, argument) for argument in call.args)


def made_labels(expression: str) -> set[str]:
    """Labels that the query itself adds."""
    return {call.args[1].val for call in nodes(expression, promql_parser.Call) if call.func.name == "label_replace"}


def seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))


# --- the files


def test_the_files_are_what_the_code_makes():
    assert documents() == {file: file.read_text() for file in FILES}, "run: make generate"


@boards
def test_kubectl_can_apply_it(file: Path):
    """kubectl keeps a copy of the ConfigMap, JSON in JSON, in an annotation; there is room for 256 KiB."""
    assert len(json.dumps(file.read_text()).encode()) < 240 * 1024


def test_kustomize_makes_what_grafanas_sidecar_looks_for():
    done = subprocess.run([kubectl(), "kustomize", PLACE], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    made = list(fast_yaml.load_all(done.stdout))
    assert {each["metadata"]["name"] for each in made} == {f"gpuwatch-dashboard-{file.stem}" for file in FILES}
    assert all(each["metadata"]["labels"] == {"grafana_dashboard": "1"} for each in made)
    assert {name: text for each in made for name, text in each["data"].items()} == {
        f"gpuwatch-{file.name}": file.read_text() for file in FILES
    }


# --- the dashboards


@boards
def test_settings_of_the_dashboard(file: Path):
    board = load(file)
    assert board["uid"] == f"gpuwatch-{file.stem}"
    assert board["title"] == f"gpuwatch / {TITLES.get(file.stem, file.stem.capitalize())}"
    assert board["description"].endswith("?"), "a dashboard answers a question"
    assert board["tags"] == ["gpuwatch", "gpu", "nvidia"]
    assert board["editable"] is False
    assert board["graphTooltip"] == 1
    assert 39 <= board["schemaVersion"] <= 41
    (link,) = board["links"]
    assert (link["type"], link["tags"], link["keepTime"], link["includeVars"]) == (
        "dashboards",
        ["gpuwatch"],
        True,
        True,
    )


@boards
def test_variables_come_in_the_same_order_everywhere(file: Path):
    order = ["datasource", "cluster", "node", "gpu", "kind", "namespace", "workload", "price", "kwh"]
    names = [variable["name"] for variable in load(file)["templating"]["list"]]
    assert names[:2] == order[:2]
    assert sorted(names, key=order.index) == names


@boards
def test_every_variable_is_used(file: Path):
    text = file.read_text()
    for variable in load(file)["templating"]["list"]:
        assert re.search(rf"\$\{{?{variable['name']}\b", text), variable["name"]


@pytest.mark.parametrize(("board", "variable"), all_variables(), ids=name)
def test_variables(board: str, variable: dict[str, Any]):
    """template-datasource-rule, template-on-time-change-reload-rule, template-label-promql-rule."""
    assert variable["label"]
    if variable["type"] == "datasource":
        assert (variable["label"], variable["query"]) == ("Data source", "prometheus")
    if variable["type"] != "query":
        return
    assert variable["refresh"] == 2, "it must ask again when the time range changes"
    assert variable["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    series, label = label_values(variable)
    (selector,) = selectors(series)
    assert is_known(selector.name)
    assert label in (families().get(selector.name) or kept(selector.name))
    if variable["includeAll"]:
        assert variable["allValue"] == ".*", "All must match series without the label too"


@boards
def test_ids_are_unique(file: Path):
    ids = [panel["id"] for row in load(file)["panels"] for panel in (row, *row.get("panels", ()))]
    assert len(ids) == len(set(ids))


@boards
def test_no_two_panels_overlap(file: Path):
    for one, other in combinations(laid_out(file), 2):
        a, b = one["gridPos"], other["gridPos"]
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, (one["title"], other["title"])


def laid_out(file: Path) -> list[dict[str, Any]]:
    """Rows and panels that are on the page when it opens."""
    return [panel for panel in load(file)["panels"] if panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24]


@boards
def test_everything_fits_into_24_columns(file: Path):
    assert laid_out(file) == load(file)["panels"]
    assert all(panel.json["gridPos"]["x"] + panel.json["gridPos"]["w"] <= 24 for panel in panels(file))


@boards
def test_titles_are_unique(file: Path):
    titles = [(panel.row, panel.title) for panel in panels(file)]
    assert len(titles) == len(set(titles))


# --- panels


@each_panel
def test_panel(panel: Panel):
    """panel-title-description-rule, panel-datasource-rule, panel-units-rule, panel-no-targets-rule."""
    assert panel.title
    assert panel.json["description"].strip()[-1] in ".?`", "a description is a sentence"
    assert panel.json["type"] == "text" or panel.json["targets"]
    if panel.json["type"] != "text":
        assert panel.json["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel.unit in KNOWN_UNITS


@each_panel
def test_links_lead_somewhere(panel: Panel):
    uids = {load(file)["uid"]: load(file) for file in FILES}
    for link in links(panel):
        url = link["url"]
        shown = set(re.findall(r"\$\{__data\.fields\.(\w+)\}", url))
        assert shown <= set(panel.columns), f"{url} names a field the table does not have"
        if not url.startswith("/d/"):
            assert url.startswith((f"{RUNBOOKS}/", "https://docs.nvidia.com/", "/explore"))
            continue
        board = uids[re.match(r"/d/([\w-]+)", url)[1]]  # type: ignore[index]
        names = {variable["name"] for variable in board["templating"]["list"]}
        assert set(re.findall(r"var-(\w+)=", url)) <= names


@each_panel
def test_runbooks_that_are_linked_exist(panel: Panel):
    docs = PLACE.parent / "docs"
    for override in panel.json.get("fieldConfig", {}).get("overrides", ()):
        settings = {setting["id"]: setting["value"] for setting in override["properties"]}
        urls = [link["url"] for link in settings.get("links", ())]
        if any(url.endswith("/runbooks/${__value.text}.md") for url in urls):
            named = {row["text"] for mapping in settings["mappings"] for row in mapping["options"].values()}
            assert {name for name in named if not (docs / "runbooks" / f"{name}.md").exists()} == set()
            return


def test_the_node_is_at_most_three_screens_until_a_row_is_opened():
    """Of 1080 pixels at 38 a row of the grid; what is folded takes one row, whatever it holds."""
    (file,) = (file for file in FILES if file.stem == "node")
    assert max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in load(file)["panels"]) <= 3 * 1080 // 38


def test_no_line_is_red_or_orange_unless_something_is_wrong():
    """Of lines that have a colour of their own: GPUs by number, and a few series of known names."""
    assert not [color for color in PLAIN_COLORS if "red" in color or "orange" in color]
    energy = next(panel for panel in all_panels() if str(panel) == "node / Work / Activity of each GPU")
    given = {o["matcher"]["options"] for o in energy.json["fieldConfig"]["overrides"]}
    assert all(any(re.search(pattern.strip("/"), f"GPU {gpu}") for pattern in given) for gpu in range(16))


# --- queries


def is_promql(target: Target):
    """target-promql-rule."""
    assert parsed(target.expr)
    assert "@" not in target.expr.replace("@ end()", ""), "a selector that was not written out"


def asks_for_what_exists(target: Target):
    for selector in selectors(target.expr, INTERVALS):
        assert is_known(selector.name), selector.name
        labels = families().get(selector.name)
        fixed = known_values(selector.name)
        for label, _, _ in selector.matchers:
            assert labels is None or label in labels, (selector.name, label)
        for label, value in selector.named():
            assert not fixed.get(label) or value in fixed[label], (selector.name, label, value)


def kept(name: str) -> set[str]:
    """Labels of a recorded series: those that its rules group by, set, or have from another record."""
    rules = [rule for group in rule_groups() for rule in group["rules"] if rule.get("record") == name]
    words = {word for rule in rules for by in re.findall(r"by \(([^)]*)\)", rule["expr"]) for word in by.split(", ")}
    read = {each.name for rule in rules for each in selectors(rule["expr"])} & recorded().keys() - {name}
    return words.union(*(rule.get("labels", {}) for rule in rules), *map(kept, read))


def groups_by_labels_that_exist(target: Target):
    names = {selector.name for selector in selectors(target.expr, INTERVALS)}
    labels = (TARGET | made_labels(target.expr)).union(*(families().get(name) or kept(name) for name in names))
    assert grouping(target.expr, INTERVALS) <= labels


def says_whose_series_it_means(target: Target):
    """Cluster and node in place of target-instance-rule; no job; and what other programs have as well is joined."""
    for selector in selectors(target.expr, INTERVALS):
        if selector.name in recorded():
            continue
        matchers = {label: value for label, _, value in selector.matchers}
        assert "job" not in matchers, selector
        assert "cluster" in matchers, selector
        assert selector.name.startswith("gpuwatch_") or "and on (cluster, job, instance)" in target.expr, selector
        assert "node" in matchers, selector


def takes_rates_over_grafanas_intervals(target: Target):
    """target-rate-interval-rule."""
    steps = (
        subquery.step.total_seconds() for subquery in nodes(target.expr, promql_parser.SubqueryExpr) if subquery.step
    )
    allowed = {seconds(RATE_INTERVAL), *((seconds(RANGE), *steps) if target.instant else ())}
    for function, argument in calls(target.expr):
        if function in RATES and isinstance(argument, promql_parser.MatrixSelector):
            assert argument.range.total_seconds() in allowed, target.expr


def reads_counters_by_functions_for_counters(target: Target):
    """target-counter-agg-rule."""
    if target.instant:
        return
    read = [argument for function, argument in calls(target.expr) if function in FOR_COUNTERS]
    fine = {plain(selector) for argument in read for selector in selectors(argument.prettify())}
    for selector in selectors(target.expr, INTERVALS):
        assert not selector.name.endswith("_total") or plain(selector) in fine, selector.name


def plain(selector: Selector) -> tuple[str, frozenset[tuple[str, str, str]]]:
    """A selector whatever the order of its matchers."""
    return selector.name, frozenset(selector.matchers)


RULES = (
    is_promql, asks_for_what_exists, groups_by_labels_that_exist, says_whose_series_it_means,
    takes_rates_over_grafanas_intervals, reads_counters_by_functions_for_counters,
)  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
@boards
def test_every_query(rule: Callable[[Target], None], file: Path):
    targets = [target for target in all_targets() if target.panel.board == file.stem]
    assert targets
    for target in targets:
        try:
            rule(target)
        except AssertionError as failed:
            raise AssertionError(f"{target}: {target.expr}") from failed


@pytest.mark.parametrize(("board", "annotation"), all_annotations(), ids=name)
def test_annotations(board: str, annotation: dict[str, Any]):
    assert annotation["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert all(is_known(selector.name) for selector in selectors(annotation["expr"], INTERVALS))
    shown = set(re.findall(r"\{\{(\w+)\}\}", annotation["titleFormat"] + annotation["textFormat"]))
    assert shown <= grouping(annotation["expr"], INTERVALS), "a text names a label that the query does not keep"


# --- the lint itself


@pytest.mark.parametrize(
    ("rule", "expression"),
    [
        (takes_rates_over_grafanas_intervals, "rate(gpuwatch_gpu_energy_joules_total[5m])"),
        (reads_counters_by_functions_for_counters, "sum(gpuwatch_gpu_energy_joules_total)"),
        (asks_for_what_exists, "gpuwatch_gpu_temperature"),
        (asks_for_what_exists, 'gpuwatch_finding{check="gpu_tired"}'),
        (asks_for_what_exists, 'gpuwatch_gpus{gpu="0"}'),
        (groups_by_labels_that_exist, "sum by (host) (gpuwatch_gpus)"),
        (says_whose_series_it_means, 'gpuwatch_gpus{job="dcgm-exporter", cluster="a", node="b"}'),
        (says_whose_series_it_means, 'gpuwatch_gpus{node="b"}'),
        (says_whose_series_it_means, 'up{cluster="a", node="b"}'),
    ],
)
def test_a_bad_query_is_found(rule: Callable[[Target], None], expression: str):
    with pytest.raises(AssertionError):
        rule(Target(all_panels()[0], {"expr": expression, "instant": False, "refId": "A"}))
