"""A support bundle of each critical fault, made while the node still shows it.

A reset or a reboot removes the evidence, so it is kept before either: `gpuwatch diagnose --bundle` in a process of its
own, which asks this agent and never loads the driver's library. That process lowers its own priority, is the first that
the kernel ends when memory is short, and ends itself at its deadline; nothing waits for it. A try is on the disk before
the process starts, so that a bundle that ends the agent is not made again and again.
"""

import contextlib
import logging
import os
import re
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpuwatch.config import Config
from gpuwatch.model.clock import Clock
from gpuwatch.model.decoding import prepared
from gpuwatch.model.event import ActionEvent, Result
from gpuwatch.model.finding import Finding, Severity
from gpuwatch.model.snapshot import UNREADABLE
from gpuwatch.model.text import visible
from gpuwatch.model.view import SupportCase, View
from gpuwatch.storage.private_folder import UnsafePath, make_private
from gpuwatch.storage.store import Store

log = logging.getLogger(__name__)

FOLDER, MEMORY, CONFIG_NAME = "support", "support_cases", ".config.yaml"
CASE = re.compile(r"\d{8}T\d{6}Z-\w{1,60}\.(?:tgz|log|log\.gz)")
"""Names of finished cases; nothing else in the folder is listed or deleted by age."""

SETTLE_SECONDS = 10.0
"""What follows from a fault belongs to its case."""

GAP_SECONDS = 600.0
"""Between two bundles, whatever happens meanwhile."""

AGAIN_SECONDS = 86400.0
"""A fault that comes and goes is one fault for so long."""

TRIES = 3
DEADLINE_SECONDS = 120.0
MIN_FREE = 256 << 20
"""Bytes that must be free: what fills the node's disk has pods evicted."""

KEPT = 256
"""Faults that are remembered."""


class Tried(NamedTuple):
    """When a bundle of a fault was begun last, and how often; `tries` TRIES: it is done with."""

    at: float
    tries: int


class Running(NamedTuple):
    """A bundle that is being made; `until`: monotonic."""

    process: subprocess.Popen[bytes]
    until: float
    target: Path
    keys: tuple[str, ...]


