"""What the guard and `gpuwatch tune` need: the place of the record, and who gives settings back."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.cli.session import Session
from gpuwatch.config import Config
from gpuwatch.model.errors import UsageError
from gpuwatch.model.setting import Trigger

if TYPE_CHECKING:
    from gpuwatch.roles.restoring import Restorer


ACTORS = {Trigger.GUARD: "guard", Trigger.COMMAND: "operator"}
"""Trigger -> who acts, in audit lines."""


def state_place(config: Config) -> Path:
    """The state directory.

    Raises:
        UsageError: there is none: what is not recorded cannot be given back.
    """
    if not config.state_dir:
        raise UsageError("tuning needs a state directory", "state_dir is empty", "name it with --state-dir")
    return Path(config.state_dir)


@contextmanager
def restorer(session: Session, config: Config, trigger: Trigger) -> Iterator["Restorer"]:
    """Gives settings back to the driver of this machine. It is first asked when there is something to give back.

    Raises:
        UsageError: another source than the machine's driver was named, or there is no state directory.
        NoGpuStack: the library that was named cannot be loaded.
    """
    from gpuwatch.model.clock import SystemClock
    from gpuwatch.roles.restoring import Restorer
    from gpuwatch.sinks.audit import Audit
    from gpuwatch.sinks.nvml_control import NvmlControl
    from gpuwatch.sinks.settings_record import SettingsRecord
    from gpuwatch.sinks.store import Store
    from gpuwatch.sources.machine import boot_id_file, first_line
    from gpuwatch.sources.nvml import open_library

    if session.source not in (None, "nvml"):
        raise UsageError(
            f"--source {session.source} has no knobs",
            "settings are given back to this machine's driver",
            "leave it out",
        )
    place, clock = state_place(config), SystemClock()
    nvml, store = open_library(config.sources.nvml_library), Store.open(config.state_dir)
    boot_id = first_line(boot_id_file(Path(config.sources.proc)))
    try:
        yield Restorer(
            SettingsRecord(place),
            lambda: NvmlControl(nvml),
            boot_id=boot_id,
            trigger=trigger,
            audit=Audit(store, clock, actor=ACTORS[trigger], boot_id=boot_id),
            clock=clock,
        )
    finally:
        store.close()
