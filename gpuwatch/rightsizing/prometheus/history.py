"""A fleet's weeks out of a Prometheus into the ledger that right-sizing judges by: chunk by chunk, resumable.

Memory goes with what is asked for at a time, not with the length of the window. Whoever is killed goes on where he had
saved, and comes to the same result: chunks are a function of the position alone.
"""

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpuwatch import __version__
from gpuwatch.config import RightsizingConfig
from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import UNREADABLE
from gpuwatch.rightsizing.model.usage import FleetFacts
from gpuwatch.rightsizing.prometheus import facts as fleet_facts
from gpuwatch.rightsizing.prometheus.api import PrometheusApi
from gpuwatch.rightsizing.prometheus.chunk import ChunkReader
from gpuwatch.rightsizing.prometheus.queries import DIALECTS
from gpuwatch.rightsizing.prometheus.read_plan import HistoryOptions, ReadPlan, read_plan
from gpuwatch.rightsizing.usage.ledger import LedgerState, UsageLedger
from gpuwatch.rightsizing.usage.prometheus_windows import windows
from gpuwatch.storage.versioned_file import read_file, replace_file

log = logging.getLogger(__name__)

SAVE_EVERY = 30.0
"""Seconds of work that a kill may cost."""

STALE = 86400.0
"""What was read longer ago than this is read again: advice is about now."""

WORKLOADS = 10_000
"""What is kept at least: `max_workloads` is meant for a node."""

SCHEMA = 1
ENDING = ".history"
MOST_BYTES = 1 << 30


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """`question`: a fingerprint of what is asked of whom; `begin`, `end`, `at`: unix seconds of the history, read up to
    `at`; `step`: seconds, `steps` of them a chunk; `windows`: so many so far; `ledger`: its state, as msgpack.
    """

    question: str
    begin: float
    end: float
    step: float
    steps: int
    at: float
    saved: float
    windows: int
    ledger: bytes
    schema: int = SCHEMA


class PositionFile:
    """The file of one question in the cache directory `place`, written whole or not at all.

    One that cannot be read means that the reader begins at the beginning.
    """

    def __init__(self, place: Path, question: str) -> None:
        self.path = place / f"{question[:16]}{ENDING}"
        self._question = question

    def read(self) -> Position | None:
        """What an earlier reader of the same has left; None: nothing that is of use."""
        with contextlib.suppress(OSError, *UNREADABLE):
            found = msgspec.msgpack.decode(read_file(self.path, MOST_BYTES)[1], type=prepared(Position))
            if (found.schema, found.question) == (SCHEMA, self._question):
                return found
        return None

    def write(self, position: Position) -> None:
        """Replace it. Raises OSError: it cannot be written."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.partial")  # another reader may ask the same
        replace_file(self.path, (msgspec.msgpack.encode(position),), partial=partial)

    def forget_older(self, than: float) -> None:
        """What was left before unix time `than`, of whatever question, also half written: nobody goes on with it."""
        with contextlib.suppress(OSError):
            for file in self.path.parent.glob(f"*{ENDING}*"):
                if file.stat().st_mtime < than:
                    file.unlink(missing_ok=True)

    def forget(self) -> None:
        """The whole has been read."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


class ReadProgress(NamedTuple):
    """How far it is. `done` of `total` steps, up to unix time `at`; `resumed`: somebody had begun before."""

    done: int
    total: int
    at: float
    windows: int
    requests: int
    received: int
    resumed: bool = False


