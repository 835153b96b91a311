"""The Alertmanager example: every alert reaches whom it should, and inhibition leaves out no one it should not."""

import itertools
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from alerts import inhibition
from gpuwatch.health.causes import CAUSES
from gpuwatch.sim.node.scenario import seconds
from tests import fast_yaml
from tests.alerts.cases import FINDINGS, NODE_CHECKS

ALERTS = Path(__file__).parent.parent.parent / "alerts"
EXAMPLE = ALERTS / "alertmanager.example.yaml"
CONFIG = fast_yaml.load(EXAMPLE.read_text())
FILES = [fast_yaml.load((ALERTS / name).read_text()) for name in ("gpuwatch.rules.yaml", "dcgm.rules.yaml")]
RULE = {rule["alert"]: rule for file in FILES for each in file["groups"] for rule in each["rules"] if "alert" in rule}
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"(.*)"')
RECEIVERS = {"critical": "gpu-pager", "warning": "gpu-tickets", "info": "gpu-chat"}


def amtool(*words):
    return subprocess.run(["amtool", *words], capture_output=True, text=True, check=False)


def labels(alert, gpu="", check=None):
    """What the alert carries, of node n1 and of a GPU or of none, about its first check unless `check` says which."""
    own = {"gpu": gpu, "UUID" if alert.startswith("Dcgm") else "uuid": gpu and f"GPU-{gpu}"}
    if alert in FINDINGS and alert != inhibition.WITHOUT_CHECK:
        fitting = [name for name in FINDINGS[alert] if (name in NODE_CHECKS) == (not gpu)]
        own["check"] = check or (fitting or FINDINGS[alert])[0]
    return {"alertname": alert, "node": "n1", "instance": "n1", **own, **RULE[alert]["labels"]}


def matches(matchers, found):
    """As Alertmanager matches: a missing label is an empty one, expressions are anchored."""
    return all(HOW[how](found.get(name, ""), pattern) for name, how, pattern in map(_parts, matchers))


HOW = {
    "=": lambda value, pattern: value == pattern,
    "!=": lambda value, pattern: value != pattern,
    "=~": lambda value, pattern: re.fullmatch(pattern, value) is not None,
    "!~": lambda value, pattern: re.fullmatch(pattern, value) is None,
}


@cache
def _parts(matcher):
    return MATCHER.fullmatch(matcher).groups()


def holds_back(source, target):
    """Whether an alert keeps another one back, by any rule."""
    return any(
        matches(rule["source_matchers"], source)
        and matches(rule["target_matchers"], target)
        and all(source.get(name, "") == target.get(name, "") for name in rule["equal"])
        for rule in CONFIG["inhibit_rules"]
    )


EVERY = [
    labels(alert, gpu, check)
    for alert in RULE
    if alert != "GpuFaultWidespread"
    for check in FINDINGS.get(alert, (None,))
    for gpu in ("", "3")
    if check is None or (check in NODE_CHECKS) == (not gpu)
]
FAULTS = sorted(set(re.search(r'alertname=~"([^"]+)"', RULE["GpuFaultWidespread"]["expr"])[1].split("|")))
WIDESPREAD = [{"alertname": "GpuFaultWidespread", "fault": fault} for fault in FAULTS]
"""It has no node, and a label that says which alert so many nodes have."""


@cache
def pairs():
    """Every two alerts of which one keeps the other back."""
    return [(source, target) for source, target in itertools.permutations(EVERY, 2) if holds_back(source, target)]


def test_amtool_takes_it():
    done = amtool("check-config", str(EXAMPLE))
    assert done.returncode == 0, done.stderr
    assert f"{len(CONFIG['inhibit_rules'])} inhibit rules" in done.stdout


