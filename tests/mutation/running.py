"""Runs mutants of a group: its tests are collected once, and each mutant is tried in a fork of the process that did.

mutmut and cosmic-ray start pytest, or import and collect, anew for each mutant: one to three seconds, beside a few
hundredths that the first failing test takes. Neither says which survivor is known, and why, from a table that outlives
moved lines and modules. Here a pass without any mutant tells which tests reach which function, and how long each takes;
so a mutant is tried by the quickest tests that reach it.
"""

import importlib
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.mutation.baseline import Key, key
from tests.mutation.operators import Mutant, mutants
from tests.mutation.swapping import NotSwapped, codes, swapped
from tests.mutation.targets import Group

ROOT = Path(__file__).resolve().parents[2]
MOST_SECONDS = 20.0
"""CPU seconds of tests that are given to one mutant, as they took while it was traced what they reach."""
CPU_SECONDS, WALL_SECONDS, BYTES = 60, 180, 8 << 30
"""What a mutant may use; one that wants more is noticed by that. A machine under load is slow, so the wall has time."""
KILLED, SURVIVED, NONE = 0, 1, 2
"""Exit codes of a child; NONE: the mutant is no change."""


class Tried(NamedTuple):
    """A mutant and what became of it. `by`: how many tests had a chance."""

    module: str
    mutant: Mutant
    killed: bool
    by: int


def sample(module: str, count: int) -> list[Mutant]:
    """The first of a module's mutants in their fixed order."""
    return mutants((ROOT / "gpuwatch" / module).read_text())[:count]


def try_group(group: Group, count: int, jobs: int, wanted: frozenset[Key] | None = None) -> list[Tried]:
    """What becomes of a sample of each module, in a process of its own kind: nothing of it may have been imported."""
    files = sorted({str(path) for pattern in group.tests for path in (ROOT / "tests").glob(pattern)})
    loop = Loop(group, count, jobs, wanted)
    phases = (Phase.explicit, Phase.generate)  # what fails need not be made small
    settings.register_profile(
        "mutants",
        parent=settings.default,
        derandomize=True,
        database=None,
        phases=phases,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"
    quiet = ("-q", "--no-header", "--no-summary", "--capture=no", "--assert=plain", "-p", "no:cacheprovider")
    absent = (
        part
        for name in ("xdist", "cov", "random_order", "tests.leftovers", "tests.timings")
        for part in ("-p", f"no:{name}")
    )
    where = ("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-m", "not slow")
    with tempfile.TemporaryDirectory(prefix="gpuwatch-mutants-") as folder:
        base = ("--basetemp", f"{folder}/base")
        code = pytest.main([*quiet, *absent, *where, *base, *files], plugins=[loop])
    if code:
        raise SystemExit(f"{group.name}: the tests cannot be run, exit code {code}")
    return loop.tried


class Loop:
    """A plugin that runs mutants where pytest would run the tests."""

    def __init__(self, group: Group, count: int, jobs: int, wanted: frozenset[Key] | None) -> None:
        self._group, self._count, self._jobs, self._wanted = group, count, jobs, wanted
        self._parent = os.getppid()
        self._failed = False
        self._reached: dict[int, list[tuple[float, int]]] = {}  # id of code -> (seconds, number) of tests
        self._seconds: dict[int, float] = {}  # of CPU
        self.tried: list[Tried] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """In a child."""
        self._failed = self._failed or report.failed

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Reach, then try."""
        session.config._tmp_path_factory.getbasetemp()  # one for all forks: who makes it empties it
        for number, wall, cpu, reached in self._reach(session.items):
            self._seconds[number] = cpu
            for code in reached:
                self._reached.setdefault(code, []).append((wall, number))
        running: dict[int, tuple[str, Mutant, int]] = {}
        for module, mutant, tests in self._chosen():
            while len(running) >= self._jobs:
                self._wait(running)
            if os.getppid() != self._parent:  # who asked has been killed
                break
            child = os.fork()
            if not child:
                self._be(module, mutant, [session.items[number] for number in tests])
            running[child] = (module, mutant, len(tests))
        while running:
            self._wait(running)
        return True

    def _reach(self, items: list[pytest.Item]) -> Iterator[tuple[int, float, float, set[int]]]:
        """Which test, how long by wall and CPU, ids of code: from a child, so that this process stays as it is."""
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            os.close(reader)
            _be_quiet()
            with os.fdopen(writer, "w") as out:
                for number, item in enumerate(items):
                    reached: set[int] = set()
                    began, since = time.process_time(), time.monotonic()
                    sys.settrace(lambda frame, event, _, add=reached.add: add(id(frame.f_code)))
                    self._failed = False
                    item.ihook.pytest_runtest_protocol(
                        item=item, nextitem=items[number + 1] if number + 1 < len(items) else None
                    )
                    sys.settrace(None)
                    if not self._failed:
                        print(number, time.monotonic() - since, time.process_time() - began, *reached, file=out)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as told:
            for line in told:
                number, wall, cpu, *reached_codes = line.split()
                yield int(number), float(wall), float(cpu), set(map(int, reached_codes))
        os.waitpid(child, 0)

    def _chosen(self) -> Iterator[tuple[str, Mutant, list[int]]]:
        for module in self._group.modules:
            source = (ROOT / "gpuwatch" / module).read_text()
            loaded = _module(module)
            there = codes(loaded, source)
            for mutant in sample(module, self._count):
                if self._wanted is None or key(self._group.name, mutant) in self._wanted:
                    names = [mutant.function] if mutant.function else there
                    reaching = {id(code) for name in names for code in there.get(name, ())}
                    tests = {test for code in reaching for test in self._reached.get(code, ())}
                    yield module, mutant, self._quickest(tests)

    def _quickest(self, tests: set[tuple[float, int]]) -> list[int]:
        spent, chosen = 0.0, []
        for _, number in sorted(tests):  # those that wait come late
            spent += self._seconds[number]
            if spent > MOST_SECONDS:
                break
            chosen.append(number)
        return chosen

    def _be(self, module: str, mutant: Mutant, items: list[pytest.Item]) -> None:
        """In a child: the mutant, until a test notices."""
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))  # of one that never ends
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        signal.alarm(WALL_SECONDS)
        _be_quiet()
        code = KILLED
        try:
            with swapped(_module(module), (ROOT / "gpuwatch" / module).read_text(), mutant.source):
                self._failed = False
                for place, item in enumerate(items):
                    following = items[place + 1] if place + 1 < len(items) else None
                    item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
                    if self._failed:
                        break
                code = KILLED if self._failed else SURVIVED
        except NotSwapped:
            code = NONE
        finally:
            os._exit(code)

    def _wait(self, running: dict[int, tuple[str, Mutant, int]]) -> None:
        child, status = os.wait()
        module, mutant, tests = running.pop(child)
        code = os.waitstatus_to_exitcode(status)
        if code != NONE:
            self.tried.append(Tried(module, mutant, code != SURVIVED, tests))


def _be_quiet() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)


def _module(path: str):
    return importlib.import_module("gpuwatch." + path.removesuffix(".py").replace("/", "."))
