"""The last reports of the remediator and the tuner of this node, for the agent's page and `status`.

They are processes of their own, each of which writes a small file into the state folder. Only a few members are decoded
here: the writer's own command reads the whole file.
"""

import contextlib
from pathlib import Path

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import Record
from gpuwatch.model.view import RoleReport
from gpuwatch.storage.versioned_file import VersionedFile

REMEDIATOR_STATE, TUNER_STATE = "remediator-state.json", "tuner/tuner-state.json"
FRESH_SECONDS = 60.0
"""An older file is of a process that hangs or is gone."""


class _Remediator(Record, frozen=True, kw_only=True):
    mode: str
    at: float
    quarantined: bool = False


class _TunedGpu(Record, frozen=True, kw_only=True):
    index: int
    clock_cap: float | None = None
    power_limit: float | None = None


class _TunerState(Record, frozen=True, kw_only=True):
    mode: str
    at: float
    stopped: str = ""
    gpus: tuple[_TunedGpu, ...] = ()


class _Tuner(Record, frozen=True, kw_only=True):
    state: _TunerState


def role_reports(state_dir: str, now: float) -> tuple[RoleReport, ...]:
    """The reports of the last FRESH_SECONDS; `now`: unix seconds. A file that cannot be read or decoded is left out."""
    found: list[RoleReport] = []
    if not state_dir:
        return ()
    with contextlib.suppress(GpuwatchError):
        if (one := VersionedFile(Path(state_dir) / REMEDIATOR_STATE, _Remediator).read()) is not None:
            summary = "the node is quarantined" if one.quarantined else ""
            found.append(RoleReport(role="remediator", mode=one.mode, at=one.at, summary=summary))
    with contextlib.suppress(GpuwatchError):
        if (file := VersionedFile(Path(state_dir) / TUNER_STATE, _Tuner).read()) is not None:
            state = file.state
            held = [str(gpu.index) for gpu in state.gpus if (gpu.clock_cap, gpu.power_limit) != (None, None)]
            summary = f"stopped: {state.stopped}" if state.stopped else f"caps on GPU {', '.join(held)}" if held else ""
            found.append(RoleReport(role="tuner", mode=state.mode, at=state.at, summary=summary))
    return tuple(each for each in found if abs(now - each.at) <= FRESH_SECONDS)
