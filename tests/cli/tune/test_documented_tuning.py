"""docs/tuning.md keeps up: every reason with what to do, every state, figures of the evaluation, the real screen."""

import re
from pathlib import Path

from gpuwatch.config import TuningConfig
from gpuwatch.model.consent import AUTOTUNE, CLASS, GANG, MAX_SLOWDOWN, POWER_AGENTS
from gpuwatch.tuning.model.status import ObstacleReason, TuningState
from tests.cli.tune.goldens import FOLDER

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "tuning.md").read_text()
EVALUATION = (DOCS / "tuner-evaluation.md").read_text()
ROW = re.compile(r"^\| `(\w+)` \| (.+?) \|(?: (.+?) \|)?$", re.MULTILINE)


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_reason_is_there_in_their_order_with_what_to_do():
    rows = ROW.findall(section("Why a GPU is refused"))
    assert [name for name, _, _ in rows] == [reason.value for reason in ObstacleReason]
    assert all(means and then for _, means, then in rows)


def test_every_state_is_there():
    assert [name for name, _, _ in ROW.findall(section("What it says"))] == [state.value for state in TuningState]


def test_every_setting_of_saving_energy_and_every_annotation_is_there():
    asked = re.findall(r"^  (\w+):", section("How to switch it on"), re.MULTILINE)
    told = set(TuningConfig.__struct_fields__) - {"listen", "web_config", "node_name", "kubeconfig"}
    assert set(asked) - {"interval"} == told
    assert all(f"`{name}`" in PAGE for name in (AUTOTUNE, CLASS, MAX_SLOWDOWN, *POWER_AGENTS))
    assert GANG in PAGE


def test_its_screen_is_what_the_program_prints():
    shown = {line.strip() for line in section("What it says").splitlines() if line.startswith("    ")}
    printed = {line.strip() for line in (FOLDER / "tune-status-80.txt").read_text().splitlines()}
    assert shown
    assert shown <= printed


def test_figures_are_those_of_the_evaluation():
    figures = re.findall(r"\d+\.\d+", section("Evidence"))
    assert figures
    assert [figure for figure in figures if not re.search(rf"(?<![\d.]){figure}(?![\d.])", EVALUATION)] == []
