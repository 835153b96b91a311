"""Which proofs `make test` shows: those of what has changed since a base commit.

The base is GPUWATCH_BASE, else where this branch left origin/main, else the commit before this one. Without git, or
without a base, and in a change of half the program, a fixed share stands for all: `make test-slow` shows every one.
"""

import os
import subprocess
from pathlib import Path

from tests.harms.table import Proof

ROOT = Path(__file__).resolve().parents[2]
EVERY = 10
"""One of so many is shown where it is not known what has changed."""
MOST = 30


def worth_showing(proofs: list[Proof], changed: frozenset[str] | None = None) -> list[Proof]:
    """Those whose guard or test is in a changed file; `changed` is asked of git unless it is handed in."""
    files = changed_files() if changed is None else changed
    if files is None:
        return proofs[::EVERY]
    touched = [proof for proof in proofs if {proof.patch.file, proof.test.split("::")[0]} & files]
    return touched[:: -(-len(touched) // MOST) or 1]


def changed_files(root: Path = ROOT) -> frozenset[str] | None:
    """Paths from the top of the repository, committed or not; None where git does not know."""
    for base in _bases(root):
        differing = _git(root, "diff", "--name-only", "--no-renames", base)
        new = _git(root, "ls-files", "--others", "--exclude-standard")
        if differing is not None and new is not None:
            return frozenset((*differing.splitlines(), *new.splitlines()))
    return None


def _bases(root: Path) -> list[str]:
    named = os.environ.get("GPUWATCH_BASE", "")
    left = _git(root, "merge-base", "HEAD", "origin/main") or ""
    head = _git(root, "rev-parse", "HEAD") or ""
    branched = left.strip() if left != head else ""  # on main itself, what was pushed last is the latest commit
    return [base for base in (named, branched, "HEAD~1") if base]


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints; None where it is missing, or fails."""
    command = ["git", "--no-optional-locks", "-C", str(root), "-c", "core.quotePath=off", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None
