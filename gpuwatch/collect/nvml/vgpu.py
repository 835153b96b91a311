"""vGPUs that run on a host GPU (SR-IOV or mediated devices under a hypervisor)."""

from typing import Any

from gpuwatch.collect.nvml.library import Failure, Nvml, NvmlFailure, ask, text
from gpuwatch.model.snapshot import Vgpu


class VgpuReader:
    """The active vGPUs of one GPU; asks no more once the GPU said it hosts none."""

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._supported = True
        self._last_seen = 0

    def read(self) -> tuple[Vgpu, ...]:
        """One record per active vGPU instance."""
        instances = self._maybe("nvmlDeviceGetActiveVgpus", self._handle) if self._supported else None
        if not instances:
            self._supported = self._supported and instances is not None
            return ()
        busy = self._utilization()
        return tuple(self._vgpu(int(instance), busy.get(int(instance))) for instance in instances)

    def _vgpu(self, instance: int, utilization: float | None) -> Vgpu:
        vm = self._maybe("nvmlVgpuInstanceGetVmID", instance)
        type_id = self._maybe("nvmlVgpuInstanceGetType", instance)
        name = self._maybe("nvmlVgpuTypeGetName", type_id) if type_id is not None else None
        license_info = self._maybe("nvmlVgpuInstanceGetLicenseInfo_v2", instance)
        return Vgpu(
            uuid=text(self._maybe("nvmlVgpuInstanceGetUUID", instance) or "") or str(instance),
            instance=instance,
            type=text(name) if name is not None else None,
            vm=text(vm[0]) if vm else None,
            used_memory=self._maybe("nvmlVgpuInstanceGetFbUsage", instance),
            utilization=utilization,
            licensed=bool(license_info.isLicensed) if license_info is not None else None,
        )

    def _utilization(self) -> dict[int, float]:
        samples = self._maybe("nvmlDeviceGetVgpuUtilization", self._handle, self._last_seen) or []
        for sample in samples:
            self._last_seen = max(self._last_seen, int(sample.timeStamp))
        return {int(sample.vgpuInstance): sample.smUtil.uiVal / 100 for sample in samples}

    def _maybe(self, name: str, *args: Any) -> Any | None:
        try:
            return ask(self._nvml, name, *args)
        except NvmlFailure as error:
            if error.kind in (Failure.LOST, Failure.DRIVER_GONE):
                raise
            return None
