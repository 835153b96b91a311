"""A running simulation as files, so that several processes share the same node.

node.json      scenario, seed, speed, and the moment it began on the machine's monotonic clock
inject.jsonl   one action per line since then, `at` in simulated seconds
"""

import contextlib
import fcntl
import logging
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.config import runtime_dir
from gpuwatch.host.plain_file import text
from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import GpuwatchError, NoGpuStack, UsageError
from gpuwatch.model.snapshot import UNREADABLE
from gpuwatch.sim.node.actions import AnyAction
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.node.scenario import Scenario, check_action, parse_action
from gpuwatch.storage.private_folder import UnsafePath, make_named, make_private

NODE, INJECTIONS = "node.json", "inject.jsonl"

TREES = ("proc", "log", "sys", "dev", "etc", "usr", "lib", "run", "var", "kubelet", "state", "gpuwatch")

log = logging.getLogger(__name__)

LEAD_SECONDS = 0.15
"""Real time between an injection and its effect, so that every process has read it by then."""

POLL_SECONDS = 0.05
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """node.json."""

    scenario: Scenario
    seed: int
    speed: float
    epoch: float  # monotonic seconds
    started: float  # unix seconds of the same moment
    boot_id: str
    schema: int = 1


class NodeReplica:
    """This process' copy of the node, up to date with its directory and the clock. Not thread-safe."""

    def __init__(self, directory: Path, record: NodeRecord, clock: Clock, physical: bool) -> None:
        self.record, self.clock = record, clock
        self.node = SimNode(record.scenario, record.seed, record.speed, physical)
        self._directory, self._inject = directory, directory / INJECTIONS
        self._origin = directory / NODE
        self._read = 0
        self._polled = float("-inf")

    @property
    def now(self) -> float:
        """Simulated seconds since the node began."""
        return (self.clock.monotonic() - self.record.epoch) * self.record.speed

    def wall_time(self, t: float) -> float:
        """Unix time of a simulated second, as the simulated machine's clock shows it."""
        return self.record.started + t

    @property
    def ended(self) -> bool:
        """Whether the node has ended; calls of its driver then no longer hang."""
        return not self._origin.exists()

    def update(self) -> SimNode:
        """The node at this moment, injections included."""
        real = self.clock.monotonic()
        if real - self._polled >= POLL_SECONDS:
            self._polled = real
            for action in self._new_injections():
                self.node.schedule(action)
        self.node.advance(self.now)
        return self.node

    def until_next(self) -> float:
        """Real seconds until something may happen, at most one poll."""
        due = self.node.next_action
        return POLL_SECONDS if due is None else self.until(due)

    def until(self, t: float) -> float:
        """Real seconds until a simulated one, at most one poll."""
        return min(POLL_SECONDS, max(0.0, (t - self.now) / self.record.speed))

    def act(self, action: AnyAction) -> float:
        """Apply an action to the node, in every process that follows it; returns the simulated second of its effect.

        Raises:
            OSError: the directory cannot be written.
        """
        return _schedule(self._directory, self.record, action, self.clock).at

    def _new_injections(self) -> Iterator[AnyAction]:
        """Actions of lines since the last read; the last line may be incomplete."""
        try:
            if self._inject.stat().st_size == self._read:
                return
            with self._inject.open("rb") as file:
                file.seek(self._read)
                data = file.read()
        except OSError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            try:
                yield msgspec.json.decode(line, type=prepared(AnyAction))
            except UNREADABLE as error:
                log.warning("no action in %s: %s", INJECTIONS, error)


def default_directory() -> Path:
    """Where `gpuwatch sim run` puts its node."""
    return runtime_dir() / "sim"


class DirectoryLock:
    """The right to run a node in a directory; ends with `release` or with the process."""

    def __init__(self, record: NodeRecord, fd: int) -> None:
        self.record, self._fd = record, fd

    def release(self) -> None:
        """Let another process run a node there."""
        os.close(self._fd)


