"""GPM: samples are the counters at one moment, metrics the means between two."""

import math
from types import SimpleNamespace

import pynvml

from gpuwatch.sim.node.gpu import Unit
from gpuwatch.sim.nvml.driver import Answer, Handle, ResolvedDevice, SimDriver, answers, refuse, struct

BUSY, SM, TENSOR, DRAM, PIPES = range(5)
SHARES = {
    pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: (BUSY, 1.0),
    pynvml.NVML_GPM_METRIC_SM_UTIL: (SM, 1.0),
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: (SM, 0.45),
    pynvml.NVML_GPM_METRIC_INTEGER_UTIL: (PIPES, 0.12),
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: (TENSOR, 1.0),
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: (DRAM, 1.0),
    pynvml.NVML_GPM_METRIC_FP64_UTIL: (PIPES, 0.0),
    pynvml.NVML_GPM_METRIC_FP32_UTIL: (PIPES, 0.18),
    pynvml.NVML_GPM_METRIC_FP16_UTIL: (PIPES, 0.05),
}
"""Metric -> integral of a unit, and its share of it."""

SLOTS = 64


class GpmSample:
    """One allocated sample."""

    def __init__(self) -> None:
        self.t: float | None = None
        self.totals = [0.0] * 5


class MetricsGet:
    """Stands in for c_nvmlGpmMetricsGet_t, whose sample pointers only the real library can fill."""

    def __init__(self) -> None:
        self.version = self.numMetrics = 0
        self.sample1: GpmSample | None = None
        self.sample2: GpmSample | None = None
        self.metrics = [struct(metricId=0, nvmlReturn=0, value=0.0) for _ in range(SLOTS)]


GPM: dict[str, Answer] = {
    "nvmlGpmSampleAlloc": lambda nvml: GpmSample(),
    "nvmlGpmSampleFree": lambda nvml, sample: None,
}
"""Function -> answer, with the whole driver first, as samples belong to no device; the decorators below add theirs."""


@answers(GPM, "nvmlGpmQueryDeviceSupport")
def _support(nvml: SimDriver, handle: Handle) -> SimpleNamespace:
    with nvml.lock:
        device = nvml.device(handle, "nvmlGpmQueryDeviceSupport")
        return struct(version=1, isSupportedDevice=int(device.gpu.model.gpm))


@answers(GPM, "nvmlGpmSampleGet")
def _sample(nvml: SimDriver, handle: Handle, sample: GpmSample) -> GpmSample:
    with nvml.lock:
        device = nvml.device(handle, "nvmlGpmSampleGet")
        if not device.gpu.model.gpm:
            refuse()
        # a GPU's own counters, or in MIG mode those of its instances by their share of it
        whole = [(unit, unit.share) for unit in device.gpu.units]
        return _fill(device, sample, whole if device.unit is None else [(device.unit, 1.0)])


@answers(GPM, "nvmlGpmMigSampleGet")
def _mig_sample(nvml: SimDriver, handle: Handle, gi: int, sample: GpmSample) -> GpmSample:
    with nvml.lock:
        device = nvml.device(handle, "nvmlGpmMigSampleGet")
        units = [(unit, 1.0) for unit in device.gpu.units if unit.profile is not None and unit.gi == gi]
        if not device.gpu.model.gpm or not units:
            refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT if device.gpu.model.gpm else pynvml.NVML_ERROR_NOT_SUPPORTED)
        return _fill(device, sample, units)


def _fill(device: ResolvedDevice, sample: GpmSample, units: list[tuple[Unit, float]]) -> GpmSample:
    since = max(0.0, device.t - device.physics.time)
    sample.t, sample.totals = device.t, [0.0] * len(sample.totals)
    for unit, share in units:
        load = unit.load
        rates = (load.busy, load.sm, load.tensor, load.dram, load.sm * device.physics.strain)
        for slot, rate in enumerate(rates):
            sample.totals[slot] += share * (unit.totals[slot] + rate * since)
    return sample


@answers(GPM, "nvmlGpmMetricsGet")
def _metrics(nvml: SimDriver, request: MetricsGet) -> MetricsGet:
    first, second = request.sample1, request.sample2
    if first is None or second is None or first.t is None or second.t is None:
        return refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    window = second.t - first.t
    for metric in request.metrics[: request.numMetrics]:
        source, share = SHARES.get(metric.metricId, (None, 0.0))
        if source is None or window <= 0:
            metric.nvmlReturn, metric.value = pynvml.NVML_ERROR_NOT_SUPPORTED, math.nan
            continue
        mean = (second.totals[source] - first.totals[source]) / window
        metric.nvmlReturn, metric.value = 0, 100 * share * min(1.0, max(0.0, mean))
    return request
