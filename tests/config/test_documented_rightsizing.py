"""docs/rightsizing.md keeps up: every setting with its real default, every finding, README's figures."""

import re
from pathlib import Path

import msgspec

from gpuwatch.config import RightsizingConfig, parse
from gpuwatch.rightsizing.model.recommendation import FindingKind
from tests import fast_yaml

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "docs" / "rightsizing.md").read_text()
FINDINGS = (ROOT / "docs" / "rightsizing-findings.md").read_text()
EVALUATION = (ROOT / "docs" / "rightsizing-evaluation.md").read_text()
OWN_CHOICE = {"work_classes", "prices", "electricity_price"}
"""Of which the page shows an example, as there is none by default."""


def settings() -> dict:
    (block,) = re.findall(r"```yaml\n(rightsizing:.*?)```", PAGE, re.DOTALL)
    return fast_yaml.load(block)


def test_every_setting_is_there_with_its_default_and_all_are_taken():
    shown = settings()["rightsizing"]
    defaults = msgspec.to_builtins(RightsizingConfig())
    assert set(shown) == set(defaults)
    assert {key: shown[key] for key in shown.keys() - OWN_CHOICE} == {
        key: defaults[key] for key in defaults.keys() - OWN_CHOICE
    }
    assert parse(settings(), "the page").rightsizing.work_classes


def test_every_finding_is_explained():
    assert [finding for finding in FindingKind if f"`{finding}`" not in FINDINGS] == []


def test_figures_of_readme_are_those_of_the_evaluation():
    told = README.split("\n### Who holds more GPU than they use\n")[1].split("\n## ")[0].split("\n### ")[0]
    figures = re.findall(r"\d+\.\d+ %", told)
    assert figures
    assert [figure for figure in figures if figure not in EVALUATION] == []
