"""A support bundle of each critical fault, made while the node still shows it.

A reset or a reboot removes the evidence, so it is kept before either: `gpuwatch diagnose --bundle` in a process of its
own, which asks this agent and never loads the driver's library. Only the thread that keeps cases waits for it. A try is
stored before the process starts, so that a bundle that ends the agent is not made again and again. The repairer
keeps the driver's own report in the same folder, as the agent has no right to make one.
"""

import contextlib
import os
import re
import shutil
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.event import Result
from gpuwatch.model.finding import Finding, Severity
from gpuwatch.model.text import visible
from gpuwatch.model.view import SupportCase, View
from gpuwatch.process.command import run_command
from gpuwatch.storage.audit import Audit, AuditEntry
from gpuwatch.storage.private_folder import UnsafePath, make_private
from gpuwatch.storage.store import Store

FOLDER, MEMORY = "support", "support_cases"
CASE = re.compile(r"\d{8}T\d{6}Z-\w{1,60}\.(?:tgz|log|log\.gz)")
"""Names of finished cases; nothing else in the folder is listed or deleted by age."""

SETTLE_SECONDS = 10.0
"""Time before a bundle is made, so that the effects of the fault are in it."""

GAP_SECONDS = 600.0
"""Least time between two bundles, whatever happens meanwhile."""

AGAIN_SECONDS = 86400.0
"""A fault that comes and goes within so long counts as one."""

TRIES = 3
DEADLINE_SECONDS = 120.0
MIN_FREE, MAX_BYTES = 256 << 20, 32 << 20
"""Bytes that must be free, because the kubelet evicts pods from a full disk; and bytes of the largest case."""

KEPT, NAMED = 2048, 16
"""Faults whose tries are kept, more than a node's GPUs can have at once; and faults named in an event."""


class Tried(NamedTuple):
    """Time of the last try to make a bundle of a fault, and number of tries; after TRIES only a later fault counts."""

    at: float
    tries: int


def keep_case(
    state_dir: str, at: float, check: str, suffix: str, command: Sequence[str], seconds: float, config: bytes = b""
) -> tuple[bool, str]:
    """Keep what `command` writes to {file}, or to that name with .gz, within its deadline: whether there is a case, and
    its path or the error. `config`: content of {config}. Other files that it wrote are deleted.
    """
    folder = Path(state_dir).absolute() / FOLDER
    place = folder / f".{suffix}"
    file, settings = place / f"case.{suffix}", place / "config.yaml"
    try:
        make_private(folder)
        if (free := shutil.disk_usage(folder).free) < MIN_FREE:
            return False, f"only {free >> 20} MiB of its disk are free"
        if place.is_dir():
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)
        place.mkdir(mode=0o700)
        settings.write_bytes(config)
        ended = run_command(command, seconds, {"file": str(file), "config": str(settings)})
        packed = file.with_name(f"{file.name}.gz")
        made = next((each for each in (file, packed) if each.is_file() and not each.is_symlink()), None)
        if ended.status != 0 or made is None:
            how = "" if ended.status is None else f"it ended with {ended.status}; "
            return False, f"{how}{visible(ended.output)}"
        if made.stat().st_size > MAX_BYTES:
            return False, f"it is larger than {MAX_BYTES >> 20} MiB"
        made.chmod(0o600)
        with open(made, "rb") as written:
            os.fsync(written.fileno())  # a reset that follows may take the node down
        name = re.sub(r"\W", "_", check)[:60] + made.name.removeprefix("case")
        return True, str(made.replace(folder / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(at))}-{name}"))
    except (OSError, UnsafePath) as error:
        return False, visible(str(error))
    finally:
        if place.is_dir():  # of a pipe rmtree would wait for the writer
            shutil.rmtree(place, ignore_errors=True)


