"""What a tuner says about itself, for `gpuwatch tune status`: `tuner-state.json` in the state directory.

It is for people to look at. Nobody gives a setting back by it: that is what the record is for.
"""

import contextlib
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.setting import Knob
from gpuwatch.storage.versioned_file import VersionedFile
from gpuwatch.tuning.model.status import TunerState

NAME = "tuner-state.json"

FRESH_SECONDS = 10.0
"""An older state is that of a tuner which hangs or is gone."""


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """`actions` apart, as a JSON object has no pairs for keys."""

    state: TunerState
    actions: tuple[tuple[Knob, str, int], ...] = ()


class TunerStatus:
    """The file in `directory`. It is written each second, and of no use after a reboot: it is not flushed."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME
        self._file = VersionedFile(self.path, _File, durable=False)

    def write(self, state: TunerState) -> None:
        """Replace it. Raises GpuwatchError: it cannot be written."""
        actions = tuple((knob, result, count) for (knob, result), count in state.actions.items())
        self._file.write(_File(state=replace(state, actions={}), actions=actions))

    def clear(self) -> None:
        """Remove it at the end; one that cannot be removed is soon too old to be shown."""
        with contextlib.suppress(GpuwatchError):
            self._file.remove()

    def read(self) -> TunerState | None:
        """The newest state, however old; None: there is none, or not one that this gpuwatch understands."""
        with contextlib.suppress(GpuwatchError):
            if (found := self._file.read()) is not None:
                return replace(found.state, actions={(knob, result): count for knob, result, count in found.actions})
        return None
