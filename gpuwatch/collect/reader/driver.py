"""The threads that call the driver: one that starts it, one per GPU, one for the event set."""

import importlib
import logging
import os
import select
import signal
import sys
import threading
import time
from typing import Any

import msgspec

from gpuwatch.collect.nvml.events import DriverEventReader
from gpuwatch.collect.nvml.library import Failure, Nvml, NvmlFailure, ask, text
from gpuwatch.collect.reader.gpu_thread import GpuThread
from gpuwatch.collect.reader.messages import (
    REFRESH,
    USAGE,
    DriverEventMessage,
    DriverOpened,
    GpuRefused,
    Outbox,
    ReaderFailed,
    ReaderHeartbeat,
    ReadUnderWay,
    Settings,
    private_stdout,
    release_streams,
)
from gpuwatch.host.machine import in_pod
from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import GpuwatchError, NoGpuStack, UsageError
from gpuwatch.model.snapshot import Driver
from gpuwatch.model.text import visible

log = logging.getLogger(__name__)

EVENT_WAIT_SECONDS = (0.5, 5.0)
"""Bounds of a wait, otherwise the interval. Each wait wakes the process, and fails once the driver is gone."""

EVENT_BACKOFF_SECONDS = (0.1, 5.0)
NO_GPU_RECHECK_SECONDS = 30
FINISH_POLL_SECONDS = 0.01
LIBRARY_NOT_FOUND = 12  # NVML_ERROR_LIBRARY_NOT_FOUND
NOT_INJECTED = (
    "; NVIDIA's container runtime puts it into a container: set runtimeClassName, NVIDIA_VISIBLE_DEVICES=all and "
    "NVIDIA_DRIVER_CAPABILITIES=utility, or mount the driver and name its library with --nvml-library"
)


