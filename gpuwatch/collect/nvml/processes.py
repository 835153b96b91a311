"""Processes on a GPU: host pids with memory, and their utilization from the driver's sample buffer."""

import re
from collections.abc import Collection
from typing import Any

import msgspec

from gpuwatch.collect.nvml.fields import Tier
from gpuwatch.collect.nvml.library import Failure, Nvml, NvmlFailure, ask, text
from gpuwatch.collect.nvml.reads import ALL_TIERS
from gpuwatch.model.snapshot import GpuProcess

LISTS = {
    "compute": "nvmlDeviceGetComputeRunningProcesses",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
    "mps": "nvmlDeviceGetMPSComputeRunningProcesses",
}
OLDER = ("_v3", "_v2")
"""pynvml's unsuffixed getters insist on _v3; a driver without it may still have _v2."""

NO_INSTANCE = 0xFFFFFFFF
"""Instance id of a process that is not on a MIG device."""

FRESH_SECONDS = 10.0
"""A process without a newer utilization sample for so long counts as idle: the driver has no samples of idle ones."""

UTILIZATION = "nvmlDeviceGetProcessUtilization"
NO_SAMPLES = (0, 6)
"""NVML_SUCCESS, which pynvml raises, and NVML_ERROR_NOT_FOUND: no new samples."""

SHARES = {
    "sm_utilization": "smUtil",
    "memory_utilization": "memUtil",
    "encoder_utilization": "encUtil",
    "decoder_utilization": "decUtil",
}
"""Member of GpuProcess -> member of nvmlProcessUtilizationSample_t, in percent."""


class ProcessReader:
    """The processes of one GPU; keeps the time of the newest utilization sample so that none counts twice.

    After `read`, `errors` names what could not be read this time.
    """

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._unsupported: set[str] = set()
        self._empty: set[str] = set()
        self._last_seen = 0
        self._names: dict[int, str | None] = {}
        self._samples: dict[int, tuple[float, Any]] = {}  # pid -> monotonic time of arrival, newest sample
        self.errors: dict[str, str] = {}

    def read(self, now: float, tiers: Collection[Tier] = ALL_TIERS) -> tuple[GpuProcess, ...] | None:
        """All processes by pid at monotonic `now`; None when the driver offers no list or one could not be read. A list
        of graphics or MPS processes that was empty is asked for again when the tier STEADY is due.
        """
        self.errors = {}
        found: dict[tuple[int, int | None], GpuProcess] = {}
        for kind, name in LISTS.items():
            if name in self._empty and Tier.STEADY not in tiers:
                continue
            entries = self._list(name)
            if not entries and kind != "compute" and not self.errors:
                self._empty.add(name)
            else:
                self._empty.discard(name)
            for entry in entries:
                ids = (getattr(entry, member, None) for member in ("gpuInstanceId", "computeInstanceId"))
                gi, ci = (None if value is None or value == NO_INSTANCE else int(value) for value in ids)
                used_memory = None if entry.usedGpuMemory is None else int(entry.usedGpuMemory)
                process = GpuProcess(pid=int(entry.pid), type=kind, used_memory=used_memory, gi=gi, ci=ci)
                known = found.setdefault((process.pid, process.gi), process)
                if (known.type, kind) == ("compute", "graphics"):  # it is in both lists: nvidia-smi's C+G
                    found[process.pid, process.gi] = msgspec.structs.replace(known, type="compute+graphics")
        if self.errors or self._unsupported.issuperset(LISTS.values()):
            return None
        self._names = {pid: self._name(pid) for pid, _ in found}
        has_utilization = self._read_utilization(now)
        processes = []
        for process in sorted(found.values(), key=lambda process: process.pid):
            shares = {}
            if has_utilization:
                _, sample = self._samples.get(process.pid, (None, None))
                shares = {name: getattr(sample, member) / 100 if sample else 0.0 for name, member in SHARES.items()}
            processes.append(msgspec.structs.replace(process, name=self._names[process.pid], **shares))
        return tuple(processes)

    def _list(self, name: str) -> list[Any]:
        for suffix in OLDER if name not in self._unsupported else ():
            try:
                return list(ask(self._nvml, name + suffix, self._handle))
            except NvmlFailure as error:
                if error.is_gone:
                    raise
                if error.kind is not Failure.UNSUPPORTED:
                    self.errors["processes"] = str(error)
                    return []
        self._unsupported.add(name)
        return []

    def _name(self, pid: int) -> str | None:
        """The program's file name: the driver may return a whole command line, which may hold secrets."""
        if pid in self._names:
            return self._names[pid]
        try:
            return file_name(text(ask(self._nvml, "nvmlSystemGetProcessName", pid)) or "")
        except NvmlFailure as error:
            if error.kind is Failure.DRIVER_GONE:
                raise
            return None

    def _read_utilization(self, now: float) -> bool:
        """Take in the samples since the last read; False when utilization is not available."""
        if UTILIZATION in self._unsupported:
            return False
        try:
            samples = ask(self._nvml, UTILIZATION, self._handle, self._last_seen)
        except NvmlFailure as error:
            if error.is_gone:
                raise
            if error.kind is Failure.UNSUPPORTED:
                self._unsupported.add(UTILIZATION)
                return False
            if error.code not in NO_SAMPLES:
                self.errors["processes.utilization"] = str(error)
                return False
            samples = []
        # drivers also return stale slots of their buffer, with shares in the millions
        sane = [
            sample
            for sample in samples
            if sample.timeStamp > self._last_seen and all(getattr(sample, member) <= 100 for member in SHARES.values())
        ]
        for sample in sorted(sane, key=lambda sample: int(sample.timeStamp)):
            self._samples[int(sample.pid)] = (now, sample)
            self._last_seen = int(sample.timeStamp)
        self._samples = {pid: kept for pid, kept in self._samples.items() if now - kept[0] <= FRESH_SECONDS}
        return True


def file_name(command: str) -> str | None:
    """The last part of the path that a command line begins with; on Windows and under Wine paths hold spaces."""
    if command[1:3] == ":\\" or command.startswith("\\\\"):
        program = re.match(r".*?\.exe\b", command, re.IGNORECASE)
        path, separator = program[0] if program else command, "\\"
    else:
        path, separator = next(iter(command.split()), ""), "/"
    return None if path.startswith("[") else path.rpartition(separator)[2] or None
