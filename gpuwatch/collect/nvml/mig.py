"""MIG: which instances a GPU is cut into, what each holds and does."""

from typing import Any

from gpuwatch.collect.nvml import gpm
from gpuwatch.collect.nvml.library import Failure, Nvml, NvmlFailure, ask, text
from gpuwatch.model.snapshot import Activity, Memory, MigInstance

GIB = 1 << 30


class MigReader:
    """The MIG devices of one GPU. Handles are looked up anew when the set of instances changes."""

    def __init__(self, nvml: Nvml, handle: Any, with_gpm: bool) -> None:
        self._nvml, self._handle, self._with_gpm = nvml, handle, with_gpm
        self._pairs: dict[int, gpm.Pair] = {}
        self._activities: dict[int, Activity] = {}  # of this read: compute instances share their GPU instance's

    def read(self, now: float) -> tuple[MigInstance, ...]:
        """Every MIG device that answers, in NVML's order."""
        instances = []
        self._activities = {}
        for index in range(self._count()):
            try:
                mig = ask(self._nvml, "nvmlDeviceGetMigDeviceHandleByIndex", self._handle, index)
                instances.append(self._instance(mig, index, now))
            except NvmlFailure as error:
                if error.kind in (Failure.LOST, Failure.DRIVER_GONE):
                    raise
        self._drop_pairs_except({instance.gi for instance in instances})
        return tuple(instances)

    def _count(self) -> int:
        try:
            return int(ask(self._nvml, "nvmlDeviceGetMaxMigDeviceCount", self._handle))
        except NvmlFailure as error:
            if error.kind in (Failure.LOST, Failure.DRIVER_GONE):
                raise
            return 0

    def _instance(self, mig: Any, index: int, now: float) -> MigInstance:
        gi = int(ask(self._nvml, "nvmlDeviceGetGpuInstanceId", mig))
        if gi not in self._activities:
            self._activities[gi] = self._activity(gi, now)
        attributes = self._maybe("nvmlDeviceGetAttributes_v2", mig)
        bar1 = self._maybe("nvmlDeviceGetBAR1MemoryInfo", mig)
        return MigInstance(
            index=index,
            uuid=text(ask(self._nvml, "nvmlDeviceGetUUID", mig)) or "",
            gi=gi,
            ci=int(ask(self._nvml, "nvmlDeviceGetComputeInstanceId", mig)),
            profile=self._profile(mig, attributes),
            memory=self._memory(mig),
            bar1=Memory(total=bar1.bar1Total, used=bar1.bar1Used, free=bar1.bar1Free) if bar1 else Memory(),
            activity=self._activities[gi],
            multiprocessors=attributes.multiprocessorCount if attributes else None,
            ecc_sram_uncorrected=self._ecc(mig),
        )

    def _maybe(self, name: str, *args: Any) -> Any | None:
        try:
            return ask(self._nvml, name, *args)
        except NvmlFailure as error:
            if error.kind in (Failure.LOST, Failure.DRIVER_GONE):
                raise
            return None

    def _memory(self, mig: Any) -> Memory:
        info = self._maybe("nvmlDeviceGetMemoryInfo", mig, self._nvml.nvmlMemory_v2)
        if info is not None:
            return Memory(total=info.total, used=info.used, free=info.free, reserved=info.reserved)
        info = self._maybe("nvmlDeviceGetMemoryInfo", mig)
        return Memory(total=info.total, used=info.used, free=info.free) if info is not None else Memory()

    def _ecc(self, mig: Any) -> int | None:
        nvml = self._nvml
        return self._maybe(
            "nvmlDeviceGetMemoryErrorCounter",
            mig,
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_VOLATILE_ECC,
            nvml.NVML_MEMORY_LOCATION_SRAM,
        )

    def _profile(self, mig: Any, attributes: Any | None) -> str | None:
        """`1g.10gb` as the driver names the device; without a name, from slices and memory size."""
        name = text(self._maybe("nvmlDeviceGetName", mig) or "") or ""
        if " MIG " in name:
            return name.rsplit(" MIG ", 1)[1]
        if attributes is None or not attributes.gpuInstanceSliceCount:
            return None
        size = round(attributes.memorySizeMB * (1 << 20) / GIB)
        compute, whole = attributes.computeInstanceSliceCount, attributes.gpuInstanceSliceCount
        return f"{whole}g.{size}gb" if compute in (0, whole) else f"{compute}c.{whole}g.{size}gb"

    def _activity(self, gi: int, now: float) -> Activity:
        if not self._with_gpm:
            return Activity()
        try:
            if gi not in self._pairs:
                self._pairs[gi] = gpm.Pair(self._nvml, self._handle, gi)
            return self._pairs[gi].read(now)
        except NvmlFailure as error:
            if error.kind in (Failure.LOST, Failure.DRIVER_GONE):
                raise
            return Activity()

    def _drop_pairs_except(self, live: set[int]) -> None:
        for gi in set(self._pairs) - live:
            self._pairs.pop(gi).close()
