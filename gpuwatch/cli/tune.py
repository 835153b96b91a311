"""`gpuwatch tune`: which GPUs could be tuned, what gpuwatch has set, and how it is given back."""

from typing import TYPE_CHECKING

import click

from gpuwatch.cli.lazy import Entry, LazyGroup
from gpuwatch.cli.options import gpus, keeps_state, option, output
from gpuwatch.cli.session import Session, pass_session

if TYPE_CHECKING:
    from gpuwatch.model.setting import Actuation, Setting
    from gpuwatch.sinks.settings_record import SettingsRecord

ENTRIES = (
    Entry("status", "Show which GPUs may be tuned now, and why not.", "tune:status", "Commands"),
    Entry("restore", "Give back every setting that gpuwatch has changed.", "tune:restore", "Commands"),
)

DEGRADED = 3
"""Exit code: the GPUs are told, what is set on them is not known."""


@click.group(cls=LazyGroup, entries=ENTRIES)
def tune() -> None:
    """Show which GPUs could be tuned; give back what was set."""


@click.command(short_help="Show which GPUs may be tuned now, and why not.")
@output("table", "wide", "json", "yaml", "name", "schema")
@gpus
@keeps_state("Where tuner and guard keep their state.")
@pass_session
@click.pass_context
def status(ctx: click.Context, session: Session, output: str, gpu: str | None) -> None:
    """Show which GPUs may be tuned now, and why not.

    It judges what is there at this moment. A tuner also leaves a GPU alone for ten minutes after a fault.

    \b
    Examples:
      gpuwatch tune status
      gpuwatch tune status --gpu 0 -o json
    """
    from gpuwatch.cli.document import Envelope, schema, to_json, to_yaml
    from gpuwatch.cli.selection import chosen
    from gpuwatch.cli.source import one_view
    from gpuwatch.cli.table import table
    from gpuwatch.cli.tune_items import COLUMNS, TuningItem, tuning_items
    from gpuwatch.cli.words import Words, utc

    if output == "schema":
        click.echo(schema("TuneStatus", TuningItem))
        return
    view, actuation = one_view(session), _recorded(session)
    wanted = chosen(view, gpu)
    classes = session.config().checks.xids
    found = tuning_items(view, actuation.settings if actuation else (), classes)
    items = tuple(item for item in found if wanted is None or item.uuid in wanted)
    if output in ("json", "yaml"):
        document = Envelope(kind="TuneStatus", node=view.snapshot.node, at=utc(view.snapshot.at), items=items)
        click.echo(to_json(document) if output == "json" else to_yaml(document))
    elif output == "name":
        click.echo("\n".join(f"gpu/{item.uuid}" for item in items), nl=bool(items))
    else:
        terminal = session.terminal
        words = Words(terminal.glyphs, view.snapshot.at)
        terminal.show(*table(COLUMNS, items, words, width=terminal.width, wide=output == "wide"))
    ctx.exit(0 if actuation else DEGRADED)


@click.command(short_help="Give back every setting that gpuwatch has changed.")
@option(
    "--all",
    "everything",
    is_flag=True,
    envvar="GPUWATCH_TUNE_RESTORE_ALL",
    help="Also what a tuner that is running in mode enforce has set.",
)
@keeps_state("Where tuner and guard keep their state.")
@pass_session
def restore(session: Session, *, everything: bool) -> None:
    """Give back every setting that gpuwatch has changed.

    Only what the record in the state directory lists is touched, and only to the value from before. Needs root and
    CAP_SYS_ADMIN. Run it before an uninstall.

    \b
    Examples:
      gpuwatch tune restore
      gpuwatch tune restore --all
    """
    from gpuwatch.cli.tune_reach import restorer, state_place
    from gpuwatch.model.errors import GpuwatchError
    from gpuwatch.model.setting import Trigger
    from gpuwatch.roles.restoring import Outcome
    from gpuwatch.sinks.settings_record import SettingsRecord

    config = session.config()
    record = SettingsRecord(state_place(config))
    if not (settings := record.read().settings):
        session.terminal.hint(f"Nothing is set: {record.path} lists no GPU.")
        return
    if not everything:
        _refuse_a_living_tuners(record, settings)
    with restorer(session, config, Trigger.COMMAND) as restoring:
        found = restoring.restore()
    for each in found:
        click.echo(f"{each.setting.uuid} {each.setting.knob}: {each.outcome}; {each.words}")
    if kept := [each for each in found if each.outcome is Outcome.KEPT]:
        kind = type(kept[0].error) if kept[0].error else GpuwatchError
        raise kind(f"{len(kept)} of {len(found)} settings are not given back", kept[0].words, "run it again")


def _recorded(session: Session) -> "Actuation | None":
    """What gpuwatch has set; None, and said, where that is not known."""
    from gpuwatch.cli.tune_reach import state_place
    from gpuwatch.model.errors import GpuwatchError
    from gpuwatch.model.setting import Actuation
    from gpuwatch.sinks.settings_record import SettingsRecord

    config = session.config()
    if not config.state_dir:
        return Actuation()
    try:
        return SettingsRecord(state_place(config)).read()
    except GpuwatchError as error:
        session.terminal.hint(f"hint: what gpuwatch has set is not known; {error}")
        return None


def _refuse_a_living_tuners(record: "SettingsRecord", settings: "tuple[Setting, ...]") -> None:
    """Raises UsageError: a tuner that enforces has beaten just now, these are its settings."""
    import time

    from gpuwatch.model.errors import UsageError
    from gpuwatch.roles.tuner_guard import SILENCE_SECONDS
    from gpuwatch.sinks.heartbeat import Heartbeat

    seen = Heartbeat(record.path.parent).look()
    beat = seen.beat if seen else None
    if beat is not None and beat.mode == "enforce" and abs(time.time() - beat.at) < SILENCE_SECONDS:
        raise UsageError(
            f"{len(settings)} settings are those of a running tuner (process {beat.pid})",
            "it would set them again",
            "stop it first, or give --all",
        )
