"""`gpuwatch describe` over nvidia-smi output of real machines: people read the numbers that nvidia-smi printed."""

import re
import subprocess
import sys
from functools import cache

import pytest

from gpuwatch.cli.look.describe_rows import SECTIONS
from tests.golden.test_real_gpus import ABSENT, CASES, FIELDS, Case, name_of, printed

PLACES = {row.path: (title, row.label) for title, rows in SECTIONS for row in rows}
"""Path of a value -> section and label that describe prints it under."""

ROWS = [(case, field) for case in CASES for field in FIELDS if field.path in PLACES and field.label in printed(case)]
OTHER_WORDS = {"recovery_action", "fabric.state", "identity.minor", "pcie.width", "pcie.width_max"}
"""Said in words of its own."""


@cache
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


@pytest.mark.parametrize(("case", "field"), ROWS, ids=name_of)
def test_describe_says_what_nvidia_smi_said(case, field):
    text, original = described(case)[PLACES[field.path]], printed(case)[field.label]

    if original in ABSENT:
        assert text in ("not supported by this GPU", "not reported")
    elif field.path in OTHER_WORDS:
        assert text not in ("not supported by this GPU", "not reported", "unknown")
    elif field.path == "display_active":
        assert text == {"Enabled": "yes", "Disabled": "no"}[original]
    else:
        assert essence(text) == essence(original)
