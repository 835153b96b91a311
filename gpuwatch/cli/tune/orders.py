"""`gpuwatch tune stop`, `resume` and `restore`: orders of an operator, whatever the tuner decides."""

import getpass
import os
import time
from pathlib import Path

import click

from gpuwatch.cli.console.options import Number, keeps_state, option
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.tune.driver_access import restorer
from gpuwatch.cli.tune.inputs import tuner_config, tuner_place
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.tuning.actuation.guard import HEARTBEAT_TIMEOUT_SECONDS
from gpuwatch.tuning.actuation.heartbeat import Heartbeat, HeartbeatFile
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.actuation.restore import RestoreOutcome
from gpuwatch.tuning.model.setting import Trigger
from gpuwatch.tuning.service.state_dir import StopRequest, TunerStopFile, state_directory


@click.command(short_help="Stop tuning at once and restore everything.")
@option("--reason", metavar="TEXT", default="", help="Why, for those who find it stopped.")
@option(
    "--wait",
    type=Number(0),
    default=5.0,
    metavar="SECONDS",
    help="For a tuner that runs, to restore what it has set. Default: 5.",
)
@keeps_state("Where tuner and guard keep their state.")
@pass_session
@click.pass_context
def stop(ctx: click.Context, session: Session, *, reason: str, wait: float) -> None:
    """Stop tuning at once and restore everything.

    Writes tuner.stop into the state directory; an older one stays, unless another reason is given. A running tuner
    reverts its settings within a cycle and sets nothing until `gpuwatch tune resume`, also after restarts. Exit 3:
    something is still set after --wait.

    \b
    Examples:
      gpuwatch tune stop --reason "benchmark until noon"
      gpuwatch tune resume
    """
    place = tuner_place(session)
    before = TunerStopFile(place).read()
    record = SettingsRecord(place)
    beat, held = _living(place), record.read().settings  # read before the order: the tuner may obey it at once
    if before is None or reason:
        TunerStopFile(place).put(StopRequest(by=_account(), at=time.time(), why=reason))
    already = f" already ({before.message})" if before and not reason else ""
    session.terminal.print(f"Tuning is stopped{already}. To continue: gpuwatch tune resume")
    left = held
    if beat:
        deadline = time.monotonic() + wait
        while (left := record.read().settings) and time.monotonic() < deadline:
            time.sleep(0.1)
    if held and not left:
        session.terminal.print(f"Restored: {len(held)} setting{'s' if len(held) > 1 else ''}.")
    if left:
        who = f"the tuner (process {beat.pid}) has not restored" if beat else "no tuner runs to restore"
        count = f"{len(left)} setting{'s' if len(left) > 1 else ''}"
        session.terminal.hint(f"hint: {who} {count}; run gpuwatch tune restore{' --all' if beat else ''}")
        ctx.exit(3)


@click.command(short_help="Let a stopped tuner work again.")
@keeps_state("Where tuner and guard keep their state.")
@pass_session
def resume(session: Session) -> None:
    """Let a stopped tuner work again.

    Removes what `gpuwatch tune stop` has put there. It starts no tuner, and changes no mode.

    \b
    Examples:
      gpuwatch tune resume
    """
    before = TunerStopFile(tuner_place(session)).clear()
    if before is None:
        session.terminal.hint("It was not stopped.")
    else:
        session.terminal.print(f"Tuning continues; it was {before.message}.")


@click.command(short_help="Restore every setting that gpuwatch has changed.")
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
    """Restore every setting that gpuwatch has changed.

    Restores the former value of what the record in the state directory lists. Needs root and CAP_SYS_ADMIN. Run it
    before an uninstall; while a tuner runs, use `gpuwatch tune stop`.

    \b
    Examples:
      gpuwatch tune restore
      gpuwatch tune restore --all
    """
    config = tuner_config(session)
    record = SettingsRecord(state_directory(config))
    if not (settings := record.read().settings):
        found = "lists no GPU" if record.path.exists() else "is not there"
        session.terminal.hint(f"Nothing is set: {record.path} {found}.")
        return
    if not everything and (beat := _living(record.directory)):
        raise UsageError(
            f"a tuner runs (process {beat.pid}) and holds {len(settings)} setting{'s' if len(settings) > 1 else ''}",
            "it would set them again",
            "run gpuwatch tune stop, which restores them, or give --all",
        )
    with restorer(session, config, Trigger.COMMAND) as restoring:
        results = restoring.restore()
    for each in results:
        session.terminal.print(f"{each.setting.uuid} {each.setting.knob}: {each.outcome}; {each.message}")
    if kept := [each for each in results if each.outcome is RestoreOutcome.KEPT]:
        kind = type(kept[0].error) if kept[0].error else GpuwatchError
        raise kind(f"settings not restored: {len(kept)} of {len(results)}", kept[0].message, "run it again")


def _living(place: Path) -> Heartbeat | None:
    """The newest beat of a tuner that enforces; None: there is none, or it is too old."""
    latest = HeartbeatFile(place).latest()
    beat = latest.beat if latest else None
    alive = beat is not None and beat.mode == "enforce" and abs(time.time() - beat.at) < HEARTBEAT_TIMEOUT_SECONDS
    return beat if alive else None


def _account() -> str:
    """The account of the user, also of one that used sudo."""
    try:
        return os.environ.get("SUDO_USER") or getpass.getuser()
    except (OSError, KeyError):  # no such user here, as in many containers
        return f"user {os.getuid()}"
