"""`gpuwatch describe` over nvidia-smi output of real machines: people read the numbers that nvidia-smi printed."""

import re
import subprocess
import sys

import pytest

from gpuwatch.cli.look.describe_rows import SECTIONS
from tests.golden.test_real_gpus import ABSENT, CASES, FIELDS, Case, Field, printed

PLACES = {row.path: (title, row.label) for title, rows in SECTIONS for row in rows}
"""Path of a value -> section and label that describe prints it under."""

OTHER_WORDS = {"recovery_action", "fabric.state", "identity.minor", "pcie.width", "pcie.width_max"}
"""Said in words of its own."""


def rows(case: Case) -> list[tuple[Field, str]]:
    """What describe has a place for and the machine has printed: field and printed text."""
    return [
        (field, printed(case)[field.label]) for field in FIELDS if field.path in PLACES and field.label in printed(case)
    ]


def described(case: Case) -> dict[tuple[str, str], str]:
    """(section, label) -> text, as the command prints it."""
    source = f"capture:{case.file}#{case.phase}"
    run = subprocess.run(
        [sys.executable, "-m", "gpuwatch", "--source", source, "describe", "gpu", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found, title = {}, ""
    for line in run.stdout.splitlines():
        if line and not line.startswith(" "):
            title = line
        elif match := re.fullmatch(r"  (\S.{29})(.*)", line):
            found[title, match[1].strip()] = match[2]
    return found


def essence(text: str) -> str:
    """The number in front, without trailing zeros, or the words in lower case without punctuation."""
    number = re.match(r"-?\d+(\.\d+)?(?=( |$))", text)
    return f"{float(number[0]):g}" if number else re.sub(r"[^a-z0-9]", "", text.lower())


def says(field: Field, text: str, original: str) -> bool:
    if original in ABSENT:
        return text in ("not supported by this GPU", "not reported")
    if field.path in OTHER_WORDS:
        return text not in ("not supported by this GPU", "not reported", "unknown")
    if field.path == "display_active":
        return text == {"Enabled": "yes", "Disabled": "no"}[original]
    return essence(text) == essence(original)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_describe_says_what_nvidia_smi_shows(case):
    texts = described(case)
    pairs = {field: (texts[PLACES[field.path]], original) for field, original in rows(case)}

    assert len(pairs) > 10
    assert {field.label: pair for field, pair in pairs.items() if not says(field, *pair)} == {}
