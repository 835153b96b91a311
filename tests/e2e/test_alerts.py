"""Each fault of a simulated node reaches the webhook as exactly the alerts that it should, and so does its end."""

import pytest
import yaml

from tests.e2e.alert_cases import CASES
from tests.e2e.alerting import RULES, hurried, run, summary, table, wanted
from tests.e2e.alertmanager import EXAMPLE, quick

STORIES = [case.story for case in CASES]
ELSEWHERE = {
    "GpuwatchSampleStale": "needs an agent that answers and does not look for a minute",
    "GpuwatchSourceDown": "the simulator's lesser sources do not fail",
    "GpuwatchRestarting": "counts over an hour",
    "GpuwatchReaderRestarting": "counts over an hour",
    "GpuwatchStoreDown": "needs a disk that fails",
    "GpuRemediationFlapping": "counts over a day",
    "GpuFaultWidespread": "needs the same fault on more nodes",
    "GpuPowerLimitDrift": "an hour of somebody else's power limit; the simulated driver's default is in force here",
    "GpuwatchTunerConflict": "needs a tuner that enforces: tests/drills",
    "GpuwatchTunerReverted": "counts over an hour",
    "GpuwatchTunerNoGuard": "needs a tuner that enforces: tests/drills",
    "GpuwatchTunerSettingKept": "needs a tuner that enforces: tests/drills",
    "GpuwatchPowerBudgetExceeded": "needs a tuner that enforces, and a budget that cannot be kept",
    "GpuwatchTunerSlowdownOverBound": "lasts two hours, four verifications",
}
"""Alerts that only promtool's unit tests let fire, and why."""

URGENT_SECONDS = 20.0
"""From a fault to the webhook, where the rule has no `for`; far more than usual, for machines that are busy."""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Story to Result; all of it happens at the same time."""
    found = run(tmp_path_factory.mktemp("alerts"))
    print(table(found))
    print(summary(found))
    return {result.case.story: result for result in found}


@pytest.mark.parametrize("story", STORIES)
def test_exactly_its_alerts_are_told(results, story):
    result = results[story]
    assert result.told == wanted(result.case, result.case.told)


@pytest.mark.parametrize("story", STORIES)
def test_exactly_its_consequences_are_held_back(results, story):
    result = results[story]
    assert set(result.held_back) == wanted(result.case, result.case.held_back)


@pytest.mark.parametrize("story", [case.story for case in CASES if case.held_back])
def test_without_inhibition_they_would_have_come(results, story):
    result = results[story]
    assert result.without == result.told | set(result.held_back)
    assert result.told.isdisjoint(result.held_back)


@pytest.mark.parametrize("story", STORIES)
def test_the_end_is_told_after_the_repair(results, story):
    result = results[story]
    assert {alert.name for alert in result.told - result.resolved} == set(result.case.lasts)


def test_what_is_urgent_is_told_at_once(results):
    rules = [rule for group in hurried()["groups"] for rule in group["rules"] if "alert" in rule]
    at_once = {rule["alert"] for rule in rules if "for" not in rule and rule["labels"]["severity"] == "critical"}
    seconds = {a: s for result in results.values() for a, s in result.seconds.items() if a.name in at_once}
    assert {alert.name for alert in seconds} == at_once - set(ELSEWHERE)
    assert all(0 < each < URGENT_SECONDS for each in seconds.values())


def test_each_alert_is_tried_here_or_elsewhere():
    rules = yaml.safe_load(RULES.read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule}
    tried = {alert.name for case in CASES for alert in wanted(case, case.told + case.held_back)}
    assert tried | set(ELSEWHERE) == alerts
    assert tried.isdisjoint(ELSEWHERE)


def test_only_waits_are_shorter_than_in_the_rules():
    def without_waits(rules):
        return [
            {key: value for key, value in rule.items() if key not in {"for", "keep_firing_for"}}
            for group in rules["groups"]
            for rule in group["rules"]
        ]

    assert without_waits(hurried()) == without_waits(yaml.safe_load(RULES.read_text()))
    assert quick("http://127.0.0.1:1", True)["inhibit_rules"] == yaml.safe_load(EXAMPLE.read_text())["inhibit_rules"]
