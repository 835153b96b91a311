"""`gpuwatch recommend`: which work holds more GPU than it uses, what to give it instead, and how."""

from pathlib import Path
from typing import Any

import click

from gpuwatch.cli.console.options import keeps_state, option, output
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.recommend.prometheus import FleetOptions, prometheus_options

FINDINGS = (
    "never_used", "idle_holder", "duty_cycled", "mig_fit", "gang_oversized", "preallocated", "cpu_bound", "io_bound",
    "quota_slack", "steady_load", "energy", "mig_layout",
)  # fmt: skip
LEVELS = ("low", "medium", "high")
"""The members of FindingKind and of Level, lowest first, here so that help need not load them; a test compares."""
SCHEMA = ("RecommendationList", "cli.recommend.items:RecommendationItem", "cli.recommend.items:RecommendationList")


@click.command(short_help="Show who holds more GPU than they use, and what to give them.")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@option("-n", "--namespace", metavar="NAME", multiple=True, help="Only this namespace; repeatable.")
@option("--kind", type=click.Choice(FINDINGS), metavar="FINDING", multiple=True, help="Only this; repeatable.")
@option("--min-confidence", type=click.Choice(LEVELS), metavar="LEVEL", default="low", help="low, medium or high.")
@option("--top", type=click.IntRange(min=1), metavar="N", help="Only the N that save most.")
@output("table", "wide", "json", "yaml", "csv", "name", "apply", schema=SCHEMA)
@option("--output-dir", metavar="DIR", help="Also write data, commands, manifests there.")
@option("--from-views", metavar="FILE", help="Judge recorded views; - is stdin; or sim:SCENARIO.")
@option("--duration", metavar="TIME", default="2h", hidden=True, help="Of a scenario, to play.")
@option("--seed", type=int, default=1, metavar="N", hidden=True, help="Of a scenario.")
@prometheus_options
@keeps_state("Without an agent: what one has kept.")
@pass_session
def recommend(
    session: Session,
    /,
    ids: tuple[str, ...],
    namespace: tuple[str, ...],
    output: str,
    output_dir: str | None,
    from_views: str | None,
    from_prometheus: str | None,
    **given: Any,
) -> None:
    """Show who holds more GPU than they use, and what to give them.

    Asks the agent of this node, which has watched since it was installed; --from-prometheus judges a whole fleet. ID
    picks single ones. Nothing is applied: -o apply prints commands, to read and run. FINDING is never_used,
    idle_holder, duty_cycled, mig_fit, gang_oversized, preallocated, cpu_bound, io_bound, quota_slack, steady_load,
    energy or mig_layout.

    \b
    Examples:
      gpuwatch recommend -n nlp --kind idle_holder -o wide
      gpuwatch recommend --from-prometheus http://prometheus:9090 --output-dir report
      gpuwatch recommend --min-confidence medium -o apply
    """
    from gpuwatch.cli.recommend.items import RecommendationFilter, document
    from gpuwatch.cli.recommend.screen import hints
    from gpuwatch.cli.recommend.sources import RecordedViews, find_recommendations

    chosen = {"kinds": given.pop("kind"), **{name: given.pop(name) for name in ("min_confidence", "top")}}
    play = given.pop("duration"), given.pop("seed")
    views = None if from_views is None else RecordedViews(from_views, *play)
    fleet = None if from_prometheus is None else FleetOptions(from_prometheus, **given)
    body, source = find_recommendations(session, views, fleet, namespace)
    found = document(body, source, RecommendationFilter(ids=ids, namespaces=namespace, **chosen).of(body.items))
    if body.items and not found.items:
        session.terminal.hint(f"hint: none of {len(body.items)} is what was asked for; without options all are shown")
    elif namespace and not body.workloads:
        session.terminal.hint(f"hint: no workload in {', '.join(namespace)} used a GPU; is the name right?")
    if output in ("table", "wide"):
        from gpuwatch.cli.console.words import Words
        from gpuwatch.cli.recommend.screen import lines

        terminal = session.terminal
        words = Words(terminal.glyphs, found.at.timestamp() if found.at else 0.0)
        terminal.show(*lines(found, words, terminal.width, wide=output == "wide"))
    else:
        from gpuwatch.cli.recommend.output_files import text

        session.terminal.page(text(found, output))
    if output_dir:
        from gpuwatch.cli.recommend.output_files import TABLE, write

        count = write(Path(output_dir), found)
        session.terminal.hint(f"{count} files in {output_dir}; begin with {output_dir}/{TABLE}")
    for line in hints(found, session.config().rightsizing, output):
        session.terminal.hint(f"hint: {line}")
