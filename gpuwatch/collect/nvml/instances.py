"""What a GPU is divided into: MIG instances, and the vGPUs of a hypervisor's host (SR-IOV or mediated devices)."""

import contextlib
from typing import Any

from gpuwatch.collect.nvml.library import Nvml, NvmlFailure, ask, ask_optional, text
from gpuwatch.collect.nvml.reads import GpmSampler
from gpuwatch.model.snapshot import Activity, Memory, MigInstance, Vgpu

GIB = 1 << 30


class MigReader:
    """The MIG devices of one GPU. Handles are looked up at every read, as the set of instances may change."""

    def __init__(self, nvml: Nvml, handle: Any, gpm: GpmSampler | None) -> None:
        self._nvml, self._handle, self._gpm = nvml, handle, gpm
        self._samplers: dict[int, GpmSampler] = {}
        self._starts: dict[str, int | None] = {}  # by uuid: it is the same for the life of an instance
        self._activities: dict[int, Activity] = {}  # of this read: compute instances share their GPU instance's

    def read(self, now: float) -> tuple[MigInstance, ...]:
        """Every MIG device that answers, in NVML's order."""
        instances = []
        self._activities = {}
        for index in range(int(ask_optional(self._nvml, "nvmlDeviceGetMaxMigDeviceCount", self._handle) or 0)):
            try:
                mig = ask(self._nvml, "nvmlDeviceGetMigDeviceHandleByIndex", self._handle, index)
                instances.append(self._instance(mig, index, now))
            except NvmlFailure as error:
                if error.is_gone:
                    raise
        for gi in set(self._samplers) - {instance.gi for instance in instances}:
            self._samplers.pop(gi).close()
        self._starts = {each.uuid: each.start for each in instances}
        return tuple(instances)

    def close(self) -> None:
        """Free the samples of the GPU and of its instances. What the driver refuses to free is left to it."""
        for sampler in (*self._samplers.values(), *([self._gpm] if self._gpm else [])):
            with contextlib.suppress(NvmlFailure):
                sampler.close()

    def _instance(self, mig: Any, index: int, now: float) -> MigInstance:
        gi = int(ask(self._nvml, "nvmlDeviceGetGpuInstanceId", mig))
        if gi not in self._activities:
            self._activities[gi] = self._activity(gi, now)
        attributes = ask_optional(self._nvml, "nvmlDeviceGetAttributes_v2", mig)
        bar1 = ask_optional(self._nvml, "nvmlDeviceGetBAR1MemoryInfo", mig)
        memory = Memory()
        if (info := ask_optional(self._nvml, "nvmlDeviceGetMemoryInfo", mig, self._nvml.nvmlMemory_v2)) is not None:
            memory = Memory(total=info.total, used=info.used, free=info.free, reserved=info.reserved)
        elif (info := ask_optional(self._nvml, "nvmlDeviceGetMemoryInfo", mig)) is not None:
            memory = Memory(total=info.total, used=info.used, free=info.free)
        nvml = self._nvml
        uuid = text(ask(nvml, "nvmlDeviceGetUUID", mig)) or ""
        if uuid in self._starts:
            start = self._starts[uuid]
        else:
            instance = ask_optional(nvml, "nvmlDeviceGetGpuInstanceById", self._handle, gi)
            placed = ask_optional(nvml, "nvmlGpuInstanceGetInfo", instance) if instance is not None else None
            start = int(placed.placement.start) if placed is not None else None
        return MigInstance(
            index=index,
            uuid=uuid,
            gi=gi,
            start=start,
            ci=int(ask(self._nvml, "nvmlDeviceGetComputeInstanceId", mig)),
            profile=self._profile(mig, attributes),
            memory=memory,
            bar1=Memory(total=bar1.bar1Total, used=bar1.bar1Used, free=bar1.bar1Free) if bar1 else Memory(),
            activity=self._activities[gi],
            multiprocessors=attributes.multiprocessorCount if attributes else None,
            ecc_sram_uncorrected=ask_optional(
                nvml,
                "nvmlDeviceGetMemoryErrorCounter",
                mig,
                nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                nvml.NVML_VOLATILE_ECC,
                nvml.NVML_MEMORY_LOCATION_SRAM,
            ),
        )

    def _profile(self, mig: Any, attributes: Any | None) -> str | None:
        """`1g.10gb` as the driver names the device; without a name, from slices and memory size."""
        name = text(ask_optional(self._nvml, "nvmlDeviceGetName", mig) or "") or ""
        if " MIG " in name:
            return name.rsplit(" MIG ", 1)[1]
        if attributes is None or not attributes.gpuInstanceSliceCount:
            return None
        size = round(attributes.memorySizeMB * (1 << 20) / GIB)
        compute, whole = attributes.computeInstanceSliceCount, attributes.gpuInstanceSliceCount
        return f"{whole}g.{size}gb" if compute in (0, whole) else f"{compute}c.{whole}g.{size}gb"

    def _activity(self, gi: int, now: float) -> Activity:
        if self._gpm is None:
            return Activity()
        try:
            if gi not in self._samplers:
                self._samplers[gi] = self._gpm.of_instance(gi)
            return self._samplers[gi].read(now)
        except NvmlFailure as error:
            if error.is_gone:
                raise
            return Activity()


class VgpuReader:
    """The active vGPUs of one GPU; asks no more once the GPU has answered that it hosts none."""

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._supported = True
        self._last_seen = 0

    def read(self) -> tuple[Vgpu, ...]:
        """One record per active vGPU instance."""
        instances = ask_optional(self._nvml, "nvmlDeviceGetActiveVgpus", self._handle) if self._supported else None
        if not instances:
            self._supported = self._supported and instances is not None
            return ()
        samples = ask_optional(self._nvml, "nvmlDeviceGetVgpuUtilization", self._handle, self._last_seen) or []
        for sample in samples:
            self._last_seen = max(self._last_seen, int(sample.timeStamp))
        busy = {int(sample.vgpuInstance): sample.smUtil.uiVal / 100 for sample in samples}
        found = []
        for instance in map(int, instances):
            vm = ask_optional(self._nvml, "nvmlVgpuInstanceGetVmID", instance)
            type_id = ask_optional(self._nvml, "nvmlVgpuInstanceGetType", instance)
            name = ask_optional(self._nvml, "nvmlVgpuTypeGetName", type_id) if type_id is not None else None
            license_info = ask_optional(self._nvml, "nvmlVgpuInstanceGetLicenseInfo_v2", instance)
            vgpu = Vgpu(
                uuid=text(ask_optional(self._nvml, "nvmlVgpuInstanceGetUUID", instance) or "") or str(instance),
                instance=instance,
                type=text(name) if name is not None else None,
                vm=text(vm[0]) if vm else None,
                used_memory=ask_optional(self._nvml, "nvmlVgpuInstanceGetFbUsage", instance),
                utilization=busy.get(instance),
                licensed=bool(license_info.isLicensed) if license_info is not None else None,
            )
            found.append(vgpu)
        return tuple(found)
