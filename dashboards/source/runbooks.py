"""Which alert, and so which runbook, belongs to a check: as the alerting rules, the only place for it, have it."""

import re
from functools import cache
from pathlib import Path

import yaml

RULES = Path(__file__).resolve().parents[2] / "alerts" / "gpuwatch.rules.yaml"


@cache
def alert_of_check() -> dict[str, str]:
    """Check -> alert: the alert whose expression reads `gpuwatch_finding` of that check."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    rules = (rule for group in groups for rule in group["rules"] if "alert" in rule)
    return {
        check: rule["alert"]
        for rule in rules
        for matched in re.findall(r'gpuwatch_finding\{[^}]*check=~?"([^"]+)"', rule["expr"])
        for check in matched.split("|")
    }
