"""`gpuwatch sim fleet`: a thousand remediators before one API server, and a referee who sees every write."""

import sys
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.console.options import option, output
from gpuwatch.cli.console.session import Session, pass_session

if TYPE_CHECKING:
    from gpuwatch.sim.fleet import Phase, Remediator, Seat

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
    given back too early, nothing foreign touched; and in the end nothing is left behind. If not so: exit code 4.

    \b
    Examples:
      gpuwatch sim fleet --nodes 1000 --fault driver-rollout
      gpuwatch sim fleet --nodes 200 --api-failures 0.3 --kill --race
      gpuwatch sim fleet --fault app-xids -o json
    """
    from gpuwatch.cli.console.document import to_json
    from gpuwatch.cli.sim.fleet_screen import document, screen
    from gpuwatch.sim.fleet import BadDay, Drill, run

    session.start_logging(default="ERROR")
    drill = Drill(
        nodes=nodes,
        fault=fault,
        budget=_budget(budget),
        seed=seed,
        seconds=duration,
        bad_day=BadDay(api_failures, kill),
        rounds=ROUNDS if race else 0,
    )

    def tell(phase: "Phase") -> None:
        session.terminal.hint(f"{phase.name}: {phase.words} ({phase.wall_seconds:.0f} s)")

    report = run(drill, remediator, tell)
    if output == "json":
        click.echo(to_json(document(report)))
    else:
        session.terminal.show(*screen(report, session.terminal))
    if not report.is_good:
        sys.exit(EXIT_VIOLATED)


def remediator(seat: "Seat") -> "Remediator":
    """The real one, with everything around it simulated."""
    from gpuwatch.kube.reader import OwnNode
    from gpuwatch.remediation.service.remediator import Remediator

    return Remediator(
        seat.config,
        OwnNode(node=seat.node, namespace=seat.namespace),
        seat.agent,
        lambda: seat.line,
        clock=seat.clock,
        ledger=seat.ledger,
        chance=seat.chance,
        checkpoint=seat.checkpoint,
    )


def _budget(text: str) -> int | str:
    """As `remediation.budget.max_unavailable` takes it. Raises UsageError."""
    from gpuwatch.config import parse

    value = int(text) if text.isascii() and text.isdigit() else text
    document = {"remediation": {"budget": {"max_unavailable": value}}}
    return parse(document, "--budget").remediation.budget.max_unavailable
