"""`gpuwatch tune`: what the tuner does with each GPU, what it would do, and how it is stopped."""

from typing import TYPE_CHECKING

import click

from gpuwatch.cli.console.commands import Entry
from gpuwatch.cli.console.document import Envelope
from gpuwatch.cli.console.lazy import LazyGroup
from gpuwatch.cli.console.options import gpus, keeps_state, output
from gpuwatch.cli.console.session import Session, pass_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuwatch.cli.console.text import Text
    from gpuwatch.cli.tune.inputs import TunerInputs
    from gpuwatch.cli.tune.items import TuneStatus

ENTRIES = (
    Entry(
        "status",
        "Show what is tuned, what it costs and saves, and why the rest is not.",
        "tune.tune:status",
        "Commands",
    ),
    Entry("plan", "Show what enforce would do with each GPU; change nothing.", "tune.tune:plan", "Commands"),
    Entry("stop", "Stop tuning at once and restore everything.", "tune.orders:stop", "Commands"),
    Entry("resume", "Let a stopped tuner work again.", "tune.orders:resume", "Commands"),
    Entry("restore", "Restore every setting that gpuwatch has changed.", "tune.orders:restore", "Commands"),
)

DEGRADED = 3
"""Exit code: settings without a tuner in mode enforce, an unreadable record, a tuner in trouble or without a guard."""


@click.group(cls=LazyGroup, entries=ENTRIES)
def tune() -> None:
    """Show what is tuned and what would be; stop it; restore what was set."""


@click.command(short_help="Show what is tuned, what it costs and saves, and why the rest is not.")
@output(schema=("TuneStatus", "cli.tune.items:TuningItem", "cli.tune.items:TuneStatus"))
@gpus
@keeps_state("Where tuner and guard keep their state.")
@pass_session
@click.pass_context
def status(ctx: click.Context, session: Session, output: str, gpu: str | None) -> None:
    """Show what is tuned, what it costs and saves, and why the rest is not.

    SLOWDOWN is the measured loss of speed and the upper end of its 95 % interval; BOUND is what was promised. Without a
    tuner it judges the present state.

    Exit 3: a setting without a tuner, a tuner in trouble or without its guard.

    \b
    Examples:
      gpuwatch tune status
      gpuwatch tune status --gpu 0 -o json
    """
    import time

    from gpuwatch.cli.console.terminal import ASCII
    from gpuwatch.cli.console.words import Words
    from gpuwatch.cli.tune.inputs import read_inputs
    from gpuwatch.cli.tune.screen import status_lines

    inputs = read_inputs(session, needs_view=gpu is not None)
    found = _document(session, inputs, gpu)
    if not found.tuner:
        why = "no tuner answers here; this is judged now, by what is there at this moment"
        if inputs.state is not None:
            ago = Words(ASCII, time.time()).ago(inputs.state.at)
            why = f"the tuner's last state is from {ago}; this is judged now; look at its log, or start gpuwatch tuner"
        session.terminal.hint(f"hint: {why}")
    _print(session, found, output, status_lines)
    ctx.exit(DEGRADED if _is_degraded(inputs) else 0)


def _document(session: Session, inputs: "TunerInputs", gpu: str | None) -> "TuneStatus":
    from gpuwatch.cli.console.options import chosen_gpus
    from gpuwatch.cli.console.words import utc
    from gpuwatch.cli.tune.inputs import consents, preview
    from gpuwatch.cli.tune.items import TuneStatus, budget_item, tuning_items

    view, tuner, settings = inputs.view, inputs.tuner, inputs.actuation.settings if inputs.actuation else ()
    items = tuning_items(tuner.gpus, view, settings, reported=True) if tuner else ()
    if not items and view is not None:
        found = preview(view, inputs, consents(session, inputs), "observe")
        items = tuning_items(found.values(), view, settings, reported=False)
    wanted = chosen_gpus(view, gpu) if view is not None else None
    refused = f"configuration: {tuner.config_error}" if tuner and tuner.config_error else None
    stopped = tuner.stopped if tuner and tuner.stopped else inputs.stop.message if inputs.stop else None
    return TuneStatus(
        kind="TuneStatus",
        node=view.snapshot.node if view else None,
        at=utc(view.snapshot.at if view else inputs.state.at if inputs.state else 0.0),
        items=tuple(item for item in items if wanted is None or item.uuid in wanted),
        tuner=tuner is not None,
        mode=tuner.mode if tuner else None,
        seen=utc(inputs.state.at) if inputs.state else None,
        guard=tuner.guard if tuner else None,
        consents=utc(tuner.consents_at) if tuner and tuner.consents_at is not None else None,
        stopped=stopped,
        budget=budget_item(tuner.budget) if tuner else None,
        trouble="; ".join(filter(None, (refused, tuner.trouble))) or None if tuner else None,
    )


def _is_degraded(inputs: "TunerInputs") -> bool:
    if inputs.actuation is None:
        return True
    tuner = inputs.tuner
    if tuner is None or tuner.mode != "enforce":
        return bool(inputs.actuation.settings) or bool(tuner and (tuner.trouble or tuner.config_error))
    return bool(tuner.trouble or tuner.config_error) or tuner.guard is False


@click.command(short_help="Show what enforce would do with each GPU; change nothing.")
@output(schema=("TunePlan", "cli.tune.plan_items:PlanItem", "cli.tune.plan_items:TunePlan"))
@gpus
@keeps_state("Where tuner, guard and consents keep their state.")
@pass_session
def plan(session: Session, output: str, gpu: str | None) -> None:
    """Show what enforce would do with each GPU; change nothing.

    By the tuner's own rules, whatever the mode: which GPUs opted in, up to which slowdown, by which knob, what would be
    tried first, and why others are left alone. Savings are known only after a cap was tried.

    \b
    Examples:
      gpuwatch tune plan
      gpuwatch --config gpuwatch.yaml tune plan -o wide
    """
    from gpuwatch.cli.console.options import chosen_gpus
    from gpuwatch.cli.console.words import utc
    from gpuwatch.cli.tune.inputs import consents, read_inputs
    from gpuwatch.cli.tune.plan_items import TunePlan, planned
    from gpuwatch.cli.tune.screen import plan_lines
    from gpuwatch.model.errors import GpuwatchError

    inputs = read_inputs(session, needs_view=True)
    view = inputs.view
    if view is None:
        raise GpuwatchError("nothing is known about the GPUs", "no agent answers here", "start one, or give --source")
    if not inputs.agent and not inputs.tuner:
        session.terminal.hint("hint: no agent was read; a tuner needs one whose interval is 1 s")
    items, budget = planned(view, inputs, consents(session, inputs))
    wanted = chosen_gpus(view, gpu)
    found = TunePlan(
        kind="TunePlan",
        node=view.snapshot.node,
        at=utc(view.snapshot.at),
        items=tuple(item for item in items if wanted is None or item.uuid in wanted),
        mode=inputs.tuner.mode if inputs.tuner else inputs.config.tuning.mode,
        budget=budget,
    )
    _print(session, found, output, plan_lines)


def _print(session: Session, found: Envelope, output: str, lines: "Callable[..., list[Text]]") -> None:
    """As a document, as names, or as the `lines` of a screen."""
    from gpuwatch.cli.console.words import Words

    terminal = session.terminal
    if output in ("json", "yaml"):
        terminal.document(found, output)
    elif output == "name":
        terminal.print(*(f"gpu/{item.uuid}" for item in found.items))
    else:
        words = Words(terminal.glyphs, found.at.timestamp() if found.at else 0.0)
        terminal.show(*lines(found, words, terminal.width, wide=output == "wide"))
