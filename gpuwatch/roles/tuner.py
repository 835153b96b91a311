"""The tuner of one node, as far as it goes: says of each GPU whether it may be tuned, and why not. It sets nothing.

`step` does one cycle and never sleeps; who calls it decides how time passes. The record is read, so that what an
earlier life has left behind is said; only the guard and `gpuwatch tune restore` give it back.
"""

import logging
from collections.abc import Mapping

from gpuwatch.config import Config, TuningConfig
from gpuwatch.model.check_names import XidClass
from gpuwatch.model.clock import Clock
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.setting import Actuation
from gpuwatch.model.tuner_state import GpuTuning, TunerState
from gpuwatch.roles.agent_views import ViewSource
from gpuwatch.rules.evidence import Sight, is_fresh
from gpuwatch.rules.tuning import Seen, judge
from gpuwatch.sinks.heartbeat import Heartbeat
from gpuwatch.sinks.settings_record import SettingsRecord

log = logging.getLogger(__name__)


class Tuner:
    """Steps through the life of one node's GPUs."""

    def __init__(
        self,
        config: TuningConfig,
        views: ViewSource,
        record: SettingsRecord,
        heartbeat: Heartbeat,
        *,
        clock: Clock,
        classes: Mapping[int, XidClass] | None = None,
    ) -> None:
        self._views, self._record, self._heartbeat, self._clock = views, record, heartbeat, clock
        self._seen: Seen = {}
        self._told: dict[str, object] = {}
        self._trouble: str | None = None
        self.reconfigure(config, classes)
        self.state = TunerState(mode=config.mode, trouble="no view yet")

    def reconfigure(self, config: TuningConfig, classes: Mapping[int, XidClass] | None = None) -> None:
        """Take over another configuration; `classes`: `checks.xids`."""
        self._config, self._classes = config, classes or {}

    def step(self) -> TunerState:
        """Beat, look, judge; what is known after it."""
        mode, view = self._config.mode, self._views.view
        troubles = [self._beat(mode)]
        actuation = self._recorded(troubles)
        gpus: tuple[GpuTuning, ...] = ()
        if mode != "off":
            troubles.append(self._views.trouble)
            if view is not None:
                gpus, self._seen = judge(
                    view,
                    fresh=is_fresh(Sight(view=view, age=self._views.age)),
                    now=self._clock.monotonic(),
                    settings=actuation.settings if actuation else (),
                    seen=self._seen,
                    classes=self._classes,
                )
        self.state = TunerState(
            mode=mode,
            gpus=gpus,
            view_at=view.snapshot.at if view else None,
            actuation=actuation,
            trouble="; ".join(filter(None, troubles)) or None,
        )
        self._tell()
        return self.state

    def _beat(self, mode: str) -> str | None:
        try:
            self._heartbeat.beat(mode, self._clock.time())
        except GpuwatchError as error:
            return str(error)
        return None

    def _recorded(self, troubles: list[str | None]) -> Actuation | None:
        try:
            found = self._record.read()
        except GpuwatchError as error:
            troubles.append(str(error))
            return None
        if found.settings:
            troubles.append(
                f"{len(found.settings)} settings of an earlier tuner are recorded; "
                "a guard gives them back, or `gpuwatch tune restore`"
            )
        return found

    def _tell(self) -> None:
        """Log what has changed."""
        for gpu in self.state.gpus:
            if self._told.get(gpu.uuid) != (told := (gpu.state, gpu.reason)):
                self._told[gpu.uuid] = told
                log.info("GPU %d: %s%s", gpu.index, gpu.state, f"; {gpu.words}" if gpu.words else "")
        if self.state.trouble != self._trouble and self.state.trouble:
            log.warning("%s", self.state.trouble)
        self._trouble = self.state.trouble


def checked(config: Config) -> Config:
    """The configuration, if this version can do what it asks for. Raises UsageError."""
    if config.tuning.mode == "enforce":
        raise UsageError(
            "tuning.mode enforce is not possible yet",
            "this version judges, guards and restores, and has nothing that decides what to set",
            "use observe",
        )
    return config
