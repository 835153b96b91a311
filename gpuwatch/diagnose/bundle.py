"""Everything a support case needs, in one archive that opens without gpuwatch and can be diagnosed again."""

from pathlib import Path

from gpuwatch.config import Config
from gpuwatch.diagnose.facts import Facts
from gpuwatch.diagnose.places import Places
from gpuwatch.model.snapshot import Record
from gpuwatch.model.view import Events

LIMIT = 20 << 20
"""Bytes of all files of a bundle together, unpacked."""


class Contents(Record, frozen=True, kw_only=True):
    """What a bundle is made of. `document` and `screen`: the diagnosis as `-o json` and as the screen without colours.
    `events`: None where nobody tells.
    """

    facts: Facts
    places: Places
    config: Config
    document: str
    screen: str
    events: Events | None = None


class Written(Record, frozen=True, kw_only=True):
    """A bundle on the disk. `missing`: what could not be had or was cut -> why."""

    path: str
    files: int
    bytes: int
    missing: dict[str, str] = {}


def check_target(target: Path) -> None:
    """Before anything is gathered: can a file be made there?

    Raises:
        UsageError: its folder is not there, or it is a folder itself.
        PermissionMissing: nothing may be written there.
    """


def write_bundle(target: Path, contents: Contents, limit: int = LIMIT) -> Written:
    """Gather, redact and write; a file of that name is replaced once the new one is whole.

    Raises:
        GpuwatchError: it cannot be written.
    """
    return Written(path=str(target), files=0, bytes=0)