def kept_cases(state_dir: str, now: float, days: float, most: int) -> tuple[SupportCase, ...]:
    """The cases in `state_dir`, oldest first, after those that are too old or too many were deleted."""
    found: list[SupportCase] = []
    if not state_dir or (Path(state_dir) / FOLDER).is_symlink():  # nothing is deleted elsewhere
        return ()
    with contextlib.suppress(OSError):
        for entry in os.scandir(Path(state_dir) / FOLDER):
            status = entry.stat(follow_symlinks=False)
            if CASE.fullmatch(entry.name) and stat.S_ISREG(status.st_mode):
                found.append(SupportCase(file=entry.name, at=status.st_mtime, bytes=status.st_size))
    found.sort(key=lambda case: case.file)
    good = [case for case in found if now - case.at <= days * 86400][-most:] if most else []
    for case in found:
        if case not in good:
            with contextlib.suppress(OSError):
                os.unlink(Path(state_dir) / FOLDER / case.file)
    return tuple(good)


class SupportCases:
    """The cases of one node. One thread of its own calls `step`; `socket` is the agent's own."""

    def __init__(
        self, store: Store, clock: Clock, socket: Path, command: Sequence[str] = (), deadline: float = DEADLINE_SECONDS
    ) -> None:
        program = (sys.executable, "-m", "gpuwatch.cli.diagnose.support_case")
        self._command = (*(command or program), "{config}", str(socket), "{file}", str(int(deadline)))
        self._store, self._clock, self._deadline = store, clock, deadline
        self._audit = Audit(store, clock, actor="agent")
        self._rest_until = -GAP_SECONDS
        self.kept: tuple[SupportCase, ...] = ()

    def step(self, config: Config, view: View | None) -> None:
        """Make a case that is due, and wait for it; then delete old cases and list the others in `kept`."""
        settings = config.support
        may = bool(config.state_dir and settings.cases) and self._clock.monotonic() >= self._rest_until
        if may and view is not None and (due := self._due(view)):
            self._rest_until = self._clock.monotonic() + GAP_SECONDS
            saved, text = self._make(config, due)
            evidence = tuple(finding.key for finding in due[:NAMED])
            entry = AuditEntry("support_case", "node", "a critical finding", evidence)
            self._audit.note(entry, Result.DONE if saved else Result.FAILED, text)
        self.kept = kept_cases(config.state_dir, self._clock.time(), settings.days, settings.cases)

    def _due(self, view: View) -> list[Finding]:
        """Critical findings of which there is no case yet, once the oldest of them has settled."""
        critical = [each for each in view.judgement.findings if each.severity is Severity.CRITICAL]
        if not critical:
            return []
        now, tried = self._clock.time(), self._store.remembered(MEMORY, dict[str, Tried]) or {}

        def is_wanted(finding: Finding) -> bool:
            last = tried.get(finding.key)
            if last is None or last.tries < TRIES:
                return True
            return (finding.since or 0.0) > last.at and not 0 <= now - last.at < AGAIN_SECONDS

        due = [each for each in critical if is_wanted(each)]
        is_new = due and 0 <= now - min(finding.since or 0.0 for finding in due) < SETTLE_SECONDS
        return [] if is_new else due

    def _make(self, config: Config, due: list[Finding]) -> tuple[bool, str]:
        now, tried = self._clock.time(), self._store.remembered(MEMORY, dict[str, Tried]) or {}
        counts = {each.key: tried[each.key].tries % TRIES + 1 if each.key in tried else 1 for each in due}
        if not self._keep(tried | {key: Tried(now, count) for key, count in counts.items()}):
            return False, "the try cannot be written down"
        body = msgspec.yaml.encode(config)
        saved, text = keep_case(config.state_dir, now, due[0].check, "tgz", self._command, self._deadline, body)
        if saved:
            self._keep(tried | {key: Tried(self._clock.time(), TRIES) for key in counts})
        return saved, text

    def _keep(self, tried: dict[str, Tried]) -> bool:
        newest = sorted(tried.items(), key=lambda pair: pair[1].at)[-KEPT:]
        self._store.remember(MEMORY, msgspec.json.encode(dict(newest)))
        return self._store.flush()
