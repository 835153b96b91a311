"""One remedy and one severity: catalogue, checks, alerts, runbooks, dashboards, `diagnose` say the same."""

import json
import re

import msgspec
import pytest

from alerts.page import PAGES
from gpuwatch.cli.console.remedies import REMEDY_STEPS
from gpuwatch.cli.xid.page import first_remedy
from gpuwatch.diagnose.checks.remedies import ADVICE
from gpuwatch.health.checks import CHECK_BY_NAME
from gpuwatch.health.xid.classify import FATAL_ACTIONS, classify
from gpuwatch.metrics.metric import MetricContext
from gpuwatch.metrics.native.node import HEALTH
from gpuwatch.model.finding import Finding, Judgement, Remedy, Severity
from gpuwatch.model.snapshot import Ecc, RowRemap
from gpuwatch.model.xid import XidEvent
from gpuwatch.model.xid_catalogue import XidInfo, all_xids
from tests.alerts.cases import FINDINGS
from tests.health.judging import Bench
from tests.model.views import bare
from tests.promql import ROOT, alerts

ALERTS = alerts()
VERBS = {
    Remedy.RESET_GPU: re.compile(r"\breset\b", re.IGNORECASE),
    Remedy.REBOOT_NODE: re.compile(r"\breboot", re.IGNORECASE),
    Remedy.INSPECT: re.compile(r"\blook", re.IGNORECASE),
    Remedy.CONTACT_SUPPORT: re.compile(r"\b(support|vendor)\b", re.IGNORECASE),
}
"""What a text must say that names this rung of the ladder."""


@pytest.mark.parametrize("alert", FINDINGS)
def test_an_alert_is_as_severe_as_its_checks(alert: str) -> None:
    assert {CHECK_BY_NAME[check].severity for check in FINDINGS[alert]} == {ALERTS[alert]["labels"]["severity"]}


def test_what_pages_is_in_one_list_with_its_reason() -> None:
    assert {name for name, rule in ALERTS.items() if rule["labels"]["severity"] == "critical"} == set(PAGES)


def test_what_a_gpu_contains_does_not_page() -> None:
    bench = Bench(0)
    bench.make(0, ecc=Ecc(counts={"uncorrected/volatile/total": 1}), row_remap=RowRemap(pending=True))
    bench.cycle(bench.xid(94))
    found = {finding.check for finding in bench.last.findings}
    assert {"xid_contained", "ecc_uncorrected", "row_remap_pending"} <= found
    assert not {alert for alert, checks in FINDINGS.items() if found & set(checks)} & set(PAGES)


FATAL = [info for info in all_xids() if classify(XidEvent(at=0.0, xid=info.code, source="nvml"), {}) == "fatal"]


@pytest.mark.parametrize("info", FATAL, ids=lambda info: str(info.code))
def test_a_fatal_xid_has_one_remedy_everywhere(info: XidInfo) -> None:
    bench = Bench(0)
    bench.cycle(bench.xid(info.code))
    finding = bench.finding("xid_fatal")
    assert finding.remedy == first_remedy(info, None, {}) == labels_of(finding)["remedy"]
    assert labels_of(finding)["action"] == finding.action == FATAL_ACTIONS[finding.remedy]
    texts = (finding.action, REMEDY_STEPS[finding.remedy].text, ADVICE[finding.remedy].text)
    assert all(VERBS[finding.remedy].search(text) for text in texts)


def test_a_gpu_that_fell_off_the_bus_asks_for_a_reboot_in_every_text() -> None:
    bench = Bench(0)
    bench.cycle(bench.xid(79))
    assert bench.finding("xid_fatal").remedy == CHECK_BY_NAME["gpu_lost"].remedy == Remedy.REBOOT_NODE
    for alert in ("GpuFellOffBus", "GpuXidCritical"):
        assert "reboot" in (ROOT / "docs" / "runbooks" / f"{alert}.md").read_text()
    assert "reboot" in ALERTS["GpuFellOffBus"]["annotations"]["description"]


def test_of_several_xids_the_gravest_remedy_counts() -> None:
    several = [
        Finding(check="xid_fatal", severity=Severity.CRITICAL, message="", xid=xid, remedy=helps)
        for xid, helps in ((95, Remedy.RESET_GPU), (79, Remedy.REBOOT_NODE), (48, Remedy.RESET_GPU))
    ]
    assert labels_of(*several)["remedy"] == "reboot_node"


@pytest.mark.parametrize("name", ["fleet", "node", "workload"])
def test_dashboards_hold_no_advice_of_their_own(name: str) -> None:
    """No value mapping turns a check into something to do: that is a label of `gpuwatch_finding_info`."""
    board = (ROOT / "dashboards" / f"{name}.json").read_text()
    actions = {check.action for check in CHECK_BY_NAME.values()} | set(FATAL_ACTIONS.values())
    assert not [action for action in actions if json.dumps(action) in board]


def labels_of(*findings: Finding) -> dict[str, str | None]:
    """The labels of the one series of `gpuwatch_finding_info`, as of a fault of the node."""
    findings = tuple(msgspec.structs.replace(finding, gpu=None) for finding in findings)
    (row,) = (row for row in HEALTH if row.name == "finding_info")
    view = msgspec.structs.replace(bare(), judgement=Judgement(findings=findings))
    (sample,) = row.family(MetricContext(view)).samples
    return dict(zip(row.labels, sample[0][1], strict=True))
