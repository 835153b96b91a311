"""`gpuwatch recommend`: who holds more GPU than they use, what to give them instead, and how."""

from typing import TYPE_CHECKING

import click

from gpuwatch.cli.options import option, output
from gpuwatch.cli.session import Session, pass_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuwatch.cli.recommend_items import RecommendationList

FINDINGS = (
    "never_used",
    "idle_holder",
    "duty_cycled",
    "mig_fit",
    "gang_oversized",
    "preallocated",
    "cpu_bound",
    "io_bound",
    "quota_slack",
    "steady_load",
    "energy",
    "mig_layout",
)
LEVELS = ("low", "medium", "high")
"""The members of Finding and of Level, lowest first, here so that help need not load them; a test compares."""


@click.command(short_help="Show who holds more GPU than they use, and what to give them.")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@option("-n", "--namespace", "namespaces", metavar="NAME", multiple=True, help="Only this namespace; repeatable.")
@option("--kind", "kinds", type=click.Choice(FINDINGS), metavar="FINDING", multiple=True, help="Only this; repeatable.")
@option("--min-confidence", type=click.Choice(LEVELS), default="low", help="Leave out what is less sure. Default: low.")
@option("--top", type=click.IntRange(min=1), metavar="N", help="Only the N that save most.")
@output("table", "wide", "json", "yaml", "csv", "name", "apply", "schema")
@pass_session
def recommend(
    session: Session,
    ids: tuple[str, ...],
    namespaces: tuple[str, ...],
    kinds: tuple[str, ...],
    min_confidence: str,
    top: int | None,
    output: str,
) -> None:
    """Show who holds more GPU than they use, and what to give them.

    Asks the agent of this node, which has watched since it was started. Dearest first; ID picks single ones. Nothing is
    ever applied: -o apply prints the commands, for you to read and run.

    FINDING is never_used, idle_holder, duty_cycled, mig_fit, gang_oversized, preallocated, cpu_bound, io_bound,
    quota_slack, steady_load, energy or mig_layout.

    \b
    Examples:
      gpuwatch recommend
      gpuwatch recommend -n nlp --kind idle_holder -o wide
      gpuwatch recommend --min-confidence medium -o apply
    """
    from gpuwatch.cli.document import schema
    from gpuwatch.cli.recommend_choice import Wanted
    from gpuwatch.cli.recommend_items import RecommendationItem, RecommendationList, document
    from gpuwatch.cli.recommend_sources import advice

    if output == "schema":
        click.echo(schema("RecommendationList", RecommendationItem, RecommendationList))
        return
    body, source = advice(session)
    wanted = Wanted(ids=ids, namespaces=namespaces, kinds=kinds, min_confidence=min_confidence, top=top)
    found = document(body, source, wanted.of(body.items))
    _show(session, found, output)
    _hints(session, found, output)


def _show(session: Session, found: "RecommendationList", output: str) -> None:
    if output in ("table", "wide"):
        from gpuwatch.cli.recommend_screen import lines
        from gpuwatch.cli.words import Words

        terminal = session.terminal
        words = Words(terminal.glyphs, found.at.timestamp() if found.at else 0.0)
        terminal.show(*lines(found, words, terminal.width, wide=output == "wide"))
    else:
        click.echo(_text(output)(found), nl=False)


def _text(output: str) -> "Callable[[RecommendationList], str]":
    """What makes the text of an output format."""
    from gpuwatch.cli.document import to_json, to_yaml
    from gpuwatch.cli.recommend_apply import script
    from gpuwatch.cli.recommend_csv import to_csv

    texts: dict[str, Callable[[RecommendationList], str]] = {
        "json": lambda found: f"{to_json(found)}\n",
        "yaml": lambda found: f"{to_yaml(found)}\n",
        "csv": lambda found: to_csv(found.items),
        "name": lambda found: "".join(f"recommendation/{item.id}\n" for item in found.items),
        "apply": lambda found: script(found.items),
    }
    return texts[output]


def _hints(session: Session, found: "RecommendationList", output: str) -> None:
    """What is not in the table, and how to get it."""
    from gpuwatch.cli.recommend_screen import hints

    for line in hints(found, session.config().rightsizing, output):
        session.terminal.hint(f"hint: {line}")
