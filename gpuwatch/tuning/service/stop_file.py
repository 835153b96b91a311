"""The kill switch: while `tuner.stop` is in the state directory, nothing of this node is tuned and all is given back.

That it is there stops, whatever it says: `touch tuner.stop` does as well. What it says is for people.
"""

from pathlib import Path

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import Record
from gpuwatch.storage.versioned_file import UnreadableFile, VersionedFile

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
        step = "run it as the tuner's user, which is root, or name --state-dir"
        self._file = VersionedFile(self.path, Stop, next_step=step)

    def put(self, stop: Stop) -> None:
        """Stop the tuner. Raises GpuwatchError: it cannot be written."""
        self._file.write(stop)

    def clear(self) -> Stop | None:
        """Let it work again; what was said until now, None: it was not stopped. Raises GpuwatchError."""
        found = self.read()
        self._file.remove()
        return found

    def read(self) -> Stop | None:
        """None: the file is not there. One that cannot be read or understood stops as well."""
        try:
            return self._file.read()
        except UnreadableFile:
            return Stop()
        except GpuwatchError as error:
            return Stop(why=error.why)
