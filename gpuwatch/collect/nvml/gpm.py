"""GPM: activity ratios from pairs of hardware counter samples (Hopper and newer), whole GPUs and MIG instances."""

from typing import Any

from gpuwatch.collect.nvml.library import Nvml, ask, ask_optional
from gpuwatch.model.snapshot import Activity

METRICS = {
    "graphics": "NVML_GPM_METRIC_GRAPHICS_UTIL",
    "sm": "NVML_GPM_METRIC_SM_UTIL",
    "sm_occupancy": "NVML_GPM_METRIC_SM_OCCUPANCY",
    "integer": "NVML_GPM_METRIC_INTEGER_UTIL",
    "tensor": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "dram": "NVML_GPM_METRIC_DRAM_BW_UTIL",
    "fp64": "NVML_GPM_METRIC_FP64_UTIL",
    "fp32": "NVML_GPM_METRIC_FP32_UTIL",
    "fp16": "NVML_GPM_METRIC_FP16_UTIL",
}
"""Members of `Activity` -> GPM metric, all percentages."""

MIN_WINDOW = 0.1
"""Seconds: NVIDIA asks for at least 100 ms between the two samples of a pair."""


def supported(nvml: Nvml, handle: Any) -> bool:
    """Whether the GPU has GPM (nvmlGpmQueryDeviceSupport); False also on drivers without the call."""
    answer = ask_optional(nvml, "nvmlGpmQueryDeviceSupport", handle)
    return answer is not None and bool(answer.isSupportedDevice)


class GpmSampler:
    """The two newest counter samples of one GPU (`gi` None) or of one of its GPU instances."""

    def __init__(self, nvml: Nvml, handle: Any, gi: int | None = None) -> None:
        self._nvml, self._handle, self._gi = nvml, handle, gi
        self._older, self._newer = ask(nvml, "nvmlGpmSampleAlloc"), ask(nvml, "nvmlGpmSampleAlloc")
        self._taken: float | None = None
        self._last = Activity()

    def read(self, now: float) -> Activity:
        """Activity since the previous read; empty at the first one, and the same again within MIN_WINDOW.

        Raises:
            NvmlFailure: the sample was refused, for example for lack of permission.
        """
        if self._taken is not None and now - self._taken < MIN_WINDOW:
            return self._last
        if self._gi is None:
            ask(self._nvml, "nvmlGpmSampleGet", self._handle, self._newer)
        else:
            ask(self._nvml, "nvmlGpmMigSampleGet", self._handle, self._gi, self._newer)
        before, self._last = self._taken, Activity()
        # kept also when the comparison below fails: of an instance made anew only the next pair has two samples
        self._older, self._newer, self._taken = self._newer, self._older, now
        if before is not None:
            self._last = self._activity(now - before)
        return self._last

    def _activity(self, window: float) -> Activity:
        """From the newest sample, which `read` has just made the older one, and the one before."""
        request = self._nvml.c_nvmlGpmMetricsGet_t()
        request.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(METRICS)
        request.sample1, request.sample2 = self._newer, self._older
        for slot, constant in enumerate(METRICS.values()):
            request.metrics[slot].metricId = getattr(self._nvml, constant)
        answer = ask(self._nvml, "nvmlGpmMetricsGet", request)
        ratios = {
            name: answer.metrics[slot].value / 100
            for slot, name in enumerate(METRICS)
            # a metric without data comes back as NaN, which compares unequal to itself
            if not answer.metrics[slot].nvmlReturn and answer.metrics[slot].value == answer.metrics[slot].value
        }
        return Activity(**ratios, window_seconds=window)

    def close(self) -> None:
        """Give both samples back to the library."""
        for sample in (self._older, self._newer):
            ask(self._nvml, "nvmlGpmSampleFree", sample)
