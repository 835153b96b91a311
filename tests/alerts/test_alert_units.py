"""Every alert fires when it should, not before, and ends when it should: promtool evaluates the rules on cases."""

import pytest

from tests.alerts.cases import CASES, OTHER_FINDINGS
from tests.alerts.timeline import Case, ask, check, group
from tests.promql import RULES, alerts
from tests.seeds import a_third

ALL = [*CASES, *OTHER_FINDINGS]
NAMES = sorted(alerts())
LONG = {"GpuAllocatedIdle", "GpuNodeQuarantinedLong", "GpuStraggler", "GpuRemediationFlapping", "GpuFaultWidespread"}
"""Seconds of promtool for each: hours of many series; what they read is checked in test_alert_rules.py."""
COUNTERS = ("increase(", "rate(", "changes(")


def of(name: str) -> list[Case]:
    return [case for case in ALL if case.alert == name]


@pytest.mark.parametrize(
    "name",
    [
        *a_third(name for name in NAMES if name not in LONG),
        *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES if name in LONG),
    ],
)
def test_an_alert_fires_in_its_minutes_only(name, tmp_path):
    """The first case once more on a target without the labels `cluster` and `node` and under other jobs."""
    firing = next(case for case in of(name) if case.fires)
    series = {series.replace('job="gpuwatch', 'job="gpus'): values for series, values in firing.series.items()}
    labels = {
        label: value.replace("gpuwatch", "gpus") if label == "job" else value for label, value in firing.labels.items()
    }
    target = {label: value for label, value in firing.target.items() if label != "node"}
    elsewhere = firing._replace(series=series, labels=labels, target=target)
    groups = [group(RULES, elsewhere, cluster=None), *(group(RULES, case) for case in of(name))]
    assert check(RULES, [name], groups, tmp_path) == ""


def test_nothing_fires_without_series(tmp_path):
    question = {"expr": "count_over_time(ALERTS[2h])", "eval_time": "90m", "exp_samples": []}
    other = {"series": 'up{job="other",node="n1"}', "values": "1x90"}
    silence = {"interval": "1m", "input_series": [other], "promql_expr_test": [question]}
    assert ask({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [silence]}, tmp_path) == ""


def test_what_many_nodes_have_is_reported_in_the_same_evaluation(tmp_path):
    """Else each node would page before it is known that they are many."""
    nodes = [f'job="gpuwatch",node="n{n}",instance="n{n}"' for n in range(9)]
    finding = 'gpuwatch_finding{{{},gpu="0",uuid="GPU-0",check="xid_fatal",severity="critical"}}'
    inputs = [{"series": f"gpuwatch_snapshot_timestamp_seconds{{{node}}}", "values": "1x20"} for node in nodes]
    inputs += [{"series": finding.format(node), "values": "_x10 1x10"} for node in nodes]
    question = 'count(ALERTS{alertname="GpuFaultWidespread",alertstate="firing",fault="GpuXidCritical"})'
    asked = [
        {"expr": question, "eval_time": "9m", "exp_samples": []},
        {"expr": question, "eval_time": "10m", "exp_samples": [{"labels": "{}", "value": 1}]},
    ]
    played = {"interval": "1m", "input_series": inputs, "promql_expr_test": asked}
    assert ask({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [played]}, tmp_path) == ""


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_has_its_cases(name):
    cases = of(name)
    assert any(case.fires for case in cases), "no case in which it fires"
    assert any(not case.fires for case in cases), "no case of a healthy node"
    if any(function in alerts()[name]["expr"] for function in COUNTERS):
        assert any("born" in case.why for case in cases), "no case of a counter that was there before"


def test_promtool_notices_a_wrong_case(tmp_path):
    wrong = next(case for case in CASES if case.alert == "GpuFellOffBus")
    assert "ALERTS" in check(RULES, [wrong.alert], [group(RULES, wrong._replace(delay=3))], tmp_path)
