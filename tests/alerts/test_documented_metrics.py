"""Every metric that a document names is one that gpuwatch has: nobody writes a rule over a name that never comes."""

import re
from pathlib import Path

import pytest

from tests.promql import families, is_known, recorded

ROOT = Path(__file__).parent.parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
NATIVE = re.compile(r"(?:[a-z]+:)?\bgpuwatch_(?!agent-)[a-z0-9_]*(?::[a-z0-9_]+)?\*?")
"""But the wheel's file name: gpuwatch_agent-0.1.0-py3-none-any.whl."""
DCGM = re.compile(r"\bDCGM_(?:FI|EXP)_[A-Z0-9_]+\*?")
TABLE = set(DCGM.findall((ROOT / "docs/metrics.md").read_text()))
"""DCGM's names in the page that is generated from the profiles."""


def is_there(name: str) -> bool:
    """`name*`: some whose names begin so."""
    if name.endswith("*"):
        return any(each.startswith(name[:-1]) for each in (*families(), *recorded(), *TABLE))
    return name in TABLE or is_known(name)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_metrics_of_a_document_exist(document):
    text = document.read_text()
    named = {*NATIVE.findall(text), *DCGM.findall(text)} - {"gpuwatch_"}
    assert {name for name in named if not is_there(name)} == set()


def test_a_name_that_never_comes_is_noticed():
    assert is_there("gpuwatch_gpu_power_watts")
    assert is_there("gpuwatch_remediator_*")
    assert not is_there("gpuwatch_gpu_power")
    assert not is_there("gpuwatch_gpus_*")
    assert not is_there("DCGM_FI_DEV_POWER")
