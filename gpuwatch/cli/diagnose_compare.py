"""`gpuwatch diagnose --compare` and `--write-expect`: this node beside another one, or as the measure of others."""

from pathlib import Path

from gpuwatch.cli.session import Session
from gpuwatch.diagnose.facts import Facts


def compare(session: Session, other: Path, document: str, output: str) -> int:
    """Print how this node differs from the diagnosis in the file; `document`: the one of this node, as `-o json`.

    `output`: table | wide | json | yaml | name. Returns the exit code: 0 the same, 3 not.

    Raises:
        UsageError: the file is no diagnosis.
    """
    return 0


def write_expectation(session: Session, target: Path, facts: Facts) -> None:
    """Make a baseline file of what this node is.

    Raises:
        GpuwatchError: there is no GPU to take it from, or the file cannot be written.
    """
