"""A tuner that enforces and its guard, each in a process of its own, in a hurry, on a fake driver.

What the tuner sees is worked out from the driver's control file: GPUs whose speed and draw follow the clock that is
locked, `views` seconds of work for each real one. What it sets goes through the C library.
"""

import logging
import mmap
import os
import signal
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import msgspec

from gpuwatch.cli.console.session import Session
from gpuwatch.cli.tune.driver_access import nvml_actuator, restorer
from gpuwatch.collect.nvml import library as nvml
from gpuwatch.config import Config, Mode, SourcesConfig, TuningConfig
from gpuwatch.host import machine
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.finding import Health, Judgement
from gpuwatch.model.snapshot import (
    Activity,
    ClockEvents,
    Clocks,
    Gpu,
    GpuProcess,
    GpuState,
    GpuStatus,
    Identity,
    Power,
    Snapshot,
)
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.model.workload import ProcessOwner
from gpuwatch.storage.store import Store
from gpuwatch.tuning.actuation.actuator import NvmlActuator
from gpuwatch.tuning.actuation.driver import NvmlControl
from gpuwatch.tuning.actuation.guard import CHECK_SECONDS, HEARTBEAT_TIMEOUT_SECONDS, RETRY_SECONDS, Guard
from gpuwatch.tuning.actuation.heartbeat import HeartbeatFile
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.actuation.restore import Restorer
from gpuwatch.tuning.model.setting import Trigger
from gpuwatch.tuning.service.process import TunerService
from gpuwatch.tuning.service.state_dir import TunerFolder
from gpuwatch.tuning.service.tuner import Tuner
from tests.fakes.libnvml import layout

BUDGET = 1000.0
"""Watts for two GPUs of 700 W."""

BOUND, STATIC, EXPONENT, WATTS = 0.2, 0.4, 2.75, 420.0
"""Of the work: time goes 1-b+b*x with full clock / clock = x, power s+(1-s)*x**-a."""

MHZ = 1e6


LOADED_BEFORE_THE_FORK = (NvmlControl, Restorer, Store, NvmlActuator, machine, nvml)


class Place(msgspec.Struct, frozen=True):
    """One node: its folder, the driver's control file, and how many times faster than in earnest its processes are."""

    folder: str
    control: str
    library: str
    views: float
    guard: float
    mode: Mode = "enforce"
    budget: float | None = BUDGET

    @property
    def state(self) -> Path:
        """Where the record is."""
        return Path(self.folder, "state")

    @property
    def boot(self) -> Path:
        """The file with the boot's id."""
        return Path(self.folder, "proc/sys/kernel/random/boot_id")

    @property
    def config(self) -> Config:
        """Of both processes."""
        return Config(
            state_dir=str(self.state),
            sources=SourcesConfig(proc=str(Path(self.folder, "proc")), nvml_library=self.library),
            tuning=TuningConfig(
                mode=self.mode, pods="enforce", work_class="batch", node_budget_watts=self.budget, listen=""
            ),
        )


