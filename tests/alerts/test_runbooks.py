"""Every alert has a runbook, and the runbooks say what the rules say."""

import re

import pytest

from tests.promql import ROOT, alerts

RUNBOOKS = ROOT / "docs" / "runbooks"
ALERTS = alerts()
PAGES = sorted(page.stem for page in RUNBOOKS.glob("*.md") if page.stem != "README")
SECTIONS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
FIRST = re.compile(r"Severity `(?P<severity>\w+)`\. (?P<sentence>.+)")


def page(alert):
    return (RUNBOOKS / f"{alert}.md").read_text()


def first(alert):
    """The line under the title, taken apart."""
    return FIRST.fullmatch(page(alert).splitlines()[2])


def test_each_alert_has_a_runbook_and_each_runbook_an_alert():
    assert sorted(ALERTS) == PAGES


@pytest.mark.parametrize("alert", PAGES)
def test_it_has_the_four_sections_and_nothing_empty(alert):
    text = page(alert)
    assert text.startswith(f"# {alert}\n")
    assert re.findall(r"^## (.+)$", text, re.M) == SECTIONS
    bodies = re.split(r"^## .+$", text, flags=re.M)[1:]
    assert all(len(body.split()) >= 10 for body in bodies)
    assert "\n    " in bodies[SECTIONS.index("Diagnosis")], "no command to begin with"


@pytest.mark.parametrize("alert", PAGES)
def test_it_can_be_read_at_night(alert):
    assert 20 <= len(page(alert).splitlines()) <= 60


@pytest.mark.parametrize("alert", PAGES)
def test_severity_and_findings_are_those_of_the_rule(alert):
    line = first(alert)
    assert line["severity"] == ALERTS[alert]["labels"]["severity"]
    said = re.findall(r"`(\w+)`", line["sentence"]) if "inding" in line["sentence"] else []
    assert all(name in ALERTS[alert]["expr"] for name in said)


def test_no_paragraph_is_copied_from_one_to_another():
    paragraphs = [part for alert in PAGES for part in re.split(r"\n\s*\n", page(alert)) if len(part.split()) > 25]
    assert len(paragraphs) == len(set(paragraphs))


def test_the_index_lists_them_in_the_order_of_the_rules():
    rows = [f"| [{alert}]({alert}.md) | {first(alert)['severity']} | {first(alert)['sentence']} |" for alert in ALERTS]
    assert [line for line in page("README").splitlines() if line.startswith("| [")] == rows


@pytest.mark.parametrize("alert", [*PAGES, "README"])
def test_alerts_it_names_exist(alert):
    named = set(re.findall(r"\bGpu(?:watch)?[A-Z][a-z]\w+\b", page(alert)))
    assert named <= set(ALERTS)
