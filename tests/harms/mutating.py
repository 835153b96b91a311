"""Runs a test against a copy of the program in which one guard is taken out.

The copy is made of links: only the changed file, and the folders above it, are its own. Compiled files are linked one
by one, but for those of the changed file: a folder of them in common would hand the code of one copy to another.
"""

import ast
import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest

from tests.harms import zygote
from tests.harms.changes import worth_showing
from tests.harms.table import HARMS, Harm, Patch, Proof
from tests.watcher import MARK

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300.0
"""A run takes two seconds alone; this is for a machine that has much else to do."""
EXCEPTIONS_OF_ASSERTS = ("AssertionError", "Failed")
"""By these a test says that something is not as it should be; by others, that the patch has broken the program."""
COMPILED = "__pycache__"


class MutationRun(NamedTuple):
    """What became of one run: pytest's exit code, (test, phase, exception classes) of failures, files of modules."""

    code: int
    failures: list[tuple[str, str, str]]
    loaded: dict[str, str | None]
    output: str


class Runner(AbstractContextManager["Runner"]):
    """Runs tests of copies, each in a process of its own that is forked from one with pytest in it."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-P", zygote.__file__]
        self._process = subprocess.Popen(
            command, cwd="/", env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(self, copy: Path, test: str, modules: tuple[str, ...]) -> MutationRun:
        """Run one test with the copy's program and tests."""
        report, output = copy.parent / "witness.json", copy.parent / "output.txt"
        own = {"PYTHONPATH": str(copy), "WITNESS": str(report), "WITNESS_MODULES": ",".join(modules)}
        plugins = ("no:cacheprovider", "no:xdist", "no:cov", "no:random_order", "tests.harms.witness")
        loaded = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # hypothesis is there already
        options = ("-x", "-q", *loaded, *(part for plugin in plugins for part in ("-p", plugin)))
        where = ("-c", str(copy / "pyproject.toml"), "--rootdir", str(copy), "--basetemp", str(copy.parent / "base"))
        asked = {
            "folder": str(copy),
            "env": _environment() | own,
            "args": [*options, *where, test],
            "output": str(output),
            "seconds": SECONDS,
        }
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        code = json.loads(self._process.stdout.readline())
        told: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {"failures": [], "loaded": {}}
        failures = [tuple(each) for each in told["failures"]]
        return MutationRun(code, failures, told["loaded"], output.read_text()[-6000:])


def _environment() -> dict[str, str]:
    """This process's, without what is only for this run of pytest or this program; but what it starts is this run's."""
    foreign = ("COV_", "COVERAGE_", "PYTEST_", "GPUWATCH_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    mark = {MARK: os.environ[MARK]} if MARK in os.environ else {}
    return kept | mark | {"PYTHONDONTWRITEBYTECODE": "1"}


def proofs() -> list[Any]:
    """All, named by the harm's number; slow are those about which nothing has changed."""
    every = [
        (f"{harm.number:02}-{chr(97 + place)}", harm, each) for harm in HARMS for place, each in enumerate(harm.proofs)
    ]
    shown = worth_showing([each for _, _, each in every])
    return [
        pytest.param(harm, each, id=name, marks=() if each in shown else pytest.mark.slow) for name, harm, each in every
    ]


def show(runner: Runner, harm: Harm, proof: Proof, folder: Path) -> None:
    """Assert that the proof's test fails, by what it asserts, once its guard is gone."""
    copy = folder / "copy"
    patched(proof.patch, copy)
    files = {"gpuwatch": str(copy / "gpuwatch/__init__.py")}
    if proof.patch.file.endswith(".py"):
        module = proof.patch.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        files[module] = str(copy / proof.patch.file)
    told = runner.run(copy, proof.test, tuple(files))
    assert told.code == 1, f"harm {harm.number}: exit code {told.code}\n{told.output}"
    assert told.loaded == files
    (failure,) = told.failures
    test, phase, kinds = failure
    assert test.split("[")[0] == proof.test.split("[")[0]
    assert phase == "call"
    assert set(EXCEPTIONS_OF_ASSERTS) & set(kinds.split(",")), f"harm {harm.number}: {kinds}\n{told.output}"


def patched(patch: Patch, copy: Path) -> None:
    """Make `copy` look like the repository but for one file."""
    changed = Path(patch.file)
    _link(ROOT, copy, changed.parts)
    before, target = (ROOT / changed).read_text(), copy / changed
    assert before.count(patch.text) == 1, f"the patch of {patch.file} does not fit any more: {patch.text!r}"
    target.write_text(before.replace(patch.text, patch.instead))


def _link(real: Path, copy: Path, way: tuple[str, ...]) -> None:
    copy.mkdir()
    for child in real.iterdir():
        hidden = child.name.startswith(".") and real == ROOT
        if child.name not in (way[0], COMPILED) and not hidden:
            (copy / child.name).symlink_to(child)
    if len(way) > 1:
        _link(real / way[0], copy / way[0], way[1:])
    elif (real / COMPILED).is_dir():
        (copy / COMPILED).mkdir()
        for child in (real / COMPILED).glob("*.pyc"):
            if not child.name.startswith(f"{Path(way[0]).stem}."):
                (copy / COMPILED / child.name).symlink_to(child)


def functions(path: str) -> set[str]:
    """Names of the test functions in a file."""
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
