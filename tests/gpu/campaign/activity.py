"""GPM, power, energy and processes under loads of known work: the kernels' own operations and bytes are the measure."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from gpuwatch.collect.nvml.gpu import GpuReader
from gpuwatch.model.snapshot import Gpu
from tests.gpu.campaign.kernels import KERNELS
from tests.gpu.campaign.reads import open_driver
from tests.gpu.campaign.report import Findings, rounded

READY_SECONDS = 12.0
SETTLE_SECONDS = 1.0
WINDOW_SECONDS = float(os.environ.get("GPUWATCH_CAMPAIGN_WINDOW", "5"))
SAMPLE_SECONDS = 0.5
CONTEXT_BYTES = 2 << 30
"""What CUDA may take for itself beside what a process allocated."""

FP32_LANES = {"7.0": 64, "7.5": 64, "8.0": 64}
"""Multiply-adds of single precision a clock and multiprocessor, by compute capability; 128 on all others."""

TENSOR_FMA = {"8.0": 1024, "8.6": 512, "8.7": 512, "8.9": 512, "9.0": 2048, "10.0": 4096, "10.3": 4096}
"""Multiply-adds of half precision into single precision, dense, a clock and multiprocessor (NVIDIA's white papers)."""


class LoadRow(NamedTuple):
    """A load: its kernel and the share of the multiprocessors that it occupies."""

    name: str
    kernel: str
    share: float = 1.0


LOADS = (
    LoadRow("FP32", "fp32"),
    LoadRow("FP32 on half of the multiprocessors", "fp32", 0.5),
    LoadRow("tensor, mma.sync", "tensor"),
    LoadRow("tensor, wgmma", "wgmma"),
    LoadRow("DRAM copy", "copy"),
)


class Load:
    """A running load; `work` has its newest report and all before it."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process, self.work = process, list[dict[str, Any]]()
        self._messages: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            if message["event"] == "work":
                self.work.append(message)
            else:
                self._messages.put(message)

    def ready(self) -> dict[str, Any]:
        """Its first message. Raises RuntimeError where it cannot run."""
        try:
            message = self._messages.get(timeout=READY_SECONDS)
        except queue.Empty:
            raise RuntimeError(f"no answer within {READY_SECONDS:.0f} s") from None
        if message["event"] != "ready":
            raise RuntimeError(str(message.get("error", message)))
        return message

    def rates(self, start: float, end: float) -> dict[str, float] | None:
        """busy (share of the time), flops and bytes a second, between two moments of time.monotonic()."""
        inside = [entry for entry in self.work if start <= entry["at"] <= end]
        if len(inside) < 2:
            return None
        first, last = inside[0], inside[-1]
        return {name: (last[name] - first[name]) / (last["at"] - first["at"]) for name in ("busy", "flops", "bytes")}


@contextlib.contextmanager
def load(kernel: str, uuid: str, seconds: float, share: float = 1.0) -> Iterator[Load]:
    """A load on one GPU for as long as the block runs, and `seconds` at most. It is never killed inside the driver."""
    command = [sys.executable, "-m", "tests.gpu.campaign.load", kernel, str(seconds), str(share)]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": uuid, "CUDA_CACHE_DISABLE": "1"}
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Load(process)
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)


def idle_gpu(readers: list[GpuReader]) -> GpuReader | None:
    """The first GPU without MIG and without processes."""
    for reader in readers:
        gpu = reader.read(time.time(), time.monotonic(), force=True)
        if not gpu.mig_enabled and not gpu.processes:
            return reader
    return None


def activity(work: Path, findings: Findings) -> None:
    """Idle, then each load; on one GPU."""
    reader = idle_gpu(open_driver())
    if reader is None:
        findings.add("a GPU to load", "one without MIG and processes", "none", "unknown")
        return
    capability = reader.identity.compute_capability or "0"
    time.sleep(SETTLE_SECONDS)
    _, samples, _ = _window(reader)
    _idle(findings, samples)
    for row in LOADS:
        low, high = KERNELS[row.kernel].capabilities
        if not low <= float(capability) <= high:
            findings.add(row.name, "", "", "unknown", f"not for compute capability {capability}")
            continue
        try:
            _loaded(findings, row, reader)
        except RuntimeError as error:
            findings.add(f"{row.name}: the load", "runs", str(error), "unknown")


def _window(reader: GpuReader) -> tuple[float, list[Gpu], float]:
    """Start, samples after the first, end: by time.monotonic()."""
    reader.read(time.time(), time.monotonic(), force=True)
    start, samples = time.monotonic(), []
    while time.monotonic() - start < WINDOW_SECONDS:
        time.sleep(SAMPLE_SECONDS)
        samples.append(reader.read(time.time(), time.monotonic(), force=True))
    return start, samples, time.monotonic()


def mean_activity(samples: list[Gpu]) -> dict[str, float]:
    """Each ratio over all windows, weighted by their lengths."""
    found = {}
    for name in ("graphics", "sm", "sm_occupancy", "integer", "tensor", "dram", "fp64", "fp32", "fp16"):
        pairs = [(getattr(gpu.activity, name), gpu.activity.window_seconds) for gpu in samples]
        known = [(value, window) for value, window in pairs if value is not None and window]
        if known:
            found[name] = sum(value * window for value, window in known) / sum(window for _, window in known)
    return found


def _idle(findings: Findings, samples: list[Gpu]) -> None:
    measured = mean_activity(samples)
    for name in ("graphics", "sm", "tensor", "dram", "fp32"):
        findings.between(f"idle: {name} active", 0, 0.02, measured.get(name))
    _power(findings, "idle", samples, 0.1)


def _loaded(findings: Findings, row: LoadRow, reader: GpuReader) -> None:
    with load(row.kernel, reader.identity.uuid, WINDOW_SECONDS * 3 + 10, row.share) as running:
        ready = running.ready()
        until = time.monotonic() + READY_SECONDS
        while len(running.work) < 3 and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(SETTLE_SECONDS)
        start, samples, end = _window(reader)
        rates = running.rates(start, end)
        if rates is None:
            raise RuntimeError("it reported no work")
        expected = expectation(row, rates, samples, ready)
        measured = mean_activity(samples)
        note = f"{rates['flops'] / 1e12:.1f} TFLOP/s, {rates['bytes'] / 1e9:.0f} GB/s, kernels run {rates['busy']:.1%}"
        for name, (low, high) in expected.items():
            findings.between(f"{row.name}: {name} active", low, high, measured.get(name), note)
            if low > 1:
                findings.add(
                    f"{row.name}: {name}, work done",
                    "at most the peak",
                    rounded(low),
                    "differs",
                    "table or clock is wrong",
                )
        refused = samples[-1].errors
        findings.add(f"{row.name}: reads that failed", "none", refused or "none", "differs" if refused else "pass")
        others = {name: round(value, 3) for name, value in measured.items() if name not in expected}
        findings.add(f"{row.name}: other activity", "", others, "unknown" if others else "pass", "not predicted")
        utilization = [gpu.utilization.gpu for gpu in samples if gpu.utilization.gpu is not None]
        findings.between(f"{row.name}: utilization", 0.95, 1, fmean(utilization) if utilization else None)
        _power(findings, row.name, samples, 0.07)
        _process(findings, row.name, running, samples[-1], ready["allocated"])


def expectation(
    row: LoadRow, rates: dict[str, float], samples: list[Gpu], ready: dict[str, Any]
) -> dict[str, tuple[float, float]]:
    """Lowest and highest activity that the work done leaves open, from the mean clocks of the window.

    mma.sync may keep Hopper's pipe busy for longer than its operations need: only its lower bound is known.
    """
    gpu = samples[0]
    clock = fmean(sample.clocks.sm or 0 for sample in samples)
    capability = gpu.identity.compute_capability or ""
    found = {"graphics": (rates["busy"] - 0.05, 1.0), "sm": _around(rates["busy"] * row.share, 0.06)}
    if row.kernel == "fp32" and clock:
        lanes = FP32_LANES.get(capability, 128)
        found["fp32"] = _around(rates["flops"] / (2 * lanes * ready["processors"] * clock), 0.08)
    if row.kernel in ("tensor", "wgmma") and clock and capability in TENSOR_FMA:
        share = rates["flops"] / (2 * TENSOR_FMA[capability] * ready["processors"] * clock)
        low, high = _around(share, 0.08)
        found["tensor"] = (low, high if row.kernel == "wgmma" else 1.0)
    memory_clock = fmean(sample.clocks.memory or 0 for sample in samples)
    if memory_clock and gpu.identity.memory_bus_width:
        peak = memory_clock * 2 * gpu.identity.memory_bus_width / 8
        found["dram"] = _around(rates["bytes"] / peak, 0.08)
    if row.kernel != "fp32":
        found["fp32"] = (0.0, 0.25)  # integer multiply-adds, as of addresses, count in the same pipe
    if row.kernel not in ("tensor", "wgmma"):
        found["tensor"] = (0.0, 0.02)
    return found


def _around(value: float, within: float) -> tuple[float, float]:
    return max(0.0, value - within), min(1.0, value + within)


def _power(findings: Findings, name: str, samples: list[Gpu], within: float) -> None:
    """The board's energy counter beside its own power readings in the same time."""
    energy = [(gpu.at, gpu.power.energy) for gpu in samples if gpu.power.energy is not None]
    power = [gpu.power.instant or gpu.power.average for gpu in samples]
    known = [watts for watts in power if watts is not None]
    if len(energy) < 2 or not known:
        findings.add(f"{name}: energy counter, W", fmean(known) if known else None, None, "unknown")
        return
    (start, first), (end, last) = energy[0], energy[-1]
    watts = fmean(known)
    findings.near(
        f"{name}: energy counter, W", watts, (last - first) / (end - start), watts * within, "mean of power readings"
    )


def _process(findings: Findings, name: str, running: Load, gpu: Gpu, allocated: int) -> None:
    pid = running.process.pid
    own = next((process for process in gpu.processes or () if process.pid == pid), None)
    pids = [process.pid for process in gpu.processes or ()]
    note = "a pid namespace shows other numbers than the driver" if pids and own is None else ""
    findings.add(f"{name}: pid of its process", pid, pids, "pass" if own else "differs" if pids else "unknown", note)
    if own is None and len(pids) == 1:
        own = (gpu.processes or ())[0]
    if own is not None:
        findings.between(f"{name}: memory of its process", allocated, allocated + CONTEXT_BYTES, own.used_memory)
        findings.add(f"{name}: utilization of its process", "", own.sm_utilization, "unknown", "not predicted")