@pytest.mark.parametrize("alert", RULE)
def test_each_alert_goes_to_the_receiver_of_its_severity(alert):
    words = [f"{name}={value}" for name, value in labels(alert).items() if value]
    receiver = RECEIVERS[RULE[alert]["labels"]["severity"]]
    done = amtool("config", "routes", "test", f"--config.file={EXAMPLE}", f"--verify.receivers={receiver}", *words)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("alertname=KubePodCrashLooping", "severity=critical"),
        ("alertname=GpuTooExpensive", "severity=warning"),
        ("alertname=Watchdog", "component=gpu"),
    ],
)
def test_alerts_of_others_go_elsewhere(words):
    done = amtool("config", "routes", "test", f"--config.file={EXAMPLE}", "--verify.receivers=others", *words)
    assert done.returncode == 0, done.stdout + done.stderr


def test_after_a_reboot_the_number_may_be_that_of_another_gpu():
    lost = labels("GpuFellOffBus", "3")
    assert not any(holds_back(lost, {**labels(alert, "3"), "uuid": "GPU-4"}) for alert in RULE)


def test_what_many_nodes_have_is_one_page_and_hides_nothing_else():
    for source in WIDESPREAD:
        assert {target["alertname"] for target in EVERY if holds_back(source, target)} == {source["fault"]}
        assert not any(holds_back(source, {**target, "cluster": "b"}) for target in EVERY)


def test_a_ticket_about_gpuwatch_is_one_for_all_nodes():
    (found,) = (route for route in CONFIG["route"]["routes"][0]["routes"] if "group_by" in route)
    assert found["matchers"] == ['component=~"gpuwatch|remediation|tuning"']
    assert "node" not in found["group_by"]


def test_a_group_is_a_kind_of_trouble_of_a_node():
    assert CONFIG["route"]["routes"][0]["group_by"] == ["cluster", "alertname", "node", "instance"]


def test_what_something_critical_may_hold_back_waits_longer_than_that():
    """Unless both come of the same reading, as it is with the lost GPU and the driver that hangs as a whole."""
    together = {"GpuRecoveryActionRequired", "GpuUnresponsive"}
    critical = CONFIG["route"]["routes"][0]["routes"][0]
    (patient,) = critical["routes"]
    _, _, names = MATCHER.fullmatch(patient["matchers"][0]).groups()
    late = {target["alertname"] for _, target in pairs() if target["severity"] == "critical"}
    assert set(names.split("|")) == late - together
    assert int(patient["group_wait"][:-1]) > int(critical["group_wait"][:-1])


def test_inhibition_names_alerts_that_exist():
    patterns = [
        MATCHER.fullmatch(matcher).groups()
        for rule in CONFIG["inhibit_rules"]
        for matcher in rule["source_matchers"] + rule["target_matchers"]
    ]
    names = {name for label, _, pattern in patterns if label == "alertname" for name in pattern.split("|")}
    assert all(any(re.fullmatch(name, alert) for alert in RULE) for name in names)
    assert {label for label, *_ in patterns} <= {
        "alertname",
        "severity",
        "component",
        "uuid",
        "UUID",
        "reason",
        "fault",
        "check",
    }


def test_each_rule_of_inhibition_holds_something_back():
    for rule in CONFIG["inhibit_rules"]:
        blocked = [{**found, "reason": "stale"} for found in EVERY]
        sources = [found for found in EVERY + WIDESPREAD if matches(rule["source_matchers"], found)]
        targets = [found for found in blocked if matches(rule["target_matchers"], found)]
        assert sources, rule
        assert targets, rule


def test_what_follows_from_a_finding_is_held_back_as_the_table_of_causes_has_it():
    assert EXAMPLE.read_text() == inhibition.example(EXAMPLE.read_text()), "run `make generate`"
    alert_of = {check: alert for alert, checks in FINDINGS.items() for check in checks}
    for cause in CAUSES:
        for source, target in itertools.product(cause.checks, cause.effects):
            found = [labels(alert_of[check], "" if check in NODE_CHECKS else "3", check) for check in (source, target)]
            milder = found[0]["severity"] != "critical" and found[1]["severity"] == "critical"
            assert source == target or target in cause.checks or milder or holds_back(*found), (source, target)


