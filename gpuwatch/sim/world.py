"""Everything around the simulated driver: kernel log, kubelet, /proc and sysfs, hosted by one thread.

The driver itself is not here: the reader process opens it through `backend` and computes the same node on its own.
"""

import contextlib
import logging
import os
import re
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from gpuwatch.config import Backend, SourcesConfig
from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.sim.directory import NodeReplica, create, end, inject
from gpuwatch.sim.host import Files, Symlink
from gpuwatch.sim.host.cluster import cluster
from gpuwatch.sim.host.machine import boot_log, machine
from gpuwatch.sim.host.runtime import DOCKER, JOBS, runtime
from gpuwatch.sim.host.services import services
from gpuwatch.sim.node import pods
from gpuwatch.sim.node.actions import AnyAction, KubeletState
from gpuwatch.sim.node.machine import LogLine
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.node.scenario import Scenario, load
from gpuwatch.sim.surroundings.consents import ConsentsWriter
from gpuwatch.sim.surroundings.kubelet import SimKubelet
from gpuwatch.sim.surroundings.pcitree import PciTree
from gpuwatch.sim.surroundings.proctree import ProcTree

log = logging.getLogger(__name__)

KUBELET = "kubelet/api.sock"
"""In a folder of its own, which a machine without a kubelet lacks."""

AREAS: tuple[Callable[[SimNode], Files], ...] = (machine, services, runtime, cluster)

_WARNING = 4
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")


