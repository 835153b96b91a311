"""What the suite costs: wall and CPU time by test, the ten slowest files, and each folder beside its budget.

The budgets stand in CONTRIBUTING.md, where people look for them. They are CPU seconds, of a test's process and of those
it has waited for: wall time says more about what else the machine does.
"""

import os
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]


class Cost(NamedTuple):
    """Seconds of one phase of one test."""

    nodeid: str
    phase: str
    wall: float
    cpu: float

    @property
    def file(self) -> str:
        """Path from the top of the repository."""
        return self.nodeid.split("::")[0]

    @property
    def folder(self) -> str:
        """`tests/health`; files beside the folders belong to `tests`."""
        parts = Path(self.file).parts
        return "/".join(parts[: 2 if len(parts) > 2 else 1])


def budgets() -> dict[str, float]:
    """CPU seconds of each folder's quick tests, without coverage, from the table in CONTRIBUTING.md."""
    rows = re.findall(r"^\| `(tests[a-z0-9_/]*)` \| (\d+) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    return {folder: float(seconds) for folder, seconds in rows}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where to write the costs."""
    parser.addoption("--timings", metavar="FILE", help="write node id, phase, wall and CPU seconds, tab-separated")


def pytest_configure(config: pytest.Config) -> None:
    """Measure in this process: a worker, or the only one."""
    config.pluginmanager.register(Timings(), "gpuwatch-timings")


class Timings:
    """Attaches CPU seconds to the reports, and sums them up where they arrive."""

    def __init__(self) -> None:
        self.last = _cpu()
        self.costs: list[Cost] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        """A phase costs what was used since the one before it ended; an extra attribute travels with the report."""
        report = yield
        now = _cpu()
        report.cpu, self.last = now - self.last, now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """With xdist: in the controller."""
        self.costs.append(Cost(report.nodeid, report.when or "", report.duration, getattr(report, "cpu", 0.0)))

    def pytest_terminal_summary(self, terminalreporter, config: pytest.Config) -> None:
        """Print the tables where enough was run for them to mean something."""
        if file := config.getoption("timings"):
            Path(file).write_text("".join(f"{c.nodeid}\t{c.phase}\t{c.wall:.4f}\t{c.cpu:.4f}\n" for c in self.costs))
        files = {cost.file for cost in self.costs}
        if len(files) < 20:
            return
        wall, cpu, tests = _sums(self.costs, "file")
        terminalreporter.section("ten slowest files")
        for name, seconds in wall.most_common(10):
            terminalreporter.line(f"{name:60} {tests[name]:6} tests {seconds:7.1f} s {cpu[name]:7.1f} CPU s")
        wall, cpu, tests = _sums(self.costs, "folder")
        quick = "not slow" in config.getoption("markexpr") and not config.getoption("cov_source", None)
        allowed = budgets() if quick else {}
        terminalreporter.section("folders and their budgets")
        for name, seconds in sorted(cpu.items()):
            bound = allowed.get(name)
            beside = f"of {bound:4.0f}" if bound is not None else ""
            over = "  OVER" if bound is not None and seconds > bound else ""
            terminalreporter.line(
                f"{name:22} {tests[name]:6} tests {wall[name]:7.1f} s {seconds:7.1f} CPU s {beside}{over}"
            )
        total = f"{sum(tests.values()):6} tests {sum(wall.values()):7.1f} s {sum(cpu.values()):7.1f} CPU s"
        terminalreporter.line(f"{'all':22} {total}" + (f" of {sum(allowed.values()):4.0f}" if allowed else ""))


def _sums(costs: list[Cost], by: str) -> tuple[Counter[str], dict[str, float], Counter[str]]:
    wall: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    cpu: dict[str, float] = defaultdict(float)
    for cost in costs:
        name = getattr(cost, by)
        wall[name] += cost.wall
        cpu[name] += cost.cpu
        tests[name] += cost.phase == "call"
    return wall, cpu, tests


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
