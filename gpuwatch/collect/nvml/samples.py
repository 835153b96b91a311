"""The driver's own sample buffers: mean and maximum between two looks, so that a short peak is not missed."""

from typing import Any

from gpuwatch.collect.nvml.library import Failure, Nvml, NvmlFailure, ask
from gpuwatch.collect.nvml.reads import VALUE_MEMBERS

BUFFERS = {
    "power": ("NVML_TOTAL_POWER_SAMPLES", 1e-3, ("power.mean", "power.max")),
    "utilization": ("NVML_GPU_UTILIZATION_SAMPLES", 1e-2, ("utilization.gpu_mean", "utilization.gpu_max")),
}
"""Buffer -> sampling type, scale, paths of (mean, maximum)."""


class SampleReader:
    """Reads each buffer from the newest sample seen so far; the first read only finds out where that is."""

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._buffers = dict(BUFFERS)
        self._last_seen: dict[str, int] = {}

    def read(self) -> dict[str, float]:
        """Values by FIELDS path; a path is missing when no sample came since the previous read."""
        values: dict[str, float] = {}
        for name, (constant, scale, paths) in list(self._buffers.items()):
            try:
                kind, samples = ask(
                    self._nvml,
                    "nvmlDeviceGetSamples",
                    self._handle,
                    getattr(self._nvml, constant),
                    self._last_seen.get(name, 0),
                )
            except NvmlFailure as error:
                if error.kind in (Failure.LOST, Failure.DRIVER_GONE):
                    raise
                if error.kind in (Failure.UNSUPPORTED, Failure.PERMISSION):
                    del self._buffers[name]
                continue
            seen = self._last_seen.get(name)
            fresh = [
                getattr(s.sampleValue, VALUE_MEMBERS[kind]) * scale
                for s in samples
                if seen is None or s.timeStamp > seen
            ]
            if samples:
                self._last_seen[name] = max(int(s.timeStamp) for s in samples)
            if fresh and seen is not None:
                values.update(zip(paths, (sum(fresh) / len(fresh), max(fresh)), strict=True))
        return values