class World:
    """One running simulation. Use `start` and `stop`, or as a context manager.

    Raises on construction:
        UsageError: there is no such scenario, or it is wrong.
    """

    def __init__(
        self,
        scenario: str | Path | Scenario,
        directory: Path,
        *,
        seed: int = 1,
        speed: float = 1.0,
    ) -> None:
        self.directory = directory
        self._scenario = scenario if isinstance(scenario, Scenario) else load(scenario)
        self._seed, self._speed, self._clock = seed, speed, SystemClock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._kubelet_state: KubeletState | None = None  # not started

    @property
    def backend(self) -> Backend:
        """What the reader must open."""
        return Backend(factory="gpuwatch.sim.nvml:open_node", target=str(self.directory))

    @property
    def sources(self) -> SourcesConfig:
        """Where this node's kernel log, kubelet, /proc and /sys are."""
        return SourcesConfig(
            kmsg=str(self.directory / "kmsg"),
            pod_resources=str(self.directory / KUBELET),
            pod_resources_interval=2.0,
            proc=str(self.directory / "proc"),
            sys=str(self.directory / "sys"),
            dev=str(self.directory / "dev"),
            machine_id=str(self.directory / "etc/machine-id"),
            pod_logs=str(self.directory / "log/pods"),
            slurm_jobs=str(self.directory / JOBS),
            containers=(str(self.directory / DOCKER),),
        )

    @property
    def node(self) -> SimNode:
        """The node as it was last shown; callers must not change it."""
        return self._replica.node

    def start(self) -> Self:
        """Make the files and sockets, begin the scenario and follow it in a thread of its own.

        Raises:
            GpuwatchError: another simulation runs in the directory, or it cannot be written.
        """
        with contextlib.ExitStack() as undo:
            hold = create(self.directory, self._scenario, self._seed, self._speed, self._clock)
            undo.callback(hold.release)
            undo.callback(end, self.directory)
            self._replica = NodeReplica(self.directory, hold.record, self._clock, physical=False)
            try:
                self._make(undo, hold.record.boot_id)
            except (OSError, RuntimeError) as error:
                raise GpuwatchError(f"cannot simulate in {self.directory}", str(error), "choose another") from None
            self._undo = undo.pop_all()
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="sim-world", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the node and remove its files."""
        if self._thread is None:
            return
        self._stopping.set()
        if self._thread.is_alive():  # not if Ctrl-C came before it was started
            self._thread.join()
        self._thread = None
        self._undo.close()

    def inject(self, action: dict[str, Any] | AnyAction) -> AnyAction:
        """Apply an action; see `directory.inject`."""
        return inject(self.directory, action, self._clock)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _make(self, undo: contextlib.ExitStack, boot_id: str) -> None:
        self._kmsg = KernelRing(self.directory / "kmsg", self._clock)
        undo.callback(self._kmsg.close)
        self._processes = ProcTree(self.directory)
        self._bus = PciTree(self.directory)
        self._host = SimHostTree(self.directory)
        self._consents = ConsentsWriter(self.directory / "state", self._clock)
        # the ids of boot and machine: every node of a directory has the same machine id
        machine_id = uuid.uuid5(uuid.NAMESPACE_URL, str(self.directory.absolute())).hex
        for path, text in (("proc/sys/kernel/random/boot_id", boot_id), ("etc/machine-id", machine_id)):
            (self.directory / path).parent.mkdir(parents=True, exist_ok=True)
            (self.directory / path).write_text(f"{text}\n")
        self._kubelet = SimKubelet(self.directory / KUBELET)
        undo.callback(self._kubelet.stop)
        node = self._replica.update()
        for at, text in boot_log(node):
            self._kmsg.write(LogLine(0.0, text), at)
        self._show(node)

    def _run(self) -> None:
        changes = self._replica.node.changes
        while not self._stopping.wait(self._replica.until_next()):
            node = self._replica.update()
            while node.lines:
                self._kmsg.write(node.lines.popleft())
            try:
                if node.changes != changes:
                    changes = node.changes
                    self._show(node)
                self._consents.step(node)
            except (OSError, GpuwatchError) as error:
                log.error("cannot show the simulated node; %s", error)

    def _show(self, node: SimNode) -> None:
        self._processes.show(pods.processes(node), pods.pods(node))
        self._bus.show(node)
        self._host.show(node)
        self._kubelet.show(pods.allocations(node), pods.allocatable(node))
        if node.kubelet != self._kubelet_state:
            self._kubelet_state = node.kubelet
            self._kubelet.fail(None if node.kubelet == "ok" else node.kubelet)


class KernelRing:
    """A file with records as /dev/kmsg gives them, for any number of readers, each from the oldest on.

    A full ring loses all its records, and the numbers continue.
    """

    def __init__(self, path: Path, clock: Clock, room: int = 1 << 20) -> None:
        path.unlink(missing_ok=True)
        self._path, self._clock, self._room = path, clock, room
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._sequence = 0

    def write(self, line: LogLine, at: float | None = None) -> None:
        """One record with the next number; `at`: seconds since boot, None for now."""
        self._sequence += 1
        text = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", line.text)
        microseconds = int((self._clock.monotonic() if at is None else at) * 1e6)
        record = f"{line.facility * 8 + _WARNING},{self._sequence},{microseconds},-;{text}\n"
        try:
            if os.fstat(self._fd).st_size > self._room:
                os.ftruncate(self._fd, 0)
            os.write(self._fd, record.encode())
        except OSError as error:
            log.error("cannot keep the simulated kernel log; %s", error)

    def close(self) -> None:
        """Remove the file."""
        os.close(self._fd)
        self._path.unlink(missing_ok=True)


class SimHostTree:
    """The host's files below `root`, updated to the node last shown.

    A file that another process has changed or removed stays so until the node changes its text.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._shown: dict[str, str | Symlink] = {}

    def show(self, node: SimNode) -> None:
        """Write the files that changed since the last call; remove those that the node no longer has."""
        wanted = {path: content for area in AREAS for path, content in area(node).items()}
        for name, content in wanted.items():
            if self._shown.get(name) != content:
                path = self._root / name
                path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
                path.unlink(missing_ok=True)
                if isinstance(content, Symlink):
                    path.symlink_to(content.target)
                else:
                    path.write_text(content)
                    path.chmod(0o644)
        for name in self._shown.keys() - wanted.keys():
            (self._root / name).unlink(missing_ok=True)
        self._shown = wanted
