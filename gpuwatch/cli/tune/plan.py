"""`gpuwatch tune plan`: what enforce would do with each GPU, by the tuner's own rules; nothing is changed."""

import click

from gpuwatch.cli.console.options import gpus, keeps_state, output
from gpuwatch.cli.console.session import Session, pass_session


@click.command(short_help="Show what enforce would do with each GPU; change nothing.")
@output("table", "wide", "json", "yaml", "name", "schema")
@gpus
@keeps_state("Where tuner, guard and consents keep their state.")
@pass_session
def plan(session: Session, output: str, gpu: str | None) -> None:
    """Show what enforce would do with each GPU; change nothing.

    By the tuner's own rules and what is there at this moment, whatever mode is configured: who agrees, up to which
    slowdown, by which knob, what would be tried first, and why the others would be left alone. What a cap saves and
    costs is known once it was tried, so no saving is foretold.

    \b
    Examples:
      gpuwatch tune plan
      gpuwatch --config gpuwatch.yaml tune plan -o wide
    """
    from gpuwatch.cli.console.document import schema, to_json, to_yaml
    from gpuwatch.cli.console.options import chosen_gpus
    from gpuwatch.cli.console.words import Words, utc
    from gpuwatch.cli.tune.inputs import consents, look
    from gpuwatch.cli.tune.plan_items import PlanItem, TunePlan, planned
    from gpuwatch.cli.tune.plan_screen import plan_lines
    from gpuwatch.model.errors import GpuwatchError

    if output == "schema":
        click.echo(schema("TunePlan", PlanItem, TunePlan))
        return
    sight = look(session, needs_view=True)
    view = sight.view
    if view is None:
        raise GpuwatchError("nothing is known about the GPUs", "no agent answers here", "start one, or give --source")
    if not sight.agent and not sight.tuner:
        session.terminal.hint("hint: no agent was asked; a tuner needs one that looks each second")
    items, budget = planned(view, sight, consents(session, sight))
    wanted = chosen_gpus(view, gpu)
    found = TunePlan(
        kind="TunePlan",
        node=view.snapshot.node,
        at=utc(view.snapshot.at),
        items=tuple(item for item in items if wanted is None or item.uuid in wanted),
        mode=sight.tuner.mode if sight.tuner else sight.config.tuning.mode,
        budget=budget,
    )
    if output in ("json", "yaml"):
        click.echo(to_json(found) if output == "json" else to_yaml(found))
    elif output == "name":
        click.echo("\n".join(f"gpu/{item.uuid}" for item in found.items), nl=bool(found.items))
    else:
        terminal = session.terminal
        words = Words(terminal.glyphs, view.snapshot.at)
        terminal.show(*plan_lines(found, words, terminal.width, wide=output == "wide"))
