"""The rules hold together: what they read exists, what they say helps, and every check has its alert."""

import re
import subprocess

import promql_parser
import pytest

from alerts import prometheusrule
from dashboards.source.stages import STAGE_CODES, STAGES
from dashboards.source.states import CLOCK_EVENTS, HEALTH
from dashboards.source.tuning import TUNING_CODES
from gpuwatch import RUNBOOKS
from gpuwatch.health.checks import CHECK_BY_NAME
from tests import fast_yaml
from tests.alerts.cases import FINDINGS, NODE_CHECKS, STUCK, WAITING
from tests.promql import (
    RULES,
    Selector,
    alerts,
    families,
    grouping,
    is_known,
    label_values,
    recorded,
    selectors,
)

ALERTS = alerts()
EXPRESSIONS = {name: rule["expr"] for name, rule in {**recorded(), **ALERTS}.items()}
MADE_BY_RULES = frozenset({"owner", "reading", "use", "fault"})
"""Labels that rules add."""
TARGETED = frozenset({"up"})
OF_MANY_NODES = "GpuFaultWidespread"
STEP = re.compile(r"First: .{20,}")
QUERIES = re.compile(r"printf `([^`]*)`")
LEVEL = re.compile(r"(device|gpu|model|pod|workload|owner|node_namespace|namespace|node|cluster):gpuwatch_\w+:(\w+)")


def test_promtool_accepts_the_rules():
    done = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{sum(len(group['rules']) for group in groups())} rules found" in done.stdout


def groups():
    return fast_yaml.load(RULES.read_text())["groups"]


def test_no_name_is_used_twice():
    named = [rule["alert"] for group in groups() for rule in group["rules"] if "alert" in rule]
    made = [
        (rule["record"], str(rule.get("labels"))) for group in groups() for rule in group["rules"] if "record" in rule
    ]
    assert len(named) == len(set(named))
    assert len(made) == len(set(made))


def test_the_object_of_the_operator_is_the_rule_file():
    written = prometheusrule.TARGET.read_text()
    assert written == prometheusrule.prometheusrule(RULES.read_text()), "run `make generate`"
    assert fast_yaml.load(written)["spec"]["groups"] == groups()


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_who_what_and_what_to_do(name):
    rule = ALERTS[name]
    said = rule["annotations"]
    assert re.fullmatch(r"(Gpu|Gpuwatch)([A-Z][a-z]+)+", name)
    assert rule["labels"].keys() == {"severity", "component"}
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["labels"]["component"] in ("gpuwatch", "gpu", "workload", "remediation", "tuning")
    assert said["runbook_url"] == f"{RUNBOOKS}/{name}.md"
    assert re.fullmatch(r"[A-Za-z][^{}\n]*\.", said["summary"]), "one sentence without values"
    assert {OF_MANY_NODES: "$labels.fault", "GpuwatchAbsent": "$labels.cluster"}.get(name, "$labels.node") in said[
        "description"
    ]
    assert STEP.search(said["description"]), "no next step"


@pytest.mark.parametrize("name", [name for name, rule in ALERTS.items() if rule["labels"]["component"] == "gpu"])
def test_an_alert_about_a_gpu_says_who_has_it(name):
    said = ALERTS[name]["annotations"]["description"]
    assert ("among them" if name == OF_MANY_NODES else "gpuwatch_gpu_workload_info") in said


def test_every_check_has_one_alert():
    covered = [
        (check, name)
        for name, expression in ((name, rule["expr"]) for name, rule in ALERTS.items())
        for selector in selectors(expression)
        if selector.name == "gpuwatch_finding"
        for label, check in selector.named()
        if label == "check"
    ]
    assert sorted(covered) == sorted((check, name) for name, checks in FINDINGS.items() for check in checks)
    assert sorted(check for check, _ in covered) == sorted(CHECK_BY_NAME)


def test_checks_of_a_node_are_reported_as_such():
    assert set(NODE_CHECKS) == {name for name, check in CHECK_BY_NAME.items() if check.fault_domain != "gpu"}


