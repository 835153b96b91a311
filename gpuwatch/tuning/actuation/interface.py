"""How settings are made: the protocols of actuator and driver, a session that stays open, a thread per GPU.

The first session of a process takes the driver long, so one stays open. The library counts its users and starts again
only when the last one has left: after a driver reload the open session is closed, and once every call under way has
ended, the next session reaches the new driver. A driver call that does not return blocks only its own GPU's thread; it
cannot be ended, so the threads are daemons.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from gpuwatch.model.errors import NoGpuStack
from gpuwatch.tuning.model.setting import Actuation, ApplyResult, GpuCapabilities, Knob, SettingOrder, Trigger


class DriverControl(Protocol):
    """A session with the driver, watts and hertz: `driver.NvmlControl`. All may raise GpuwatchError."""

    def driver_version(self) -> str:
        """The version of the driver that is loaded."""
        ...

    def power_limits(self, uuid: str) -> tuple[float, float]:
        """Configured, and the most that may be restored."""
        ...

    def sm_clock(self, uuid: str) -> float:
        """The SM clock now."""
        ...

    def capabilities(self, uuid: str) -> GpuCapabilities:
        """What may be set."""
        ...

    def set_power_limit(self, uuid: str, watts: float) -> None:
        """Set it."""
        ...

    def set_locked_clocks(self, uuid: str, lowest: float, highest: float) -> None:
        """Lock them."""
        ...

    def reset_locked_clocks(self, uuid: str) -> None:
        """Unlock them."""
        ...


Connect = Callable[[], AbstractContextManager[DriverControl]]


class Actuator(Protocol):
    """Changes the settings of this node's GPUs; each is recorded before the driver call."""

    def capabilities(self, uuid: str) -> GpuCapabilities:
        """What may be set. Raises GpuwatchError: the driver does not report it."""
        ...

    def apply(self, orders: Sequence[SettingOrder]) -> tuple[ApplyResult, ...]:
        """Carry out each GPU's orders in order, all GPUs at once; waits a second at most. Never raises for one GPU."""
        ...

    def recorded(self) -> Actuation:
        """What the record holds now: all that gpuwatch has set. Raises GpuwatchError: it cannot be read."""
        ...

    def restore(
        self, trigger: Trigger, uuids: Collection[str] | None = None, kept_knobs: Collection[Knob] = ()
    ) -> tuple[str, ...]:
        """Restore all settings of these GPUs, None: of all; returns which could not be restored, and why. Those stay
        recorded, and so do the settings of `kept_knobs`.
        """
        ...


class OpenSession:
    """`connect` for many threads: each has its own session, one more stays open until `close`."""

    def __init__(self, connect: Connect) -> None:
        self._connect, self._lock = connect, threading.Lock()
        self._open: contextlib.ExitStack | None = None

    @contextlib.contextmanager
    def __call__(self) -> Iterator[DriverControl]:
        """A session. Raises NoGpuStack: there is no driver, or it was reloaded meanwhile."""
        try:
            with self._connect() as control:
                self._keep_open()
                yield control
        except NoGpuStack:
            self.close()
            raise

    def close(self) -> None:
        """Leave the driver; a later session opens it again."""
        with self._lock:
            left, self._open = self._open, None
        if left is not None:
            left.close()

    def _keep_open(self) -> None:
        if self._open is not None:
            return
        with contextlib.ExitStack() as own:
            own.enter_context(self._connect())
            with self._lock:
                if self._open is None:
                    self._open = own.pop_all()


class PerGpuExecutor:
    """Runs jobs by GPU. A job stores its own result, also when it ends after `run` has returned. Any thread may call
    `run`, also while another thread is in it.
    """

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._threads: dict[str, threading.Thread] = {}

    def run(self, jobs: Mapping[str, Callable[[], None]], timeout: float, *, wait_busy: bool = False) -> None:
        """Start all jobs at once; return when they are done, after `timeout` seconds at most.

        A GPU whose earlier job still runs is left out. `wait_busy`: wait for that job, then start the new one.
        """
        deadline = time.monotonic() + timeout
        with self._starting:
            known = {uuid: thread for uuid in jobs if (thread := self._threads.get(uuid)) is not None}
            busy = {uuid: thread for uuid, thread in known.items() if thread.is_alive()}
            started = [self._start(uuid, jobs[uuid]) for uuid in jobs.keys() - busy.keys()]
        for uuid, thread in busy.items() if wait_busy else ():
            thread.join(max(0.0, deadline - time.monotonic()))
            if not thread.is_alive():
                with self._starting:
                    started.append(self._start(uuid, jobs[uuid]))
        for thread in started:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _start(self, uuid: str, job: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=job, name=f"GPU {uuid}", daemon=True)
        thread.start()
        self._threads[uuid] = thread  # not before: `join` raises for a thread that was not started
        return thread
