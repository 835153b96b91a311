"""What tuner, guard and `gpuwatch tune` need to reach the driver: the actuator, which sets, and the restorer."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpuwatch.cli.console.session import Session
from gpuwatch.config import Config
from gpuwatch.model.errors import UsageError
from gpuwatch.tuning.model.setting import Trigger
from gpuwatch.tuning.service.state_dir import state_directory

if TYPE_CHECKING:
    from gpuwatch.storage.audit import Audit
    from gpuwatch.tuning.actuation.interface import Actuator, Connect
    from gpuwatch.tuning.actuation.record import SettingsRecord
    from gpuwatch.tuning.actuation.restore import Restorer


OTHER_TUNER_SECONDS = 2.0
"""How long to wait for another tuner that is ending."""

ACTORS = {Trigger.GUARD: "guard", Trigger.COMMAND: "operator", Trigger.TUNER: "tuner"}
"""Trigger -> the actor in audit lines."""


class _DriverAccess(NamedTuple):
    """What it takes to change a GPU of this machine."""

    record: "SettingsRecord"
    connect: "Connect"
    boot_id: str | None
    audit: "Audit"


@contextmanager
def _driver_access(session: Session, config: Config, actor: str) -> Iterator[_DriverAccess]:
    from gpuwatch.cli.look.source import config_of_source
    from gpuwatch.host.machine import boot_id_file, first_line
    from gpuwatch.model.clock import SystemClock
    from gpuwatch.storage.audit import Audit
    from gpuwatch.storage.store import Store
    from gpuwatch.tuning.actuation.record import SettingsRecord

    config, connect = config_of_source(session, config), _driver(session, config)
    place = state_directory(config)
    store = Store.open(config.state_dir)
    boot_id = first_line(boot_id_file(Path(config.sources.proc)))
    try:
        yield _DriverAccess(
            record=SettingsRecord(place),
            connect=connect,
            boot_id=boot_id,
            audit=Audit(store, SystemClock(), actor=actor, boot_id=boot_id),
        )
    finally:
        store.close()


def _driver(session: Session, config: Config) -> "Connect":
    from gpuwatch.cli.look.source import is_simulated, running_simulation
    from gpuwatch.collect.nvml.library import open_library
    from gpuwatch.tuning.actuation.driver import NvmlControl

    if is_simulated(session):
        from gpuwatch.sim.nvml import open_knobs

        place = str(running_simulation(session))  # its driver needs no root
        return lambda: NvmlControl(open_knobs(place))
    if session.source not in (None, "nvml"):
        raise UsageError(
            f"--source {session.source} has no settings to change",
            "settings are made and restored at a driver",
            "leave it out, or name a simulated node that runs",
        )
    nvml = open_library(config.sources.nvml_library)
    return lambda: NvmlControl(nvml)


@contextmanager
def restorer(session: Session, config: Config, trigger: Trigger) -> Iterator["Restorer"]:
    """Restores settings on this machine or a simulated one. It calls the driver only if there is a setting to restore.

    Raises:
        UsageError: a source without a driver was named, or there is no state directory.
        NoGpuStack: the library that was named cannot be loaded, or no simulated node runs.
    """
    from gpuwatch.model.clock import SystemClock
    from gpuwatch.tuning.actuation.restore import Restorer

    with _driver_access(session, config, ACTORS[trigger]) as access:
        yield Restorer(
            access.record,
            access.connect,
            boot_id=access.boot_id,
            trigger=trigger,
            audit=access.audit,
            clock=SystemClock(),
        )


@contextmanager
def nvml_actuator(session: Session, config: Config) -> Iterator["Actuator"]:
    """Sets clocks and power limits on this machine or a simulated one; at the end it reverts what is still set.

    Raises:
        UsageError: the mode is not enforce; another tuner sets these GPUs; or as `restorer`.
        NoGpuStack: as `restorer`.
    """
    from gpuwatch.model.clock import SystemClock
    from gpuwatch.tuning.actuation.actuator import NvmlActuator

    if config.tuning.mode != "enforce":
        raise UsageError(f"tuning.mode {config.tuning.mode} sets nothing", "only enforce does", "restart the tuner")
    with (
        _driver_access(session, config, ACTORS[Trigger.TUNER]) as access,
        access.record.lock_tuner(OTHER_TUNER_SECONDS) as is_alone,
    ):
        if not is_alone:
            why = f"it holds tuner/tuner.lock in {access.record.directory}, or that cannot be opened"
            raise UsageError("another tuner sets these GPUs", why, "stop it first")
        actuator = NvmlActuator(
            access.record, access.connect, boot_id=access.boot_id, audit=access.audit, clock=SystemClock()
        )
        try:
            yield actuator
        finally:
            actuator.close()
