"""The kill switch: while `tuner.stop` is in the state directory, nothing of this node is tuned and all is given back.

That it is there stops, whatever it says: `touch tuner.stop` does as well. What it says is for people.
"""

from pathlib import Path

import msgspec

from gpuwatch.model.errors import GpuwatchError, PermissionMissing
from gpuwatch.model.snapshot import Record

NAME = "tuner.stop"


class Stop(Record, frozen=True, kw_only=True):
    """Who has stopped the tuner, when (unix seconds) and why; None or empty: that is not known."""

    by: str = ""
    at: float | None = None
    why: str = ""

    @property
    def words(self) -> str:
        """For people."""
        return f"stopped by {self.by or 'somebody'}{f': {self.why}' if self.why else ''}"


class TunerStop:
    """The file in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME

    def put(self, stop: Stop) -> None:
        """Stop the tuner. Raises GpuwatchError: it cannot be written."""
        partial = self.path.with_suffix(".partial")
        try:
            partial.write_bytes(msgspec.json.encode(stop))
            partial.replace(self.path)
        except OSError as error:
            raise _failed(f"cannot write {self.path}", error) from error

    def clear(self) -> Stop | None:
        """Let it work again; what was said until now, None: it was not stopped. Raises GpuwatchError."""
        found = self.read()
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise _failed(f"cannot remove {self.path}", error) from error
        return found

    def read(self) -> Stop | None:
        """None: the file is not there. One that cannot be read or understood stops as well."""
        try:
            body = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            return Stop(why=error.strerror or str(error))
        try:
            return msgspec.json.decode(body, type=Stop)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return Stop()


def _failed(what: str, error: OSError) -> GpuwatchError:
    kind = PermissionMissing if isinstance(error, PermissionError) else GpuwatchError
    return kind(what, error.strerror or str(error), "run it as the tuner's user, which is root, or name --state-dir")
