"""What `gpuwatch tune` reads: the node's View, the tuner's last state and the record; and what its rules decide now."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.agent.client import AgentClient
from gpuwatch.cli.console.session import Session
from gpuwatch.cli.look.source import config_of_source, open_source
from gpuwatch.config import Config, Mode
from gpuwatch.consents.file import ConsentsFile
from gpuwatch.model.consent import Consents
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.view import View
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.cycle.cycle import cycle
from gpuwatch.tuning.cycle.gang import sampled_capabilities
from gpuwatch.tuning.cycle.state import CycleInputs, CycleMemory
from gpuwatch.tuning.model.setting import Actuation
from gpuwatch.tuning.model.status import GpuTuning, TunerState
from gpuwatch.tuning.service.state_dir import FRESH_SECONDS, StopRequest, TunerStatus, TunerStopFile, state_directory


class TunerInputs(NamedTuple):
    """`view` None: no agent and no driver answers, but a tuner does. `agent`: the View is an agent's. `state` None: no
    tuner has reported these GPUs; `fresh`: `state` is new enough. `actuation` None: what is set is not known.
    """

    config: Config
    view: View | None
    agent: bool
    state: TunerState | None
    fresh: bool
    actuation: Actuation | None
    stop: StopRequest | None

    @property
    def tuner(self) -> TunerState | None:
        """The state of a tuner that answers; None: none does."""
        return self.state if self.fresh else None


def read_inputs(session: Session, *, needs_view: bool = False) -> TunerInputs:
    """Read each input once; hints on stderr name what cannot be read.

    Raises:
        GpuwatchError: no source gives a View, and one is needed or no tuner answers.
    """
    config = config_of_source(session, session.config_or_defaults())
    place = Path(config.state_dir) if config.state_dir else None
    state = TunerStatus(place).read() if place else None
    fresh = state is not None and abs(time.time() - state.at) <= FRESH_SECONDS
    view: View | None = None
    agent = False
    try:
        with open_source(session) as source:
            view, agent = source.view(), isinstance(source, AgentClient)
    except GpuwatchError as error:
        if needs_view or not fresh:
            raise
        session.terminal.hint(f"hint: this is the tuner's own state; {error}")
    if view is not None and state is not None:
        there = {status.identity.uuid for status in view.snapshot.statuses}
        # a state of other GPUs only is another node's; a tuner may know no GPU yet
        if state.gpus and not any(gpu.uuid in there for gpu in state.gpus):
            state, fresh = None, False
    stop = TunerStopFile(place).read() if place else None
    return TunerInputs(config, view, agent, state, fresh, _recorded(session, place), stop)


def consents(session: Session, inputs: TunerInputs) -> Consents | None:
    """What pods consent to; None: not known, with a hint on stderr where it cannot be read."""
    if not inputs.config.state_dir:
        return None
    try:
        return ConsentsFile(Path(inputs.config.state_dir)).read()
    except GpuwatchError as error:
        session.terminal.hint(f"hint: what pods consent to is not known; {error}")
        return None


def tuner_config(session: Session) -> Config:
    """The configuration with the state directory of the node that is asked: a simulated node has its own."""
    return config_of_source(session, session.config())


def tuner_place(session: Session) -> Path:
    """The state directory. Raises UsageError: there is none."""
    return state_directory(tuner_config(session))


def _recorded(session: Session, place: Path | None) -> Actuation | None:
    """What gpuwatch has set; None, with a hint on stderr, where the record cannot be read."""
    if place is None:
        return Actuation()
    try:
        return SettingsRecord(place).read()
    except GpuwatchError as error:
        session.terminal.hint(f"hint: what gpuwatch has set is not known; {error}")
        return None


def preview(view: View, inputs: TunerInputs, consents: Consents | None, mode: Mode) -> Mapping[str, GpuTuning]:
    """Every GPU by uuid, as the first cycle of a tuner in `mode` would judge it."""
    tuner = inputs.tuner
    first = CycleInputs(
        view=view,
        fresh=True,
        now=0.0,
        at=view.snapshot.at,
        config=replace(inputs.config.tuning, mode=mode),
        consents=consents,
        actuation=inputs.actuation,
        capabilities={gpu.identity.uuid: sampled_capabilities(gpu) for gpu in view.snapshot.gpus},
        guarded=tuner is None or tuner.guard is not False,
        stopped=inputs.stop.message if inputs.stop else "",
        classes=inputs.config.checks.xids,
    )
    return {gpu.uuid: gpu for gpu in cycle(CycleMemory(), first).gpus}
