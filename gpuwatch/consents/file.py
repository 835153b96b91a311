"""What pods consent to, on its way to the tuner: `consents/consents.json` in the state directory.

`gpuwatch tuner --consents` writes it, with an API token and nothing else; the tuner reads it, with CAP_SYS_ADMIN and no
token, and so does the agent. It has a folder of its own, so that in a pod that folder alone can be shared.
"""

from pathlib import Path

from gpuwatch.model.consent import Consents, Progress
from gpuwatch.storage.private_folder import STATE_MODE
from gpuwatch.storage.versioned_file import VersionedFile

FOLDER = "consents"
NAME = "consents.json"
PROGRESS_NAME = "progress.json"


class ConsentsFile:
    """The file below the state directory `directory`. One process writes it, any may read it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FOLDER / NAME
        self._file = VersionedFile(
            self.path,
            Consents,
            trusted=True,  # it decides which GPUs may be slowed down
            folder_mode=STATE_MODE,
            repair="remove it; `gpuwatch tuner --consents` writes it again",
        )

    def read(self) -> Consents | None:
        """The newest consents, however old: `at` is their time. None: there is no file.

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
        self._file.write(consents)


def progress_file(directory: Path) -> VersionedFile[Progress]:
    """Counters of work that pods' own pages show, beside the consents: written each second, and of no use after a
    reboot. `directory`: the state directory.
    """
    return VersionedFile(
        directory / FOLDER / PROGRESS_NAME, Progress, durable=False, trusted=True, folder_mode=STATE_MODE
    )
