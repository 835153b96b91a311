"""What tuner, guard and `gpuwatch tune` need: the place of the record, who turns knobs, and who gives settings back."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpuwatch.cli.session import Session
from gpuwatch.config import Config
from gpuwatch.model.errors import UsageError
from gpuwatch.model.setting import Trigger

if TYPE_CHECKING:
    from gpuwatch.roles.knobs import Hand
    from gpuwatch.roles.restoring import Connect, Restorer
    from gpuwatch.sinks.audit import Audit
    from gpuwatch.sinks.settings_record import SettingsRecord


ACTORS = {Trigger.GUARD: "guard", Trigger.COMMAND: "operator", Trigger.TUNER: "tuner"}
"""Trigger -> who acts, in audit lines."""


def state_place(config: Config) -> Path:
    """The state directory.

    Raises:
        UsageError: there is none: what is not recorded cannot be given back.
    """
    if not config.state_dir:
        raise UsageError("tuning needs a state directory", "state_dir is empty", "name it with --state-dir")
    return Path(config.state_dir)


class _Reach(NamedTuple):
    """What it takes to change a GPU of this machine."""

    record: "SettingsRecord"
    connect: "Connect"
    boot_id: str | None
    audit: "Audit"


@contextmanager
def _reach(session: Session, config: Config, actor: str) -> Iterator[_Reach]:
    from gpuwatch.model.clock import SystemClock
    from gpuwatch.sinks.audit import Audit
    from gpuwatch.sinks.nvml_control import NvmlControl
    from gpuwatch.sinks.settings_record import SettingsRecord
    from gpuwatch.sinks.store import Store
    from gpuwatch.sources.machine import boot_id_file, first_line
    from gpuwatch.sources.nvml import open_library

    if session.source not in (None, "nvml"):
        raise UsageError(
            f"--source {session.source} has no knobs",
            "settings are made and given back at this machine's driver",
            "leave it out",
        )
    place = state_place(config)
    nvml, store = open_library(config.sources.nvml_library), Store.open(config.state_dir)
    boot_id = first_line(boot_id_file(Path(config.sources.proc)))
    try:
        yield _Reach(
            record=SettingsRecord(place),
            connect=lambda: NvmlControl(nvml),
            boot_id=boot_id,
            audit=Audit(store, SystemClock(), actor=actor, boot_id=boot_id),
        )
    finally:
        store.close()


@contextmanager
def restorer(session: Session, config: Config, trigger: Trigger) -> Iterator["Restorer"]:
    """Gives settings back to the driver of this machine. It is first asked when there is something to give back.

    Raises:
        UsageError: another source than the machine's driver was named, or there is no state directory.
        NoGpuStack: the library that was named cannot be loaded.
    """
    from gpuwatch.model.clock import SystemClock
    from gpuwatch.roles.restoring import Restorer

    with _reach(session, config, ACTORS[trigger]) as reach:
        yield Restorer(
            reach.record,
            reach.connect,
            boot_id=reach.boot_id,
            trigger=trigger,
            audit=reach.audit,
            clock=SystemClock(),
        )


@contextmanager
def hand(session: Session, config: Config) -> Iterator["Hand"]:
    """Turns the knobs of this machine's GPUs; whatever is still set at the end is given back.

    Raises:
        UsageError: the mode is not enforce; or as `restorer`.
        NoGpuStack: as `restorer`.
    """
    from gpuwatch.model.clock import SystemClock
    from gpuwatch.roles.tuner_hand import TunerHand

    if config.tuning.mode != "enforce":
        raise UsageError(f"tuning.mode {config.tuning.mode} sets nothing", "only enforce does", "restart the tuner")
    with _reach(session, config, ACTORS[Trigger.TUNER]) as reach:
        turning = TunerHand(reach.record, reach.connect, boot_id=reach.boot_id, audit=reach.audit, clock=SystemClock())
        try:
            yield turning
        finally:
            turning.close()