class DriverThread(threading.Thread):
    """Opens the driver and starts the other threads; `starting` names what it waits for, None once it runs."""

    def __init__(self, settings: Settings, outbox: Outbox) -> None:
        super().__init__(name="driver", daemon=True)
        self._settings, self._outbox = settings, outbox
        self._gpus: list[GpuThread] = []
        self.starting: str | None = "loading the library"

    def run(self) -> None:
        """Open the driver, then wait for its events for ever."""
        try:
            self._read_events(self._open())
        except NvmlFailure as error:
            # a library that is not installed stays so for the life of this machine or container
            missing = error.code == LIBRARY_NOT_FOUND
            reason = f"{self.starting or 'the driver'}: {error}{NOT_INJECTED if missing and in_pod() else ''}"
            self._fail(reason, error.kind, retry=not missing, code=error.code)
        except GpuwatchError as error:
            kind = USAGE if isinstance(error, UsageError) else Failure.DRIVER_GONE
            self._fail(str(error), kind, retry=False, code=LIBRARY_NOT_FOUND if isinstance(error, NoGpuStack) else None)
        except Exception as error:  # noqa: BLE001 an odd driver or bindings: reported, and tried again
            self._fail(f"{self.starting or 'driver events'}: {type(error).__name__}: {error}", Failure.TRANSIENT)

    def refresh(self) -> None:
        """Have every GPU read now, rarely-read values included."""
        for gpu in self._gpus:
            gpu.refresh()

    def finish(self) -> None:
        """Begin no new call, and wait until none is under way."""
        for gpu in self._gpus:
            gpu.stop()
        while (self.is_alive() and self.starting) or any(gpu.is_alive() and gpu.busy() for gpu in self._gpus):
            time.sleep(FINISH_POLL_SECONDS)

    def _fail(self, reason: str, kind: str, retry: bool = True, code: int | None = None) -> None:
        self._outbox.send(ReaderFailed(reason=reason, kind=kind, retry=retry, code=code))

    def reads(self) -> dict[str, ReadUnderWay]:
        """uuid (or `index N`) -> its read under way; of registrations only those that take longer than an interval."""
        found = {gpu.key: read for gpu in self._gpus if (read := gpu.busy())}
        return {
            key: read
            for key, read in found.items()
            if read.part != "registration" or read.seconds >= self._settings.interval
        }

    def _open(self) -> DriverEventReader | None:
        """Start what reads the GPUs. Returns the event set, None where the driver has none."""
        module, _, function = self._settings.factory.partition(":")
        nvml = getattr(importlib.import_module(module), function)(self._settings.target)
        self.starting = "nvmlInit"
        ask(nvml, "nvmlInit")
        self.starting = "counting the GPUs"
        count = int(ask(nvml, "nvmlDeviceGetCount"))
        self._outbox.send(DriverOpened(driver=versions(nvml), count=count))
        self.starting = None
        events = None
        try:
            events = DriverEventReader(nvml)
        except NvmlFailure as error:
            log.warning("no driver events; %s; XIDs come from the kernel log only", visible(str(error)))
        closed = self._settings.closed
        for index in closed:
            self._outbox.send(GpuRefused(index=index, hidden=True, reason="closed while it is being reset"))
        indexes = [index for index in range(count) if index not in closed]
        self._gpus = [GpuThread(nvml, index, self._settings, self._outbox, events) for index in indexes]
        for gpu in self._gpus:
            gpu.start()
        if not count:
            time.sleep(NO_GPU_RECHECK_SECONDS)
            self._fail("no GPU in NVML", Failure.TRANSIENT)
        return events

    def _read_events(self, events: DriverEventReader | None) -> None:
        shortest = EVENT_BACKOFF_SECONDS[0]
        least, most = EVENT_WAIT_SECONDS
        backoff, wait_ms = shortest, int(1000 * min(max(self._settings.interval, least), most))
        while events is not None:
            try:
                event = events.wait(wait_ms, time.time)
            except NvmlFailure as error:
                if error.kind is Failure.DRIVER_GONE:
                    raise
                time.sleep(backoff)
                if error.kind is Failure.LOST:
                    events.reopen()
                backoff = min(backoff * 2, EVENT_BACKOFF_SECONDS[1])
                continue
            backoff = shortest
            if event is not None:
                self._outbox.send(DriverEventMessage(event=event))
                for gpu in self._gpus:
                    if event.uuid is None or gpu.key == event.uuid:
                        gpu.refresh()


def versions(nvml: Nvml) -> Driver:
    """Driver, NVML and CUDA versions, confidential computing; None for what the driver does not report."""

    def get(name: str) -> Any | None:
        try:
            return ask(nvml, name)
        except NvmlFailure:
            return None

    confidential = get("nvmlSystemGetConfComputeState")
    cuda = get("nvmlSystemGetCudaDriverVersion_v2")
    return Driver(
        version=text(get("nvmlSystemGetDriverVersion") or ""),
        nvml=text(get("nvmlSystemGetNVMLVersion") or ""),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        confidential=bool(confidential.ccFeature) if confidential else None,
        confidential_debug=bool(confidential.devToolsMode) if confidential and confidential.ccFeature else None,
    )


BEAT_SECONDS = (0.5, 1.5)
"""Bounds of the time between heartbeats, otherwise half the interval."""


def main() -> None:
    """Run until the agent closes stdin, as it does when the driver is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to both; the agent ends the reader
    settings = msgspec.json.decode(sys.argv[1], type=prepared(Settings))
    outbox = Outbox(private_stdout())
    driver = DriverThread(settings, outbox)
    driver.start()
    stdin = sys.stdin.fileno()
    least, most = BEAT_SECONDS
    beat = min(max(settings.interval / 2, least), most)
    while not outbox.closed:
        readable, _, _ = select.select([stdin], [], [], beat)
        if readable:
            command = os.read(stdin, 64)
            if not command:
                break
            if REFRESH in command:
                driver.refresh()
        outbox.send(ReaderHeartbeat(reads=driver.reads(), starting=driver.starting))
    release_streams()
    driver.finish()
    os._exit(0)
