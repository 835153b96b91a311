"""Views from elsewhere than a running agent: files of them, and scenarios on simulated time."""

import gzip
import logging
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, cast

import msgspec

from gpuwatch.config import Config
from gpuwatch.host.plain_file import opened
from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.snapshot import UNREADABLE
from gpuwatch.model.view import SCHEMA, View
from gpuwatch.sim.node.scenario import DEFAULT, load, seconds
from gpuwatch.sim.playback import views

STARTED = 1_767_225_600.0
"""When a played scenario begins, 2026-01-01 00:00 UTC: the same at every run."""

log = logging.getLogger(__name__)

GZIP = b"\x1f\x8b"

LONGEST_LINE = 64 << 20
"""Bytes of one View; that of 16 GPUs with all their processes has less than one."""


class _Versioned(msgspec.Struct):
    schema: int | None = None


def scenario_views(
    scenario: str, config: Config, duration: str, seed: int, *, with_gpm: bool = False
) -> Iterator[View]:
    """The views of a scenario, by name or file; with activity counters, which take longer, where `with_gpm`.

    Raises:
        UsageError: no such scenario, or no duration.
    """
    span = seconds(duration)
    if span is None:
        raise UsageError(f"{duration} is no duration", "", "for example 90s, 30m, 24h or 8d")
    return views(load(scenario or DEFAULT), config, STARTED, span, seed, with_gpm=with_gpm)


def recorded(path: str) -> Iterator[View]:
    """The views in a file, one JSON a line; `-` is stdin. An incomplete last line is left out: it may still be written.

    Raises:
        GpuwatchError: it cannot be read, or a line is no view.
    """
    where = "stdin" if path == "-" else path
    number = 0
    try:
        with _opened(path) as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE + 1), b""), 1):
                if len(line) > LONGEST_LINE:
                    raise GpuwatchError(
                        f"cannot read {where}", f"line {number} is longer than {LONGEST_LINE >> 20} MiB"
                    )
                if number > 1 and not line.endswith(b"\n") and not _is_whole(line):
                    raise EOFError("the last line is cut off")
                if line.strip():
                    yield _view(line, f"line {number} of {where}")
    except EOFError as error:
        if number < 1:
            raise GpuwatchError(f"cannot read {where}", str(error), "give a file of views, or sim:SCENARIO") from None
        log.warning("%s ends in the middle; what is whole of it is judged", where)
    except (OSError, zlib.error) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise GpuwatchError(f"cannot read {where}", why, "give a file of views, or sim:SCENARIO") from None


def _is_whole(line: bytes) -> bool:
    try:
        msgspec.json.decode(line, type=prepared(msgspec.Raw))
    except UNREADABLE:
        return False
    return True


def _opened(path: str) -> AbstractContextManager[IO[bytes]]:
    if path == "-":
        return nullcontext(sys.stdin.buffer)
    with opened(Path(path)) as file:
        packed = file.read(len(GZIP)) == GZIP
    return cast(IO[bytes], gzip.open(path)) if packed else opened(Path(path))


def _view(line: bytes, where: str) -> View:
    try:
        schema = msgspec.json.decode(line, type=prepared(_Versioned)).schema
        if schema == SCHEMA:
            return msgspec.json.decode(line, type=prepared(View))
    except UNREADABLE as error:
        raise UsageError(f"{where} is no view", str(error), "record /api/v1/view, one answer a line") from None
    why = f"it has schema {schema}, this gpuwatch knows {SCHEMA}" if schema else "it names no schema"
    raise UsageError(f"{where} is no view", why, "record /api/v1/view of an agent of this version")
