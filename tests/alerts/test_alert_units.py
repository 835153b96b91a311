"""Every alert fires when it should, not before, and ends when it should: promtool evaluates the rules on cases."""

import pytest

from tests.alerts.cases import CASES, OTHER_FINDINGS
from tests.alerts.timeline import Case, ask, check, group
from tests.promql import RULES, alerts

ALL = [*CASES, *OTHER_FINDINGS]
NAMES = sorted(alerts())
COUNTERS = ("increase(", "rate(", "changes(")


def of(name: str) -> list[Case]:
    return [case for case in ALL if case.alert == name]


@pytest.mark.parametrize("name", NAMES)
def test_an_alert_fires_in_its_minutes_only(name, tmp_path):
    """The first case once more on a target without the label `cluster`."""
    firing = next(case for case in of(name) if case.fires)
    groups = [group(RULES, firing, cluster=None), *(group(RULES, case) for case in of(name))]
    assert check(RULES, [name], groups, tmp_path) == ""


def test_nothing_fires_without_series(tmp_path):
    question = {"expr": "count_over_time(ALERTS[2h])", "eval_time": "90m", "exp_samples": []}
    other = {"series": 'up{job="other",node="n1"}', "values": "1x90"}
    silence = {"interval": "1m", "input_series": [other], "promql_expr_test": [question]}
    assert ask({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [silence]}, tmp_path) == ""


def test_what_many_nodes_have_is_said_in_the_same_evaluation(tmp_path):
    """Else each node would page before it is known that they are many."""
    nodes = [f'job="gpuwatch",node="n{n}",instance="n{n}"' for n in range(9)]
    finding = 'gpuwatch_finding{{{},gpu="0",uuid="GPU-0",check="xid_fatal",severity="critical"}}'
    inputs = [{"series": f"up{{{node}}}", "values": "1x20"} for node in nodes]
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
