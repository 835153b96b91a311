"""`gpuwatch sim fleet`: a thousand remediators before one API server, and a check of every write."""

import sys
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli.console.document import Envelope, plain
from gpuwatch.cli.console.options import option, output
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.console.table import Column, table
from gpuwatch.cli.console.words import Words

if TYPE_CHECKING:
    from rich.text import Text

    from gpuwatch.cli.console.terminal import Terminal
    from gpuwatch.sim.fleet import DrillPhase, DrillReport, FleetRemediator, NodeContext

EXIT_VIOLATED = 4
ROUNDS = 100
FAULTS = ("driver-rollout", "xid-79", "app-xids", "flapping")
"""Of `sim.fleet`, which is not loaded for the help."""


@click.command(short_help="Let a fault strike many nodes at once, and watch the budget hold.")
@option("--nodes", type=click.IntRange(1, 10_000), default=1000, metavar="N", help="How many. Default: 1000.")
@option("--fault", type=click.Choice(FAULTS), default=FAULTS[0], help=f"What happens. Default: {FAULTS[0]}.")
@option("--budget", default="10%", metavar="N|N%", help="Nodes that may be tainted at once. Default: 10%.")
@option(
    "--api-failures",
    type=click.FloatRange(0, 0.9),
    default=0.0,
    metavar="SHARE",
    help="Do it a second time with this share of API calls failing.",
)
@option("--kill", is_flag=True, help="Do it a second time with remediators killed at random points.")
@option("--race", is_flag=True, help=f"Also let two nodes race for the last slot, {ROUNDS} times.")
@option(
    "--duration",
    type=click.FloatRange(min=30),
    default=300.0,
    metavar="SECONDS",
    help="Simulated time for which nothing new happens, in each phase. Default: 300.",
)
@option("--seed", type=int, default=1, metavar="N", help="Same seed, same faults. Default: 1.")
@output("table", "json")
@pass_session
def fleet(
    session: Session,
    nodes: int,
    fault: str,
    budget: str,
    api_failures: float,
    kill: bool,
    race: bool,
    duration: float,
    seed: int,
    output: str,
) -> None:
    """Let a fault strike many nodes at once, and watch the budget hold.

    Each node has a real remediator, before one simulated API server over real HTTP, in simulated time. Every write is
    checked at once: no more nodes tainted than the budget allows, none twice for one fault, none that is well, none
    released too early, nothing foreign touched; and in the end nothing is left behind. If not so: exit code 4.

    \b
    Examples:
      gpuwatch sim fleet --nodes 1000 --fault driver-rollout
      gpuwatch sim fleet --nodes 200 --api-failures 0.3 --kill --race
      gpuwatch sim fleet --fault app-xids -o json
    """
    from gpuwatch.cli.console.document import to_json
    from gpuwatch.config import parse
    from gpuwatch.sim.fleet import Disturbances, FleetDrill, run

    session.start_logging(default="ERROR")
    share = int(budget) if budget.isascii() and budget.isdigit() else budget
    document = {"remediation": {"budget": {"max_unavailable": share}}}  # raises UsageError
    drill = FleetDrill(
        nodes=nodes,
        fault=fault,
        budget=parse(document, "--budget").remediation.budget.max_unavailable,
        seed=seed,
        seconds=duration,
        disturbances=Disturbances(api_failures, kill),
        rounds=ROUNDS if race else 0,
    )

    def notify(phase: "DrillPhase") -> None:
        session.terminal.hint(f"{phase.name}: {phase.description} ({phase.wall_seconds:.0f} s)")

    report = run(drill, remediator, notify)
    if output == "json":
        click.echo(to_json(_document(report)))
    else:
        session.terminal.show(*_screen(report, session.terminal))
    if not report.is_good:
        sys.exit(EXIT_VIOLATED)


def remediator(context: "NodeContext") -> "FleetRemediator":
    """The real one, with everything around it simulated."""
    from gpuwatch.kube.reader import OwnNode
    from gpuwatch.remediation.service.remediator import Remediator

    return Remediator(
        context.config,
        OwnNode(node=context.node, namespace=context.namespace),
        context.agent,
        lambda: context.transport,
        clock=context.clock,
        ledger=context.ledger,
        chance=context.chance,
        checkpoint=context.checkpoint,
    )


COLUMNS: tuple[Column["DrillPhase"], ...] = (
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
    Column("WHAT HAPPENS", lambda p, _: p.description, drop=5, shorten="end"),
)
"""TAINTED is the most at any instant; READS/H and WRITES/H are requests of one node in an hour."""

MANY = 10


class FleetReport(Envelope, frozen=True, kw_only=True):
    """`items` are the phases; the rest is about the whole run."""

    report: dict[str, Any]


def _document(report: "DrillReport") -> FleetReport:
    """For scripts."""
    whole = {name: value for name, value in plain(report).items() if name != "phases"}
    violations = [violation._asdict() for violation in report.violations]
    return FleetReport(
        kind="FleetReport", items=report.phases, report={**whole, "violations": violations, "good": report.is_good}
    )


def _screen(report: "DrillReport", terminal: "Terminal") -> "list[Text]":
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
    if report.is_good:
        verdict = [Text("every invariant held, and every node was released", "green")]
        return [*rows, Text(), *map(Text, lines), *verdict]
    failures: list[str] = []
    for number, violation in enumerate(report.violations[:MANY]):
        failures.append(f"violated: {violation.rule}: {violation.node}: {violation.message}")
        failures += [f"  {line}" for line in violation.trail if number == 0]
    failures += [f"left behind: {leak}" for leak in report.leaks[:MANY]]
    failures += [f"not done: {shortfall}" for shortfall in report.shortfalls[:MANY]]
    return [*rows, Text(), *map(Text, lines), *(Text(line, "red") for line in failures)]
