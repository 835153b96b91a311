"""What pods consent to, on its way to the tuner: `consents/consents.json` in the state directory.

`gpuwatch tuner --consents` writes it, with an API token and nothing else; the tuner reads it, with CAP_SYS_ADMIN and no
token. The folder is its own, so that in a pod it alone can be shared between the two.
"""

from pathlib import Path

from gpuwatch.model.consent import Consents
from gpuwatch.storage.versioned_file import VersionedFile

FOLDER = "consents"
NAME = "consents.json"


class ConsentsFile:
    """The file below the state directory `directory`. One process writes it, any may read it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FOLDER / NAME
        self._file = VersionedFile(
            self.path,
            Consents,
            trusted=True,  # its writer decides whose GPUs may be slowed down
            repair="remove it; `gpuwatch tuner --consents` writes it anew",
        )

    def read(self) -> Consents | None:
        """The newest consents, however old: `at` tells. None: there is no file.

        Raises:
            PermissionMissing: the file may not be read.
            GpuwatchError: it is not one that this version of gpuwatch wrote.
        """
        return self._file.read()

    def write(self, consents: Consents) -> None:
        """Replace it; the folder is made.

        Raises:
            PermissionMissing: it may not be written.
            GpuwatchError: it cannot be.
        """
        try:
            self.path.parent.mkdir(mode=0o755, exist_ok=True)
        except OSError as error:
            raise self._file.error(error, "cannot write") from error
        self._file.write(consents)
