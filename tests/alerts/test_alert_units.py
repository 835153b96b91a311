"""Every alert fires when it should, not before, and ends when it should: promtool evaluates the rules on cases."""

import pytest

from tests.alerts.cases import CASES, OTHER_FINDINGS
from tests.alerts.timeline import Case, check, group
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
    silent = [group(RULES, Case(name, {"up{job='other'}": (1, 1)}, lasts=90, fires=False)) for name in NAMES]
    assert check(RULES, NAMES, silent, tmp_path) == ""


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
