"""docs/alerts.md is what the rules and the Alertmanager example say now."""

from pathlib import Path

from alerts.page import EXAMPLE, RULES, page
from tests import fast_yaml

COMMITTED = Path(__file__).parent.parent.parent / "docs" / "alerts.md"


def test_the_committed_page_is_up_to_date():
    assert COMMITTED.read_text() == page(), "run `make generate`"


def test_each_alert_has_a_row_and_each_rule_of_inhibition_too():
    rules = [rule for group in fast_yaml.load(RULES.read_text())["groups"] for rule in group["rules"]]
    lines = page().splitlines()
    for rule in rules:
        beginning = f"| [{rule['alert']}](" if "alert" in rule else f"- `{rule['record']}`"
        assert len([line for line in lines if line.startswith(beginning)]) == 1
    inhibition = fast_yaml.load(EXAMPLE.read_text())["inhibit_rules"]
    assert len([line for line in lines if line.endswith((" | cluster |", " | node |", " | GPU |"))]) == len(inhibition)
