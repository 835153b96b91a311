"""The report of `sim fleet` as people and scripts read it."""

from typing import TYPE_CHECKING, Any

from gpuwatch.cli.console.document import Envelope, plain
from gpuwatch.cli.console.table import Column, table
from gpuwatch.cli.console.terminal import Terminal
from gpuwatch.cli.console.words import Words
from gpuwatch.sim.fleet import Phase, Report

if TYPE_CHECKING:
    from rich.text import Text

COLUMNS: tuple[Column[Phase], ...] = (
    Column("PHASE", lambda p, _: p.name),
    Column("SIMULATED", lambda p, w: w.seconds(p.simulated_seconds), right=True),
    Column("SICK", lambda p, _: str(p.sick), right=True),
    Column("TAINTED", lambda p, _: f"{p.tainted}/{p.budget}", right=True),
    Column("BLOCKED", lambda p, _: str(p.blocked), right=True),
    Column("READS/H", lambda p, _: f"{p.reads_per_node_hour:.1f}", right=True),
    Column("WRITES/H", lambda p, _: f"{p.writes_per_node_hour:.1f}", right=True),
    Column("409", lambda p, _: str(p.conflicts), right=True, drop=1),
    Column("FAILED", lambda p, _: str(p.failures), right=True, drop=2),
    Column("RETRIED", lambda p, _: str(p.retries), right=True, drop=3),
    Column("KILLED", lambda p, _: str(p.kills), right=True, drop=2),
    Column("WALL", lambda p, w: f"{p.wall_seconds:.1f}s", right=True, drop=4),
    Column("WHAT HAPPENS", lambda p, _: p.words, drop=5, shorten="end"),
)
"""TAINTED is the most at any instant; READS/H and WRITES/H are requests of one node in an hour."""

MANY = 10


class FleetReport(Envelope, frozen=True, kw_only=True):
    """`items` are the phases; the rest is about the whole run."""

    report: dict[str, Any]


def document(report: Report) -> FleetReport:
    """For scripts."""
    whole = {name: value for name, value in plain(report).items() if name != "phases"}
    violations = [violation._asdict() for violation in report.violations]
    return FleetReport(
        kind="FleetReport", items=report.phases, report={**whole, "violations": violations, "good": report.is_good}
    )


def screen(report: Report, terminal: Terminal) -> "list[Text]":
    """For people: the phases, the verdict, and what speaks against it."""
    from rich.text import Text

    words = Words(terminal.glyphs, 0.0)
    rows = table(COLUMNS, report.phases, words, width=terminal.width)
    most = max((phase.tainted for phase in report.phases), default=0)
    lines = [
        f"{report.nodes} nodes, fault {report.fault}, seed {report.seed}: at most {most} tainted at any instant, "
        f"{report.budget} allowed",
        f"{report.writes} writes checked, {report.quarantines} quarantines, {report.races} races for the last slot, "
        f"{len(report.leaks)} leaks; {report.wall_seconds:.0f} s, {words.size(report.memory_bytes)}",
    ]
    good = Text("every invariant held, and everything was given back", "green")
    verdict = [good] if report.is_good else [Text(line, "red") for line in _against(report)]
    return [*rows, Text(), *map(Text, lines), *verdict]


def _against(report: Report) -> list[str]:
    lines: list[str] = []
    for number, violation in enumerate(report.violations[:MANY]):
        lines.append(f"violated: {violation.rule}: {violation.node}: {violation.words}")
        lines += [f"  {line}" for line in violation.trail if number == 0]
    lines += [f"left behind: {leak}" for leak in report.leaks[:MANY]]
    lines += [f"not done: {shortfall}" for shortfall in report.shortfalls[:MANY]]
    return lines
