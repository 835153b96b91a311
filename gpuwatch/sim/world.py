"""Everything around the simulated driver: kernel log, kubelet, /proc and sysfs, hosted by one thread.

The driver itself is not here: the reader process opens it through `backend` and computes the same node on its own.
"""

import contextlib
import logging
import os
import re
import stat
import threading
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gpuwatch.config import Backend, SourcesConfig
from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.sim.directory import NodeReplica, create, end, inject
from gpuwatch.sim.host.machine import KERNEL_LOG, raw_line
from gpuwatch.sim.host.tree import SimHostTree
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
"""In a folder of its own: a machine without kubelet has not even that."""

BOOT_SECONDS = 60.0
"""How long the simulated machine was up when its first second began."""

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
        clock: Clock | None = None,
    ) -> None:
        self.directory = directory
        self._scenario = scenario if isinstance(scenario, Scenario) else load(scenario)
        self._seed, self._speed, self._clock = seed, speed, clock or SystemClock()
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
        )

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
        """Let something happen; see `directory.inject`."""
        return inject(self.directory, action, self._clock)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _make(self, undo: contextlib.ExitStack, boot_id: str) -> None:
        self._kmsg = KernelRing(self.directory / "kmsg", self._clock)
        undo.callback(self._kmsg.close)
        self._processes = ProcTree(self.directory)
        self._bus = PciTree(self.directory)
        self._host = SimHostTree(self.directory)
        self._consents = ConsentsWriter(self.directory / "state", self._clock)
        # which boot it is, and which machine: the same for every node of a directory
        machine_id = uuid.uuid5(uuid.NAMESPACE_URL, str(self.directory.absolute())).hex
        for path, text in (("proc/sys/kernel/random/boot_id", boot_id), ("etc/machine-id", machine_id)):
            (self.directory / path).parent.mkdir(parents=True, exist_ok=True)
            (self.directory / path).write_text(f"{text}\n")
        self._kubelet = SimKubelet(self.directory / KUBELET)
        undo.callback(self._kubelet.stop)
        node = self._replica.update()
        self._kmsg.write(LogLine(0.0, f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {node.driver}"))
        self._show(node)

    def _run(self) -> None:
        changes = self._replica.node.changes
        while not self._stopping.wait(self._replica.until_next()):
            node = self._replica.update()
            while node.lines:
                self._log(node.lines.popleft())
            try:
                if node.changes != changes:
                    changes = node.changes
                    self._show(node)
                self._consents.step(node)
            except (OSError, GpuwatchError) as error:
                log.error("cannot show the simulated node; %s", error)

    def _log(self, line: LogLine) -> None:
        """To those who follow the kernel log, and to the file for those who come later."""
        self._kmsg.write(line)
        try:
            with (self.directory / KERNEL_LOG).open("a") as file:
                file.writelines(raw_line(BOOT_SECONDS + line.t, t, line.facility) for t in line.text.splitlines())
        except OSError as error:
            log.error("cannot keep the simulated kernel log; %s", error)

    def _show(self, node: SimNode) -> None:
        self._processes.show(pods.processes(node), pods.pods(node))
        self._bus.show(node)
        self._host.show(node)
        self._kubelet.show(pods.allocations(node), pods.allocatable(node))
        if node.kubelet != self._kubelet_state:
            self._kubelet_state = node.kubelet
            self._kubelet.fail(None if node.kubelet == "ok" else node.kubelet)


class KernelRing:
    """A FIFO that speaks as /dev/kmsg does. When nobody reads and it is full, records are lost, numbers go on."""

    def __init__(self, path: Path, clock: Clock) -> None:
        if not (path.exists() and stat.S_ISFIFO(path.stat().st_mode)):
            path.unlink(missing_ok=True)
            os.mkfifo(path, 0o600)
        self._path, self._clock = path, clock
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._sequence = 0

    def write(self, line: LogLine) -> None:
        """One record with the next number."""
        self._sequence += 1
        text = _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", line.text)
        priority = line.facility * 8 + _WARNING
        record = f"{priority},{self._sequence},{int(self._clock.monotonic() * 1e6)},-;{text}\n"
        try:
            os.write(self._fd, record.encode())
        except BlockingIOError:
            log.debug("simulated kernel log is full, record %d is lost", self._sequence)

    def close(self) -> None:
        """Remove the FIFO."""
        os.close(self._fd)
        self._path.unlink(missing_ok=True)