def create(directory: Path, scenario: Scenario, seed: int, speed: float, clock: Clock) -> DirectoryLock:
    """Begin a node in `directory`, in place of one that has ended.

    Raises:
        GpuwatchError: another simulation runs there, or the directory cannot be written.
    """
    try:
        with contextlib.suppress(UsageError):  # this user has no run folder, so it is not in it
            if directory == default_directory():
                make_private(directory.parent)  # an emptyDir has 0777
        make_named(directory)
        _refuse_foreign_trees(directory)
        fd = _lock(directory, fcntl.LOCK_EX, tries=2)  # twice: `inject` takes it to test whether it is held
        if fd is None:
            raise GpuwatchError(
                f"a simulated node already runs in {directory}",
                "another process keeps it",
                "stop it, or choose another place: --dir of sim run, --sim-dir of the agent",
            )
        record = NodeRecord(
            scenario=scenario, seed=seed, speed=speed, epoch=clock.monotonic(), started=clock.time(), boot_id=_boot_id()
        )
        end(directory)
        (directory / INJECTIONS).write_bytes(b"")
        new = directory / f".{NODE}"
        new.write_bytes(msgspec.json.encode(record))
        new.replace(directory / NODE)
    except UnsafePath as error:
        raise GpuwatchError(f"cannot simulate in {directory}", error.why, error.next_step) from error
    except OSError as error:
        raise GpuwatchError(f"cannot simulate in {directory}", error.strerror or str(error)) from None
    return DirectoryLock(record, fd)


def attach(directory: Path, clock: Clock | None = None, *, physical: bool = True) -> NodeReplica:
    """Follow the node that runs in `directory`.

    Raises:
        NoGpuStack: there is none, or it is from before the machine's last start.
    """
    record = _current(directory)
    return NodeReplica(directory, record, clock or SystemClock(), physical)


def end(directory: Path) -> None:
    """Remove the node's files; the injections last, as they mark the folders as a simulation's."""
    (directory / NODE).unlink(missing_ok=True)
    for name in TREES:
        tree = directory / name
        if tree.is_dir() and not tree.is_symlink():
            shutil.rmtree(tree, ignore_errors=True)
        else:  # of a pipe rmtree would wait for the writer
            tree.unlink(missing_ok=True)
    (directory / INJECTIONS).unlink(missing_ok=True)


def _refuse_foreign_trees(directory: Path) -> None:
    """A simulation deletes its folders, such as `etc`, before it begins: refuse folders that no simulation has made.

    Raises:
        GpuwatchError: there is such a folder.
    """
    if any((directory / name).is_file() for name in (NODE, INJECTIONS)):
        return
    with contextlib.suppress(UsageError):  # as in `create`
        if directory == default_directory():  # private: an agent that ended after its node has left its state there
            return
    if foreign := [name for name in TREES if os.path.lexists(directory / name)]:
        raise GpuwatchError(
            f"cannot simulate in {directory}",
            f"it has a folder {foreign[0]} that no simulation made and that one would delete",
            "name an empty folder with --dir",
        )


def inject(directory: Path, action: dict[str, Any] | AnyAction, clock: Clock | None = None) -> AnyAction:
    """Apply an action to the running node: `{"do": "xid", "gpu": 3, "xid": 79}`. `at` counts from now.

    Returns the action with the simulated second at which it happens.

    Raises:
        UsageError: no such action, or wrong arguments.
        NoGpuStack: nothing runs in `directory`.
    """
    record = _current(directory)
    if not runs(directory):
        raise NoGpuStack(f"no simulated node runs in {directory}", "it has ended", "try `gpuwatch sim run`")
    node = record.scenario.node
    parsed = parse_action(action, node) if isinstance(action, dict) else action
    check_action(parsed, node, "the action")
    return _schedule(directory, record, parsed, clock or SystemClock())


def _schedule(directory: Path, record: NodeRecord, action: AnyAction, clock: Clock) -> AnyAction:
    """Write an action, whose `at` counts from now, to the file that every process reads."""
    at = (clock.monotonic() + LEAD_SECONDS - record.epoch) * record.speed + action.at
    timed: AnyAction = msgspec.structs.replace(action, at=at)
    line = msgspec.json.encode(timed) + b"\n"
    fd = os.open(directory / INJECTIONS, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)
    return timed


def _current(directory: Path) -> NodeRecord:
    try:
        record = msgspec.json.decode((directory / NODE).read_bytes(), type=prepared(NodeRecord))
    except (OSError, *UNREADABLE):
        raise NoGpuStack(f"no simulated node in {directory}", "it has no node.json", "try `gpuwatch sim run`") from None
    if record.boot_id != _boot_id():
        raise NoGpuStack(
            f"the simulated node in {directory} is over", "the machine was restarted", "try `gpuwatch sim run`"
        )
    return record


def _lock(directory: Path, kind: int, tries: int = 1) -> int | None:
    """A lock on the directory, or None when another process keeps it."""
    fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(tries):
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            if tries > 1:
                threading.Event().wait(0.05)
    os.close(fd)
    return None


def runs(directory: Path) -> bool:
    """Whether some process keeps a node in `directory` now."""
    if not (directory / NODE).exists():
        return False
    fd = _lock(directory, fcntl.LOCK_SH)
    if fd is not None:
        os.close(fd)
    return fd is None


def _boot_id() -> str:
    return text(_BOOT_ID) or ""
