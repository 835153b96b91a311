"""Who runs on a GPU: host pids with memory, and their utilization from the driver's sample buffer."""

from typing import Any

from gpuwatch.model.snapshot import GpuProcess
from gpuwatch.sources.nvml import Failure, Nvml, NvmlFailure, ask

LISTS = {
    "compute": "nvmlDeviceGetComputeRunningProcesses",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
    "mps": "nvmlDeviceGetMPSComputeRunningProcesses",
}
OLDER = ("_v3", "_v2")
"""pynvml's unsuffixed getters insist on _v3; a driver without it may still have _v2."""

NO_INSTANCE = 0xFFFFFFFF
"""Instance id of a process that is not on a MIG device."""

FRESH_MICROSECONDS = 10_000_000
"""A process without a newer utilization sample is taken as idle."""


class ProcessReader:
    """The processes of one GPU; keeps the time of the newest utilization sample so that none counts twice."""

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._unsupported: set[str] = set()
        self._last_seen = 0
        self._utilization: dict[int, Any] = {}

    def read(self) -> tuple[GpuProcess, ...] | None:
        """All processes by pid; None when the driver offers no process list at all."""
        found: dict[tuple[int, int | None], GpuProcess] = {}
        asked = 0
        for kind, name in LISTS.items():
            entries = self._list(name)
            if entries is None:
                continue
            asked += 1
            for entry in entries:
                process = self._process(entry, kind)
                found.setdefault((process.pid, process.gi), process)
        if not asked:
            return None
        self._read_utilization()
        return tuple(self._with_utilization(process) for _, process in sorted(found.items(), key=lambda kv: kv[1].pid))

    def _list(self, name: str) -> list[Any] | None:
        if name in self._unsupported:
            return None
        for suffix in OLDER:
            try:
                return list(ask(self._nvml, name + suffix, self._handle))
            except NvmlFailure as error:
                if error.kind in (Failure.LOST, Failure.DRIVER_GONE):
                    raise
                if error.kind is not Failure.UNSUPPORTED:
                    return None
        self._unsupported.add(name)
        return None

    @staticmethod
    def _process(entry: Any, kind: str) -> GpuProcess:
        def instance(member: str) -> int | None:
            value = getattr(entry, member, None)
            return None if value is None or value == NO_INSTANCE else int(value)

        return GpuProcess(
            pid=int(entry.pid),
            type=kind,
            used_memory=None if entry.usedGpuMemory is None else int(entry.usedGpuMemory),
            gi=instance("gpuInstanceId"),
            ci=instance("computeInstanceId"),
        )

    def _read_utilization(self) -> None:
        name = "nvmlDeviceGetProcessUtilization"
        if name in self._unsupported:
            return
        try:
            samples = ask(self._nvml, name, self._handle, self._last_seen)
        except NvmlFailure as error:
            if error.kind in (Failure.LOST, Failure.DRIVER_GONE):
                raise
            if error.kind is Failure.UNSUPPORTED:
                self._unsupported.add(name)
            return  # NVML_SUCCESS and NOT_FOUND mean: no new samples
        for sample in sorted(samples, key=lambda s: int(s.timeStamp)):
            if sample.timeStamp > self._last_seen or sample.pid not in self._utilization:
                self._utilization[int(sample.pid)] = sample
        if samples:
            self._last_seen = max(self._last_seen, *(int(sample.timeStamp) for sample in samples))
        horizon = self._last_seen - FRESH_MICROSECONDS
        self._utilization = {pid: s for pid, s in self._utilization.items() if s.timeStamp >= horizon}

    def _with_utilization(self, process: GpuProcess) -> GpuProcess:
        if "nvmlDeviceGetProcessUtilization" in self._unsupported:
            return process
        sample = self._utilization.get(process.pid)
        return GpuProcess(
            pid=process.pid,
            type=process.type,
            used_memory=process.used_memory,
            gi=process.gi,
            ci=process.ci,
            sm_utilization=sample.smUtil / 100 if sample else 0.0,
            memory_utilization=sample.memUtil / 100 if sample else 0.0,
            encoder_utilization=sample.encUtil / 100 if sample else 0.0,
            decoder_utilization=sample.decUtil / 100 if sample else 0.0,
        )