def _enter(place: Place, name: str) -> None:
    """Be the process `name`: the fake driver is found through the environment, what is said goes to a file."""
    os.environ["GPUWATCH_FAKE_NVML"] = place.control
    os.setpgid(0, 0)
    log = os.open(Path(place.folder, f"{name}.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {name} {os.getpid()} %(message)s", force=True)


def guard(place: Place) -> None:
    """The guard, until SIGTERM."""
    _enter(place, "guard")
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    with restorer(Session(), place.config, Trigger.GUARD) as restoring:
        Guard(
            SettingsRecord(place.state),
            HeartbeatFile(place.state),
            restoring,
            SystemClock(),
            timeout=HEARTBEAT_TIMEOUT_SECONDS / place.guard,
            interval=CHECK_SECONDS / place.guard,
            retry=RETRY_SECONDS / place.guard,
            exit_wait=0.2,
        ).run(stopping.wait)


class FastClock:
    """Time that runs so many times faster than the machine's."""

    def __init__(self, times: float) -> None:
        self._times, self._began, self._at = times, time.monotonic(), time.time()

    def time(self) -> float:
        """Unix time in seconds."""
        return self._at + (time.monotonic() - self._began) * self._times

    def monotonic(self) -> float:
        """Seconds since an arbitrary point."""
        return time.monotonic() * self._times


class ControlViews:
    """Views of the GPUs of a control file, one for each second of a fast clock."""

    trouble = None

    def __init__(self, place: Place, clock: FastClock) -> None:
        with Path(place.control).open("r+b") as file:
            self._control = layout.ControlStruct.from_buffer(mmap.mmap(file.fileno(), 0))
        self._clock, self._pause = clock, 1.0 / place.views
        self._joules: dict[int, float] = {}
        self.view: View | None = None

    @property
    def age(self) -> float:
        """Seconds since the newest."""
        return 0.0 if self.view is None else self._clock.time() - self.view.snapshot.at

    def poll(self, wait: float = 0.0) -> bool:
        """Wait for the next one."""
        before = None if self.view is None else self.view.snapshot.at
        left = self._pause if before is None else (before + 1.0 - self._clock.time()) * self._pause
        time.sleep(min(wait, max(0.0, left)))
        at = self._clock.time()
        seconds = 1.0 if before is None else at - before
        found = [self._gpu(index, at, seconds) for index in range(self._control.gpu_count)]
        gpus = tuple(gpu for gpu, _ in found)
        self.view = View(
            snapshot=Snapshot(
                at=at,
                interval=1.0,
                gpus=gpus,
                statuses=tuple(GpuStatus(identity=gpu.identity, state=GpuState.FRESH) for gpu in gpus),
            ),
            agent=AgentStatus(version="1", started=at),
            owners=tuple(owner for _, owner in found),
            judgement=Judgement(node=Health.HEALTHY, gpus={gpu.identity.uuid: Health.HEALTHY for gpu in gpus}),
        )
        return True

    def _gpu(self, index: int, at: float, seconds: float) -> tuple[Gpu, ProcessOwner]:
        own = self._control.gpus[index]
        top = own.clock_max_mhz[1]
        clock = min(top, own.locked_max_mhz) if own.locked_max_mhz != layout.ABSENT else top
        speed = 1 / (1 - BOUND + BOUND * top / clock)
        watts = WATTS * (STATIC + (1 - STATIC) * (clock / top) ** EXPONENT)
        self._joules[index] = self._joules.get(index, 1e6) + watts * seconds
        limit = own.power_limit_mw / 1e3
        pid = own.processes[0].pid
        gpu = Gpu(
            identity=Identity(index=index, uuid=own.uuid.decode(), pci_bus_id=f"00000000:{index:02X}:00.0"),
            at=at,
            activity=Activity(
                graphics=0.98, dram=0.5 * speed, tensor=0.4 * speed * top / clock, window_seconds=seconds
            ),
            power=Power(
                average=watts,
                instant=watts,
                energy=self._joules[index],
                limit_configured=limit,
                limit_enforced=limit,
                limit_default=own.power_limit_default_mw / 1e3,
                limit_min=own.power_limit_min_mw / 1e3,
                limit_max=own.power_limit_max_mw / 1e3,
            ),
            clocks=Clocks(graphics=clock * MHZ, sm=clock * MHZ, graphics_max=top * MHZ, sm_max=top * MHZ),
            clock_events=ClockEvents(active={"applications_clocks_setting": False}),
            processes=(GpuProcess(pid=pid, type="compute", used_memory=1 << 30),),
            mig_enabled=False,
        )
        return gpu, ProcessOwner(pid=pid, start_time=pid, uid=pid, user=f"user{pid}")


def tuner(place: Place) -> None:
    """The tuner, until SIGTERM."""
    _enter(place, "tuner")
    clock = FastClock(place.views)
    views = ControlViews(place, clock)
    with nvml_actuator(Session(), place.config) if place.mode == "enforce" else nullcontext() as turning:
        tuning = Tuner(place.config.tuning, views, TunerFolder.at(place.state), clock=clock, actuator=turning)
        TunerService(tuning, views, "").run()
