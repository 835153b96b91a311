"""`gpuwatch tuner`: who says how far it may go. A file stops a tuner whose unit or manifest says enforce."""

from pathlib import Path

import click
import pytest

from gpuwatch.cli.console.session import Session
from gpuwatch.cli.tuner import OVERRIDES, tuner


@pytest.mark.parametrize(
    ("text", "option", "mode"),
    [
        ("{}", "enforce", "enforce"),
        ("tuning: {max_slowdown: 0.03}", "enforce", "enforce"),
        ("tuning: {mode: observe}", "enforce", "observe"),
        ("tuning: {mode: 'off'}", "enforce", "off"),
        ("tuning: {mode: 'off'}", "observe", "off"),
        ("tuning: {mode: enforce}", "observe", "observe"),
        ("tuning: {mode: enforce}", None, "enforce"),
    ],
)
def test_the_least_of_file_and_option_counts_where_the_file_says_a_mode(
    tmp_path: Path, text: str, option: str | None, mode: str
):
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(text)
    session = Session()
    session.config_file = str(file)
    with click.Context(tuner).scope():
        assert session.effective({"mode": option}, OVERRIDES).config.tuning.mode == mode
