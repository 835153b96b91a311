"""Runs a test against a copy of the program in which one guard is taken out.

The copy is made of links: only the changed file, and the folders above it, are its own.
"""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.harms.table import HARMS, Harm, Patch, Proof

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60.0
EXCEPTIONS_OF_ASSERTS = ("AssertionError", "Failed")
"""By these a test says that something is not as it should be; by others, that the patch has broken the program."""


class Told(NamedTuple):
    """What became of one run: pytest's exit code, (test, phase, exception classes) of failures, files of modules."""

    code: int
    failures: list[tuple[str, str, str]]
    loaded: dict[str, str | None]
    output: str


def proofs(part: int, parts: int) -> list[Any]:
    """One of several shares of all proofs, named by the harm's number: each test file takes one."""
    named = [
        pytest.param(harm, proof, id=f"{harm.number:02}-{chr(97 + place)}")
        for harm in HARMS
        for place, proof in enumerate(harm.proofs)
    ]
    return named[part::parts]


def show(harm: Harm, proof: Proof, folder: Path) -> None:
    """Assert that the proof's test fails, by what it asserts, once its guard is gone."""
    copy = folder / "copy"
    patched(proof.patch, copy)
    files = {"gpuwatch": str(copy / "gpuwatch/__init__.py")}
    if proof.patch.file.endswith(".py"):
        module = proof.patch.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        files[module] = str(copy / proof.patch.file)
    told = run(copy, proof.test, tuple(files))
    assert told.code == 1, f"harm {harm.number}: exit code {told.code}\n{told.output}"
    assert told.loaded == files
    (failure,) = told.failures
    test, phase, kinds = failure
    assert test.split("[")[0] == proof.test.split("[")[0]
    assert phase == "call"
    assert set(EXCEPTIONS_OF_ASSERTS) & set(kinds.split(",")), f"harm {harm.number}: {kinds}\n{told.output}"


def patched(patch: Patch, copy: Path) -> None:
    """Make `copy` look like the repository but for one file."""
    _link(ROOT, copy, Path(patch.file).parts)
    before, target = (ROOT / patch.file).read_text(), copy / patch.file
    assert before.count(patch.text) == 1, f"the patch of {patch.file} does not fit any more: {patch.text!r}"
    target.write_text(before.replace(patch.text, patch.instead))
    os.utime(target, (1, 1))  # no compiled file of the original can be taken for this one's


def _link(real: Path, copy: Path, way: tuple[str, ...]) -> None:
    copy.mkdir()
    for child in real.iterdir():
        if child.name != way[0] and not (child.name.startswith(".") and real == ROOT):
            (copy / child.name).symlink_to(child)
    if len(way) > 1:
        _link(real / way[0], copy / way[0], way[1:])


def run(copy: Path, test: str, modules: tuple[str, ...]) -> Told:
    """Run one test with the copy's program and tests, in a process of its own."""
    report = copy.parent / "witness.json"
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("COV_", "COVERAGE_", "PYTEST_", "GPUWATCH_"))
    }
    env = kept | {
        "PYTHONPATH": str(copy),
        "PYTHONDONTWRITEBYTECODE": "1",
        "WITNESS": str(report),
        "WITNESS_MODULES": ",".join(modules),
    }
    options = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:cov", "-p", "tests.harms.witness")
    where = ("-c", str(copy / "pyproject.toml"), "--rootdir", str(copy), "--basetemp", str(copy.parent / "base"))
    command = (sys.executable, "-m", "pytest", *options, *where, test)
    done = subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, timeout=SECONDS)
    told: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {"failures": [], "loaded": {}}
    failures = [tuple(each) for each in told["failures"]]
    return Told(done.returncode, failures, told["loaded"], done.stdout[-4000:] + done.stderr[-2000:])


def functions(path: str) -> set[str]:
    """Names of the test functions in a file."""
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