class FleetHistory:
    """Reads what `options` names. `place`: directory of files that say how far one came, each renewed after
    `save_every` seconds and where reading ends early; None: none is kept. `is_kept`: there is one."""

    def __init__(
        self,
        api: PrometheusApi,
        config: RightsizingConfig,
        options: HistoryOptions,
        progress: Callable[[ReadProgress], None] = lambda _: None,
        *,
        place: Path | None = None,
        save_every: float = SAVE_EVERY,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._api, self._options = api, options
        most = max(config.max_workloads, WORKLOADS)
        self._config = msgspec.structs.replace(config, max_workloads=most)
        self._tell, self._now, self._save_every = progress, now, save_every
        queries = [dialect.queries for dialect in DIALECTS.values()]
        parts = (__version__, self._api.http.name, self._api.http.tenant, self._options, self._config, queries)
        self._question = hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
        self._file = PositionFile(place, self._question) if place else None
        self._windows = 0
        self._resumed = False
        self.plan: ReadPlan | None = None
        self.is_kept = False

    def read(self) -> tuple[UsageLedger, FleetFacts]:
        """The ledger, and what the fleet is at the end of it; the connection is closed then.

        Raises:
            GpuwatchError: Prometheus cannot be reached, refuses, or knows no GPU.
            PermissionMissing: it does not let us in.
        """
        try:
            found = self._position()
            plan = read_plan(self._api, self._options, self._now())
            ledger, at = UsageLedger(self._config), plan.begin
            state = _state(found) if found else None
            if found is not None and state is not None:
                plan = plan._replace(begin=found.begin, end=found.end, step=found.step, steps=found.steps)
                ledger, at, self._windows = UsageLedger.restored(state, self._config), found.at, found.windows
                self._resumed = True
            self.plan = plan
            self._read(plan, ledger, at)
            fleet = fleet_facts.fleet(self._api, plan, ledger.namespaces(plan.end), self._options.namespaces)
            if self._file:
                self._file.forget()
            if ledger.rejected:
                log.warning("there are more workloads than rightsizing.max_workloads; nothing is said of some")
            return ledger, fleet
        finally:
            self._api.http.close()

    def _read(self, plan: ReadPlan, ledger: UsageLedger, at: float) -> None:
        reader = ChunkReader(self._api, plan.dialect, self._options.namespaces, plan.way)
        saved, wanted = self._now(), self._options.namespaces
        while at < plan.end:
            steps = min(plan.steps, round((plan.end - at) / plan.step))
            try:
                self._report(plan, at)
                chunk = reader.read(at, plan.step, steps)
            except (GpuwatchError, KeyboardInterrupt):
                if at > plan.begin:
                    self._save(plan, ledger, at)
                raise
            for window in windows(chunk):
                if not wanted or window.key.namespace in wanted:
                    ledger.add(window)
                    self._windows += 1
            at += steps * plan.step
            if self._now() - saved >= self._save_every:
                self._save(plan, ledger, at)
                saved = self._now()
        self._report(plan, at)

    def _report(self, plan: ReadPlan, at: float) -> None:
        traffic, done = self._api.http.traffic, round((at - plan.begin) / plan.step)
        self._tell(ReadProgress(done, plan.total, at, self._windows, traffic.requests, traffic.received, self._resumed))

    def _position(self) -> Position | None:
        if self._file is None:
            return None
        self._file.forget_older(self._now() - STALE)
        return self._file.read()

    def _save(self, plan: ReadPlan, ledger: UsageLedger, at: float) -> None:
        if self._file is None:
            return
        position = Position(
            question=self._question,
            begin=plan.begin,
            end=plan.end,
            step=plan.step,
            steps=plan.steps,
            at=at,
            saved=self._now(),
            windows=self._windows,
            ledger=msgspec.msgpack.encode(ledger.state()),
        )
        try:
            self._file.write(position)
            self.is_kept = True
        except OSError as error:
            log.warning("cannot write %s; %s; an interrupted run will begin anew", self._file.path, error.strerror)


def _state(found: Position) -> LedgerState | None:
    """None: another gpuwatch of the same version wrote it; the reader begins at the beginning."""
    with contextlib.suppress(*UNREADABLE):
        return msgspec.msgpack.decode(found.ledger, type=prepared(LedgerState))
    return None
