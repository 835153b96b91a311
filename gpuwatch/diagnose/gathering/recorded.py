"""What a bundle knows of its host beyond the copied files: `gpuwatch/host.json`, and how it is read again.

Files can be copied, but not the numbers of device files, the limits of a process, or what this process was not allowed
to see. What a diagnosis of the copy would find otherwise than on the host stands here as it was found.
"""

from pathlib import Path

import msgspec

from gpuwatch.diagnose.facts import HostFacts
from gpuwatch.host.plain_file import content
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import Record

NAME = "host.json"
MOST_BYTES = 64 << 20


class Recorded(Record, frozen=True, kw_only=True):
    """`at`: unix time of the diagnosis; `plain` as in `Facts`; `unread`: section -> why it could not be had."""

    at: float | None = None
    plain: bool = True
    host: HostFacts = HostFacts()
    unread: dict[str, str] = {}


_decode = msgspec.json.Decoder(Recorded).decode
"""Made here, before there are threads: two that study a type at once crash msgspec."""


def recorded(folder: Path) -> Recorded:
    """What is recorded in the folder `gpuwatch` of a tree; nothing where it has none.

    Raises:
        GpuwatchError: the file cannot be understood.
    """
    try:
        return _decode(content(folder / NAME, MOST_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return Recorded()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise GpuwatchError(
            f"{folder / NAME} cannot be understood", str(error), "take the bundle apart again"
        ) from None
