"""What a tuner says about itself, for `gpuwatch tune status`: `tuner-state.json` in the state directory.

It is for people to look at. Nobody gives a setting back by it: that is what the record is for.
"""

import contextlib
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.setting import Knob
from gpuwatch.tuning.model.status import TunerState

NAME = "tuner-state.json"
SCHEMA = 1

FRESH_SECONDS = 10.0
"""An older state is that of a tuner which hangs or is gone."""


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """`actions` apart, as a JSON object has no pairs for keys."""

    schema: int = SCHEMA
    state: TunerState
    actions: tuple[tuple[Knob, str, int], ...] = ()


class _Versioned(msgspec.Struct):
    schema: int


class TunerStatus:
    """The file in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME

    def write(self, state: TunerState) -> None:
        """Replace it; readers see the one before or this one. Raises GpuwatchError: it cannot be written."""
        actions = tuple((knob, result, count) for (knob, result), count in state.actions.items())
        body = msgspec.json.encode(_File(state=replace(state, actions={}), actions=actions))
        partial = self.path.with_suffix(".partial")
        try:
            partial.write_bytes(body)
            partial.chmod(0o644)
            partial.replace(self.path)
        except OSError as error:
            raise GpuwatchError(
                f"cannot write {self.path}", error.strerror or str(error), "look at --state-dir"
            ) from error

    def clear(self) -> None:
        """Nobody speaks any more. Whoever cannot say so is soon too old to be quoted."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def read(self) -> TunerState | None:
        """The newest state, however old; None: there is none, or not one that this gpuwatch understands."""
        with contextlib.suppress(OSError, UnicodeDecodeError, msgspec.MsgspecError):
            body = self.path.read_bytes()
            if msgspec.json.decode(body, type=_Versioned).schema == SCHEMA:
                found = msgspec.json.decode(body, type=_File)
                return replace(found.state, actions={(knob, result): count for knob, result, count in found.actions})
        return None
