"""`gpuwatch/host.json` of a bundle: what a diagnosis read of its host's files, so that a later one judges the same."""

from pathlib import Path

import msgspec

from gpuwatch.diagnose.facts import HostFacts
from gpuwatch.host.plain_file import content
from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import UNREADABLE, Record

NAME = "host.json"
MOST_BYTES = 64 << 20


class RecordedHost(Record, frozen=True, kw_only=True):
    """`at`: unix time of the diagnosis; `plain` as in `NodeFacts`; `unread`: section -> why it could not be read."""

    at: float | None = None
    plain: bool = True
    host: HostFacts = HostFacts()
    unread: dict[str, str] = {}


_decode = msgspec.json.Decoder(prepared(RecordedHost)).decode
"""Made here, before there are threads: two that inspect a type at once crash msgspec."""


def recorded(folder: Path) -> RecordedHost:
    """The record in the folder `gpuwatch` of a tree; an empty one where there is none.

    Raises:
        GpuwatchError: the file cannot be read or is no record.
    """
    try:
        return _decode(content(folder / NAME, MOST_BYTES))
    except (FileNotFoundError, NotADirectoryError):
        return RecordedHost()
    except (OSError, *UNREADABLE) as error:
        raise GpuwatchError(f"{folder / NAME} cannot be read", str(error), "unpack the bundle again") from None
