"""`gpuwatch sim fleet`: a thousand remediators before one API server, and a check of every write."""

import sys
from pathlib import Path
from typing import Any

import click

from gpuwatch.cli.console.document import Envelope, plain
from gpuwatch.cli.console.options import Number, option, output
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.console.table import Column, table
from gpuwatch.cli.console.terminal import Terminal
from gpuwatch.cli.console.text import Text
from gpuwatch.cli.console.words import Words
from gpuwatch.config import parse
from gpuwatch.kube.reader import OwnNode
from gpuwatch.remediation.service.remediator import Remediator
from gpuwatch.sim.fleet.agent import FAULTS
from gpuwatch.sim.fleet.drill import DrillPhase, DrillReport, FleetDrill, run
from gpuwatch.sim.fleet.fleet import Disturbances
from gpuwatch.sim.fleet.node import NodeContext
from gpuwatch.sim.fleet.scopes import ScopeCost, ScopeReport, compare, imagined, read_trace

EXIT_VIOLATED = 4


@click.command(short_help="Let a fault strike many nodes at once, and watch the budget hold.")
@option("--nodes", type=click.IntRange(1, 10_000), default=1000, metavar="N", help="How many. Default: 1000.")
@option("--fault", type=click.Choice([*FAULTS]), metavar="NAME", default="driver-rollout", help=f"{', '.join(FAULTS)}.")
@option("--budget", default="10%", metavar="N|N%", help="Nodes tainted at once, at most. Default: 10%.")
@option(
    "--api-failures",
    type=Number(0, 0.9),
    default=0.0,
    metavar="SHARE",
    help="Do it a second time with this share of API calls failing.",
)
@option("--kill", is_flag=True, help="Once more, with remediators killed at random.")
@option(
    "--duration",
    type=Number(30),
    default=300.0,
    metavar="SECONDS",
    help="Of each phase, simulated. Default: 300.",
)
@option("--scopes", is_flag=True, help="A month of faults under both scopes instead.")
@option(
    "--trace",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="The same for recorded faults: a CSV file with node, start_days, end_days and class.",
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
    duration: float,
    scopes: bool,
    trace: str | None,
    seed: int,
    output: str,
) -> None:
    """Let a fault strike many nodes at once, and watch the budget hold.

    Each node has a real remediator, before one simulated API server over real HTTP, in simulated time. Every write is
    checked at once: no more nodes tainted than the budget allows, none twice for one fault, none that is healthy, none
    released too early, nothing foreign touched; and in the end nothing is left behind. If not so: exit code 4.

    --scopes and --trace play the same faults twice, with remediation.scope node and gpu, and count the GPU-hours lost.
    Faults of the class GPU are of one GPU, which the device plugin takes out within seconds; others are of their node.

    \b
    Examples:
      gpuwatch sim fleet --nodes 1000 --fault driver-rollout
      gpuwatch sim fleet --nodes 200 --api-failures 0.3 --kill
      gpuwatch sim fleet --fault app-xids -o json
      gpuwatch sim fleet --trace faults.csv --api-failures 0.5
    """
    session.start_logging(default="ERROR")
    share = int(budget) if budget.isascii() and budget.isdigit() else budget
    document = {"remediation": {"budget": {"max_unavailable": share}}}  # raises UsageError
    if scopes or trace:
        faults = read_trace(Path(trace)) if trace else imagined(nodes, seed)
        costs = compare(
            remediator,
            faults,
            seed=seed,
            api_failures=api_failures,
            nodes=nodes,
            budget=parse(document, "--budget").remediation.budget.max_unavailable,
            notify=session.terminal.hint,
        )
        _show_costs(session, costs, output)
        return
    drill = FleetDrill(
        nodes=nodes,
        fault=fault,
        budget=parse(document, "--budget").remediation.budget.max_unavailable,
        seed=seed,
        seconds=duration,
        disturbances=Disturbances(api_failures, kill),
    )

    def notify(phase: DrillPhase) -> None:
        session.terminal.hint(f"{phase.name}: {phase.description} ({phase.wall_seconds:.0f} s)")

    report = run(drill, remediator, notify)
    if output == "json":
        whole = {name: value for name, value in plain(report).items() if name != "phases"}
        whole |= {"violations": [violation._asdict() for violation in report.violations], "good": report.is_good}
        session.terminal.document(FleetReport(kind="FleetReport", items=report.phases, report=whole), "json")
    else:
        session.terminal.show(*_screen(report, session.terminal))
    if not report.is_good:
        sys.exit(EXIT_VIOLATED)


def remediator(context: NodeContext) -> Remediator:
    """The real one, with everything around it simulated."""
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

COST_COLUMNS: tuple[Column["ScopeCost"], ...] = (
    Column("CLASS", lambda c, _: c.kind),
    Column("FAULTS", lambda c, _: str(c.faults), right=True),
    Column("SICK NODE-DAYS", lambda c, _: f"{c.node_hours / 24:,.1f}", right=True),
    Column("NODE SCOPE GPU-H", lambda c, _: f"{c.node_scope:,.0f}", right=True),
    Column("GPU SCOPE GPU-H", lambda c, _: f"{c.gpu_scope:,.0f}", right=True),
    Column("RELEASED", lambda c, _: f"{c.released:.1%}", right=True),
)

MANY = 10


class FleetReport(Envelope, frozen=True, kw_only=True):
    """`items` are the phases; the rest is about the whole run."""

    report: dict[str, Any]


def _show_costs(session: Session, report: ScopeReport, output: str) -> None:
    """Show the cost of each class of faults and the violations of the run; exit 4 where there are any."""
    if output == "json":
        whole = {name: value for name, value in plain(report).items() if name != "costs"}
        document = FleetReport(kind="ScopeReport", items=report.costs, report={**whole, "good": report.is_good})
        session.terminal.document(document, "json")
    else:
        rows = table(COST_COLUMNS, report.costs, Words(session.terminal.glyphs, 0.0), width=session.terminal.width)
        wrong = [f"violated: {each.rule}: {each.node}: {each.message}" for each in report.violations[:MANY]]
        wrong += [f"not done: {text}" for text in report.shortfalls[:MANY]]
        held = f"{report.nodes} nodes: a repaired one was held for {report.held_seconds:.0f} s at most"
        verdict = [Text(line, "red") for line in wrong] or [
            Text("no healthy node was held, and all were released", "green")
        ]
        session.terminal.show(*rows, Text(), Text(held), *verdict)
    if not report.is_good:
        sys.exit(EXIT_VIOLATED)


def _screen(report: DrillReport, terminal: Terminal) -> list[Text]:
    """For people: the phases, the verdict, and what went wrong."""
    words = Words(terminal.glyphs, 0.0)
    rows = table(COLUMNS, report.phases, words, width=terminal.width)
    most = max((phase.tainted for phase in report.phases), default=0)
    lines = [
        f"{report.nodes} nodes, fault {report.fault}, seed {report.seed}: at most {most} tainted at any instant, "
        f"{report.budget} allowed",
        f"{report.writes} writes checked, {report.quarantines} quarantines, {len(report.leaks)} leaks; "
        f"{report.wall_seconds:.0f} s, {words.size(report.memory_bytes)}",
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
