"""Each fault of a simulated node reaches the webhook as exactly the alerts that it should, and so does its end."""

import pytest

from tests import fast_yaml
from tests.e2e.alert_cases import CASES
from tests.e2e.alerting import RULES, Result, hurried, run, summary, table, wanted
from tests.e2e.alertmanager import EXAMPLE, quick
from tests.e2e.shared import once

STORIES = [case.story for case in CASES]
ELSEWHERE = {
    "GpuwatchSampleStale": "needs an agent that answers and does not look for a minute",
    "GpuwatchSourceDown": "the simulator's lesser sources do not fail",
    "GpuNotAllocatable": "needs a device plugin that counts a GPU out: tests/sim/test_world.py",
    "GpuwatchAbsent": "needs a Prometheus from which every agent has gone",
    "GpuMigChangePending": "the same rule as GpuRepairPending, over another check",
    "GpuDriverSlow": "needs a driver whose calls take long: tests/drills/test_sick_driver.py",
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

URGENT_SECONDS = 40.0
"""From a fault to the webhook, where the rule has no `for`; far more than usual, for machines that are busy."""

QUICK = "falls off the bus (XID 79)"

FADES = {"GpuStraggler"}
"""A mean of five minutes: whether it is over at the end depends on how long all the stories took."""

slow = pytest.mark.slow
"""All nodes at once take minutes. In `make test` one fault goes the same way from end to end, and promtool tries every
alert's rule (tests/alerts), inhibition included.
"""


def trouble(result: Result) -> list[str]:
    """In what a case was otherwise than it should be."""
    case, names = result.case, {alert.name for alert in result.notified - result.resolved}
    promises = {
        f"notified {result.notified}": result.notified == wanted(case, case.notified),
        f"held back {result.held_back}": set(result.held_back) == wanted(case, case.held_back),
        f"notified where nothing is held back {result.without}": result.without
        == result.notified | set(result.held_back),
        f"notified and held back {result.notified}": result.notified.isdisjoint(result.held_back),
        f"never resolved {names}": set(case.lasts) - FADES <= names <= set(case.lasts),
    }
    return [f"{case.story}: {words}" for words, holds in promises.items() if not holds]


def test_a_fault_and_its_end_are_reported_and_its_consequence_is_held_back(tmp_path):
    """From a simulated GPU through agent, Prometheus and Alertmanager to the webhook."""
    (result,) = run(tmp_path, [case for case in CASES if case.story == QUICK])
    assert result.notified
    assert result.held_back
    assert not trouble(result)


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """Story to Result; all of it happens at the same time, once in a run."""
    found = once(tmp_path_factory, "alerts", run)
    print(table(found))
    print(summary(found))
    return {result.case.story: result for result in found}


@slow
@pytest.mark.parametrize("story", STORIES)
def test_exactly_its_alerts_are_reported_held_back_and_resolved(results, story):
    assert not trouble(results[story])


@slow
def test_what_is_urgent_is_reported_at_once(results):
    rules = [rule for group in hurried()["groups"] for rule in group["rules"] if "alert" in rule]
    at_once = {rule["alert"] for rule in rules if "for" not in rule and rule["labels"]["severity"] == "critical"}
    seconds = {a: s for result in results.values() for a, s in result.seconds.items() if a.name in at_once}
    assert {alert.name for alert in seconds} == at_once - set(ELSEWHERE)
    assert all(0 < each < URGENT_SECONDS for each in seconds.values())


def test_each_alert_is_tried_here_or_elsewhere():
    rules = fast_yaml.load(RULES.read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule}
    tried = {alert.name for case in CASES for alert in wanted(case, case.notified + case.held_back)}
    assert tried | set(ELSEWHERE) == alerts
    assert tried.isdisjoint(ELSEWHERE)


def test_only_waits_are_shorter_than_in_the_rules():
    def without_waits(rules):
        return [
            {key: value for key, value in rule.items() if key not in {"for", "keep_firing_for"}}
            for group in rules["groups"]
            for rule in group["rules"]
        ]

    assert without_waits(hurried()) == without_waits(fast_yaml.load(RULES.read_text()))
    assert quick("http://127.0.0.1:1", True)["inhibit_rules"] == fast_yaml.load(EXAMPLE.read_text())["inhibit_rules"]