def test_no_two_alerts_hold_each_other_back():
    assert [pair for pair in pairs() if pair[::-1] in pairs()] == []


def test_what_is_critical_is_only_held_back_by_something_critical():
    assert {source["severity"] for source, target in pairs() if target["severity"] == "critical"} == {"critical"}


def test_other_nodes_and_other_gpus_are_never_silenced():
    """Equal labels keep a rule to one node; rules about one GPU have `gpu` among them."""
    for source, target in pairs():
        if source["alertname"] == "GpuwatchAbsent":  # of all nodes of a cluster
            assert not holds_back({**source, "cluster": "a"}, {**target, "cluster": "b"})
            continue
        assert not holds_back(source, {**target, "node": "n2", "instance": "n2"})
        assert not holds_back({**source, "node": ""}, {**target, "node": "", "instance": "10.0.0.2:9400"})
        assert not holds_back({**source, "cluster": "a"}, {**target, "cluster": "b"})
    lost = labels("GpuFellOffBus", "3")
    assert not any(holds_back(lost, labels(alert, "4")) for alert in RULE)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (("GpuFellOffBus", "3"), ("GpuXidCritical", "3")),
        (("GpuFellOffBus", "3"), ("GpuXidApplication", "3")),
        (("GpuRecoveryActionRequired", "3"), ("GpuEccUncorrectable", "3")),
        (("GpuMemoryUnrepairable", "3"), ("GpuXidCritical", "3")),
        (("GpuXidCritical", "3"), ("GpuRepairPending", "3")),
        (("GpuNvswitchFatal", ""), ("GpuNvlinkDown", "3")),
        (("GpuUnresponsive", ""), ("GpuUnresponsive", "3")),
        (("GpuwatchDown", ""), ("GpuwatchSampleStale", "")),
        (("GpuwatchNvmlDown", ""), ("GpuMissing", "")),
        (("GpuNodeQuarantined", ""), ("GpuHardwareSlowdown", "4")),
        (("GpuwatchWorkloadMappingDown", ""), ("GpuwatchMonitoringDegraded", "")),
        (("DcgmXidCritical", "3"), ("DcgmGpuTemperatureHigh", "3")),
    ],
)
def test_it_holds_back_what_is_superfluous(source, target):
    assert holds_back(labels(*source), labels(*target))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (("GpuFellOffBus", "3"), ("GpuMemoryUnrepairable", "3")),
        (("GpuNodeQuarantined", ""), ("GpuXidCritical", "4")),
        (("GpuNodeQuarantined", ""), ("GpuRemediationBlocked", "")),
        (("GpuNodeQuarantined", ""), ("GpuNodeQuarantinedLong", "")),
        (("GpuNodeQuarantined", ""), ("GpuXidApplication", "4")),
        (("GpuNodeQuarantined", ""), ("GpuXidContained", "4")),
        (("GpuNvswitchFatal", ""), ("GpuRemediationBlocked", "")),
        (("GpuwatchNvmlDown", ""), ("GpuwatchStoreDown", "")),
    ],
)
def test_it_lets_through_what_must_be_known(source, target):
    assert not holds_back(labels(*source), labels(*target))


def test_a_cause_is_reported_before_what_follows_from_it():
    """Both may begin at the same time: what waits longer could hold nothing back. What is told at once does not wait
    for its cause.
    """
    alert_of = {check: alert for alert, checks in FINDINGS.items() for check in checks}
    waits = {alert: seconds(rule["for"]) for alert, rule in RULE.items() if "for" in rule}
    pairs = {(alert_of[a], alert_of[b]) for cause in CAUSES for a, b in itertools.product(cause.checks, cause.effects)}
    assert [(a, b) for a, b in sorted(pairs) if a != b and b in waits and waits.get(a, 0) > waits[b]] == []
