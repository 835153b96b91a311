"""Every safety rule of the tuner (docs/tuning.md) has tests that carry its number."""

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]

RULES = {
    1: "never above the original",
    2: "recorded before it is set",
    3: "given back at every end",
    4: "given back after SIGKILL",
    5: "another boot or driver: forgotten, not restored",
    6: "what cannot be read is not written",
    7: "another owner never inherits a cap",
    8: "nothing is tuned that is in trouble",
    9: "others who turn the knobs are given way",
    10: "no more than so many actions an hour",
    11: "bounded harm while it searches",
    12: "nothing is set unless mode is enforce",
    13: "every decision is told",
    14: "a person can give everything back",
    15: "least privilege",
}

NAME = re.compile(r"^def (test_s(\d+)_\w+)\(", re.MULTILINE)


@cache
def found() -> dict[int, list[str]]:
    """Every test that names a rule, by rule."""
    tests: dict[int, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        for test, rule in NAME.findall(path.read_text()):
            tests[int(rule)].append(f"{path.relative_to(TESTS)}::{test}")
    return tests


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"S{rule}")
def test_each_safety_rule_has_a_test_that_names_it(rule: int) -> None:
    tests = found().get(rule, [])
    print(f"S{rule}, {RULES[rule]}:", *tests, sep="\n  ")
    assert tests


def test_no_test_names_a_rule_that_there_is_not() -> None:
    assert set(found()) <= set(RULES)
