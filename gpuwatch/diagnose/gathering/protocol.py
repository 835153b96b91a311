"""What `gather` and the process that looks for it say to each other: one order, then a message per section."""

import msgspec

from gpuwatch.config import Backend, Config
from gpuwatch.diagnose.facts import HostFacts
from gpuwatch.diagnose.places import Places
from gpuwatch.model.errors import GpuwatchError, PermissionMissing, UsageError
from gpuwatch.model.snapshot import Record
from gpuwatch.model.view import View


class DriverOrder(Record, frozen=True, kw_only=True):
    """Look at the driver, too. `until`: the moment (time.monotonic) at which what is known then has to do; `twice`:
    tell a first View as `earlier`.
    """

    config: Config
    backend: Backend
    until: float
    twice: bool = False


class Order(Record, frozen=True, kw_only=True):
    """The process's only argument, as JSON."""

    places: Places
    files: bool = True
    driver: DriverOrder | None = None


class Told(Record, frozen=True, kw_only=True):
    """One section was read, into its member of `host` or into `view`; or it cannot be had, and why. `denied`: for want
    of a right; `usage`: what was asked for is wrong.
    """

    section: str
    host: HostFacts | None = None
    view: View | None = None
    reason: str | None = None
    denied: bool = False
    usage: bool = False


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Told).decode
"""Made here, so that all types of Told are studied before there are threads: two at once crash msgspec."""


def unread(section: str, error: Exception) -> Told:
    """Why a section cannot be had, for a person."""
    denied = isinstance(error, PermissionError | PermissionMissing)
    return Told(section=section, reason=_words(error), denied=denied, usage=isinstance(error, UsageError))


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, OSError | GpuwatchError):
        return str(error)
    return f"reading it failed ({type(error).__name__}: {error}); please report it"