def test_xids_are_critical_or_not():
    """Every XID is in one class only, and a class is one check."""
    severities = {check: ALERTS[name]["labels"]["severity"] for name, checks in FINDINGS.items() for check in checks}
    assert severities["xid_fatal"] == "critical"
    mild = {check for check in severities if check.startswith("xid_")} - {"xid_fatal"}
    assert {severities[check] for check in mild} == {"warning", "info"}


def test_every_reason_to_wait_or_to_be_stuck_is_sorted():
    assert sorted((*WAITING, *STUCK)) == sorted(label_values("gpuwatch_remediator_blocked")["reason"])


def test_codes_of_states_are_those_that_dashboards_name():
    stages = re.findall(r'stage="(\w+)"} \* (\d)', EXPRESSIONS["node:gpuwatch_remediator_stage:code"])
    assert stages == [(stage.value, code.value) for stage, code in zip(STAGES, STAGE_CODES, strict=True)]
    health = re.findall(r'state="(\w+)"} \* (\d)', EXPRESSIONS["node:gpuwatch_node_health:code"])
    assert health == [(state.text, state.value) for state in HEALTH if state.text != "healthy"]
    of_gpu = re.findall(r'state="(\w+)"}(?: > 0\))? \* (\d)', EXPRESSIONS["gpu:gpuwatch_gpu_health:code"])
    assert of_gpu == health
    tuning = re.findall(r'state="(\w+)"}(?: > 0\))? \* (\d)', EXPRESSIONS["gpu:gpuwatch_tuner_state:code"])
    assert tuning == [(state.text, state.value) for state in TUNING_CODES]
    events = re.findall(r'reason="(\w+)"}(?: > 0\))? \* (\d)', EXPRESSIONS["gpu:gpuwatch_gpu_clock_event:code"])
    assert events == [(reason, str(code)) for code, (reason, *_) in enumerate(CLOCK_EVENTS, start=1)]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_reads_what_exists(name):
    for selector in selectors(EXPRESSIONS[name]):
        exists(selector)
        if selector.name in families() or selector.name in TARGETED:
            assert "job" not in [matcher[0] for matcher in selector.matchers], f"{selector.name} of one job"
    labels = frozenset().union(*families().values()) | MADE_BY_RULES
    assert grouping(EXPRESSIONS[name]) <= labels


@pytest.mark.parametrize("name", ALERTS)
def test_a_description_asks_for_what_exists(name):
    for query in QUERIES.findall(ALERTS[name]["annotations"]["description"]):
        for selector in selectors(query.replace("%q", '"1"')):
            exists(selector)


def exists(selector: Selector) -> None:
    assert is_known(selector.name), f"nobody makes {selector.name}"
    if selector.name in families():
        assert {label for label, _, _ in selector.matchers} <= families()[selector.name], selector
    possible = label_values(selector.name)
    for label, value in selector.named():
        assert value in possible.get(label, {value}), f"{selector.name} never has {label}={value!r}"


@pytest.mark.parametrize("name", recorded())
def test_a_record_is_named_by_level_metric_and_operation(name):
    assert LEVEL.fullmatch(name)


def test_records_are_read_by_alerts_after_they_are_made():
    """A rule of an earlier group may be a whole interval old, so records come first and read only earlier ones."""
    made: set[str] = set()
    for group in groups():
        for rule in group["rules"]:
            read = {selector.name for selector in selectors(rule["expr"]) if ":" in selector.name}
            assert read - {rule.get("record")} <= made
            made |= {rule["record"]} if "record" in rule else set()


def test_a_misspelt_name_is_noticed():
    with pytest.raises(AssertionError, match="nobody makes"):
        exists(selectors("gpuwatch_findings")[0])
    with pytest.raises(AssertionError, match="never has check="):
        exists(selectors('gpuwatch_finding{check=~"gpu_lost|gpu_lots"}')[0])
    with pytest.raises(ValueError, match=r"\S"):
        promql_parser.parse("max by (node (up)")
