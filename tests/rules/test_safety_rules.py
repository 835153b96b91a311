"""Every safety rule of the tuner (docs/tuning.md) has tests that carry its number."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

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

NAME = re.compile(r"test_s(\d+)_")


def named() -> Iterator[tuple[int, str]]:
    """(rule, test) of every test that names one."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and (found := NAME.match(node.name)):
                yield int(found[1]), f"{path.relative_to(TESTS)}::{node.name}"


FOUND: dict[int, list[str]] = defaultdict(list)
for _rule, _test in named():
    FOUND[_rule].append(_test)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"S{rule}")
def test_each_safety_rule_has_a_test_that_names_it(rule: int) -> None:
    print(f"S{rule}, {RULES[rule]}:", *FOUND[rule], sep="\n  ")
    assert FOUND[rule]


def test_no_test_names_a_rule_that_there_is_not() -> None:
    assert set(FOUND) <= set(RULES)