def case_name(at: float, check: str, suffix: str) -> str:
    """`20260921T141320Z-xid_fatal.tgz`."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(at))}-{check}{suffix}"


def kept_cases(state_dir: str, now: float, days: float, most: int) -> tuple[SupportCase, ...]:
    """The cases in `state_dir`, oldest first, after those that are too old or too many were deleted."""
    found: list[SupportCase] = []
    try:
        entries = list(os.scandir(Path(state_dir) / FOLDER))
    except OSError:
        return ()
    for entry in entries:
        with contextlib.suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            if CASE.fullmatch(entry.name) and stat.S_ISREG(status.st_mode):
                found.append(SupportCase(file=entry.name, at=status.st_mtime, bytes=status.st_size))
            elif entry.name.endswith(".partial") and now - status.st_mtime > DEADLINE_SECONDS:
                os.unlink(entry.path)  # of a process that was killed
    found.sort(key=lambda case: case.file)
    good = [case for case in found if now - case.at <= days * 86400][-most:] if most else []
    for case in found:
        if case not in good:
            with contextlib.suppress(OSError):
                os.unlink(Path(state_dir) / FOLDER / case.file)
    return tuple(good)


class SupportCases:
    """The cases of one node. One thread calls `step`, which waits for nothing; `socket` is the agent's own."""

    def __init__(self, store: Store, clock: Clock, socket: Path, command: Sequence[str] = ()) -> None:
        self._store, self._clock, self._socket = store, clock, socket
        self._command = tuple(command) or (sys.executable, "-m", "gpuwatch.cli.diagnose.support_case")
        self._running: Running | None = None
        self._rest_until = -GAP_SECONDS

    def step(self, config: Config, view: View | None) -> tuple[SupportCase, ...]:
        """Finish what has ended, begin what is due; the cases that are kept."""
        settings = config.support
        if not config.state_dir:
            return ()
        if self._running is not None:
            self._finish(self._running)
        elif settings.cases and view is not None and self._clock.monotonic() >= self._rest_until:
            self._begin(config, self._due(view))
        return kept_cases(config.state_dir, self._clock.time(), settings.days, settings.cases)

    def stop(self) -> None:
        """End a bundle that is being made; it never is inside a driver call."""
        if self._running is not None:
            _kill(self._running.process)

    def _due(self, view: View) -> list[Finding]:
        """Critical findings of which there is no case yet, once the oldest of them has settled."""
        now, tried = self._clock.time(), self._tried()

        def is_wanted(finding: Finding) -> bool:
            last = tried.get(finding.key)
            if finding.severity is not Severity.CRITICAL or last is None or last.tries < TRIES:
                return finding.severity is Severity.CRITICAL
            return (finding.since or 0.0) > last.at and not 0 <= now - last.at < AGAIN_SECONDS

        due = [finding for finding in view.judgement.findings if is_wanted(finding)]
        is_new = due and 0 <= now - min(finding.since or 0.0 for finding in due) < SETTLE_SECONDS
        return [] if is_new else due

    def _begin(self, config: Config, due: list[Finding]) -> None:
        if not due:
            return
        now, keys = self._clock.time(), tuple(finding.key for finding in due)
        self._rest_until = self._clock.monotonic() + GAP_SECONDS
        folder = Path(config.state_dir) / FOLDER
        target = folder / case_name(now, re.sub(r"\W", "_", due[0].check), ".tgz")
        tried = self._tried()
        counted = {key: Tried(now, tried[key].tries % TRIES + 1 if key in tried else 1) for key in keys}
        if not self._keep(tried | counted):
            self._note(Result.FAILED, target, keys, "the try cannot be written down")
            return
        try:
            make_private(folder)
            system = os.statvfs(folder)
            if (free := system.f_bavail * system.f_frsize) < MIN_FREE:
                raise OSError(f"only {free >> 20} MiB of its disk are free")
            settings = folder / CONFIG_NAME
            settings.unlink(missing_ok=True)
            with open(settings, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(msgspec.yaml.encode(config))
            process = subprocess.Popen(
                [*self._command, str(settings), str(self._socket), str(target), str(int(DEADLINE_SECONDS))],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, UnsafePath) as error:
            self._note(Result.FAILED, target, keys, str(error))
            return
        self._running = Running(process, self._clock.monotonic() + DEADLINE_SECONDS, target, keys)

    def _finish(self, running: Running) -> None:
        """Take over what it came to; one that is late is killed, and left alone where it cannot be."""
        process, is_late = running.process, self._clock.monotonic() >= running.until
        if (status := process.poll()) is None and not is_late:
            return
        self._running = None
        if status is None:
            _kill(process)
            problem = f"it has not ended within {DEADLINE_SECONDS:.0f} s"
        else:
            last = _last_line(process)
            problem = "" if running.target.exists() else f"it ended with {status}: {last}"
        if not problem:
            self._keep(self._tried() | {key: Tried(self._clock.time(), TRIES) for key in running.keys})
        self._note(Result.FAILED if problem else Result.DONE, running.target, running.keys, problem)

    def _note(self, result: Result, target: Path, keys: tuple[str, ...], problem: str) -> None:
        if problem:
            log.warning("no support bundle %s; %s", target, visible(problem))
        self._store.record(
            ActionEvent(
                at=self._clock.time(),
                actor="agent",
                action="support_case",
                target=f"file/{target}",
                result=result,
                why="a critical finding",
                evidence=keys,
                detail=visible(problem),
            )
        )

    def _tried(self) -> dict[str, Tried]:
        try:
            return msgspec.json.decode(self._store.memory(MEMORY) or b"{}", type=prepared(dict[str, Tried]))
        except UNREADABLE:
            return {}

    def _keep(self, tried: dict[str, Tried]) -> bool:
        newest = sorted(tried.items(), key=lambda pair: pair[1].at)[-KEPT:]
        self._store.remember(MEMORY, msgspec.json.encode(dict(newest)))
        return self._store.flush()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.2)
    if process.stderr is not None:
        process.stderr.close()


def _last_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stderr is not None  # noqa: S101 Popen was asked for a pipe
    with process.stderr as stderr:
        ready = select.select([stderr], [], [], 0)[0]
        text = os.read(stderr.fileno(), 4096).decode(errors="replace") if ready else ""
    return (text.strip().splitlines() or ["no reason given"])[-1]
