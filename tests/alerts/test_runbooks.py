"""Every alert has a runbook, and the runbooks say what the rules say."""

import re

import pytest

from alerts.page import FINDING
from gpuwatch.config import ChecksConfig
from gpuwatch.health.check import Check
from gpuwatch.health.checks import CHECK_BY_NAME
from gpuwatch.model.finding import Remedy, Response
from tests.promql import ROOT, alerts

RUNBOOKS = ROOT / "docs" / "runbooks"
ALERTS = alerts()
PAGES = sorted(page.stem for page in RUNBOOKS.glob("*.md") if page.stem != "README")
SECTIONS = ["Meaning", "Impact", "Check", "Mitigate", "Verify", "Escalate"]
RELEASE = "[release the node](README.md#release-the-node)"
STAYS = {"5m": "5 minutes", "10m": "10 minutes", "15m": "15 minutes", "30m": "30 minutes", "1h": "1 hour"}
COUNTS = {2: "two good", 3: "three good", 5: "five good", 10: "ten samples in a row"}
ON_THE_HARDWARE = {Remedy.RESET_GPU, Remedy.REBOOT_NODE, Remedy.CONTACT_SUPPORT}
FIRST = re.compile(r"Severity `(?P<severity>\w+)`\. (?P<sentence>.+)")


def page(alert):
    return (RUNBOOKS / f"{alert}.md").read_text()


def first(alert):
    """The line under the title, taken apart."""
    return FIRST.fullmatch(page(alert).splitlines()[2])


def section_of(text, title):
    return re.split(r"^## .+$", text.partition(f"\n## {title}\n")[2], maxsplit=1, flags=re.M)[0]


def sections(alert):
    """Title to text."""
    parts = re.split(r"^## (.+)\n", page(alert), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def checks(alert) -> list[Check]:
    """Whose findings the alert is about."""
    found = FINDING.findall(ALERTS[alert]["expr"])
    return [CHECK_BY_NAME[name] for names in found for name in names.split("|")]


def needs_the_node(alert) -> bool:
    """Work has to leave: the default policy keeps it away, or what helps disturbs it, or the page itself has it leave.
    Alerts about the remediator are of Kubernetes alone.
    """
    if any(
        check.response.reaches(Response.TAINT)
        or (check.remedy in ON_THE_HARDWARE and check.most.reaches(Response.TAINT))
        for check in checks(alert)
    ):
        return True
    leaves = "    gpuwatch node quarantine" in sections(alert).get("Mitigate", "")
    return leaves and "gpuwatch_remediator" not in ALERTS[alert]["expr"]


def test_each_alert_has_a_runbook_and_each_runbook_an_alert():
    assert sorted(ALERTS) == PAGES


@pytest.mark.parametrize("alert", PAGES)
def test_it_has_the_six_sections_and_nothing_empty(alert):
    assert page(alert).startswith(f"# {alert}\n")
    assert list(sections(alert)) == SECTIONS
    assert all(len(body.split()) >= 10 for body in sections(alert).values())


@pytest.mark.parametrize("section", ["Check", "Verify"])
@pytest.mark.parametrize("alert", PAGES)
def test_it_has_a_command_to_begin_and_to_end_with(alert, section):
    assert "\n    " in sections(alert)[section]


@pytest.mark.parametrize("alert", [alert for alert in PAGES if needs_the_node(alert)])
def test_what_takes_a_node_out_is_there_for_each_platform(alert):
    taken_out = sections(alert).get("Mitigate", "")
    assert re.search(r"gpuwatch node quarantine --node NODE .*--reason .*# Kubernetes\n", taken_out)
    assert re.search(r"scontrol update nodename=NODE state=drain reason=\S.*# Slurm", taken_out)
    assert re.search(r"systemctl stop .*UNIT +# server", taken_out)
    assert RELEASE in sections(alert)["Verify"]


def test_what_releases_a_node_is_there_for_each_platform():
    for command in (
        "gpuwatch node release --node NODE",
        "scontrol update nodename=NODE state=resume",
        "systemctl start",
    ):
        assert f"\n    {command}" in section_of(page("README"), "Release the node")


@pytest.mark.parametrize("alert", PAGES)
def test_it_says_how_long_the_alert_stays_and_how_its_findings_end(alert):
    rule, verify = ALERTS[alert], " ".join(sections(alert)["Verify"].split())
    if "keep_firing_for" in rule:
        assert STAYS[rule["keep_firing_for"]] in verify
    for check in checks(alert):
        if check.ends == "time":
            assert "an hour (`checks.xid_expire`)" in verify
        elif check.clear_after > 1:
            assert COUNTS[check.clear_after] in verify


def test_an_hour_is_when_xids_expire():
    assert ChecksConfig().xid_expire == 3600


@pytest.mark.parametrize("alert", PAGES)
def test_a_case_for_the_vendor_has_its_evidence(alert):
    handed_over = sections(alert)["Escalate"]
    if "vendor" in handed_over:
        assert "gpuwatch diagnose --bundle" in " ".join(handed_over.split())


@pytest.mark.parametrize("alert", PAGES)
def test_it_can_be_read_at_night(alert):
    lines = page(alert).splitlines()
    assert 20 <= len(lines) <= 60
    assert all(len(line) <= 150 for line in lines if not line.startswith("|"))


@pytest.mark.parametrize("alert", PAGES)
def test_severity_and_findings_are_those_of_the_rule(alert):
    line = first(alert)
    assert line["severity"] == ALERTS[alert]["labels"]["severity"]
    said = re.findall(r"`(\w+)`", line["sentence"]) if "inding" in line["sentence"] else []
    assert all(name in ALERTS[alert]["expr"] for name in said)


def test_no_paragraph_is_copied_from_one_to_another():
    paragraphs = [part for alert in PAGES for part in re.split(r"\n\s*\n", page(alert)) if len(part.split()) > 25]
    assert len(paragraphs) == len(set(paragraphs))


def test_the_index_lists_them_by_severity_in_the_order_of_the_rules():
    for severity in ("critical", "warning", "info"):
        rows = [f"- [{alert}]({alert}.md)" for alert in ALERTS if first(alert)["severity"] == severity]
        listed = page("README").partition(f"\n### {severity.capitalize()}\n")[2].partition("\n### ")[0]
        assert listed.split("\n") == ["", *rows, ""]


@pytest.mark.parametrize("alert", [*PAGES, "README"])
def test_alerts_it_names_exist(alert):
    named = set(re.findall(r"\bGpu(?:watch)?[A-Z][a-z]\w+\b", page(alert)))
    assert named <= set(ALERTS)
