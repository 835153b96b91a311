"""One GPU as NVML shows it: registers its identity once, then turns every read into a `Gpu`."""

from collections.abc import Collection
from typing import Any

import msgspec

from gpuwatch.collect.nvml.fields import FIELDS, IDENTITY, STEADY_SECONDS, Tier, tiers_due
from gpuwatch.collect.nvml.instances import MigReader, VgpuReader
from gpuwatch.collect.nvml.library import Failure, Nvml, NvmlFailure, ask, ask_optional, text
from gpuwatch.collect.nvml.links import LinkReader
from gpuwatch.collect.nvml.processes import ProcessReader
from gpuwatch.collect.nvml.reads import FieldReader, GpmSampler, SampleReader, has_gpm, nest
from gpuwatch.model.decoding import prepared
from gpuwatch.model.snapshot import Activity, Gpu, Identity, Vgpu

EMPTY = msgspec.convert({"identity": {"index": 0, "uuid": "", "pci_bus_id": ""}}, prepared(Gpu))
"""msgspec learns a type when it first makes a value of it, and two threads that do this at once crash the process:
hence one value is made here, before there are threads.
"""


def register(nvml: Nvml, index: int) -> tuple[Any, Identity]:
    """The handle and identity of the GPU at an NVML index.

    Raises:
        NvmlFailure: the GPU does not answer its UUID or PCI address.
    """
    handle = ask(nvml, "nvmlDeviceGetHandleByIndex", index)
    uuid = text(ask(nvml, "nvmlDeviceGetUUID", handle)) or ""
    bus_id = text(ask(nvml, "nvmlDeviceGetPciInfo", handle).busId) or ""
    try:
        facts = FieldReader(nvml, handle, IDENTITY).read()
    except NvmlFailure as error:
        if error.kind is not Failure.LOST:
            raise
        facts = {}  # a lost GPU still has its UUID and PCI address, and is found by these
    known = {path: value for path, value in facts.items() if value is not None}
    return handle, Identity(index=index, uuid=uuid, pci_bus_id=bus_id, **known)


class GpuReader:
    """All readings of one registered GPU. Not thread-safe: each GPU has a thread of its own.

    `interval`: seconds between two reads. `calling` names the part of the read that is under way, None between reads:
    it shows where a driver hangs.
    """

    def __init__(
        self,
        nvml: Nvml,
        handle: Any,
        identity: Identity,
        *,
        interval: float = STEADY_SECONDS,
        with_gpm: bool = True,
        buffers: bool = True,
    ) -> None:
        self._nvml, self._handle, self.identity = nvml, handle, identity
        self._interval, self._options = interval, (with_gpm, buffers)
        self.calling: str | None = None
        self._count = 0
        self._mig_enabled: bool | None = None
        self._parts_built = False
        self._gpm_refused: str | None = None
        self._last_samples: dict[str, float] = {}
        self._last_vgpus: tuple[Vgpu, ...] = ()
        self._last_fans: tuple[float, ...] = ()
        self._fan_count: int | None = None

    def _build(self) -> None:
        with_gpm, buffers = self._options
        nvml, handle = self._nvml, self._handle
        if self._parts_built:
            self._mig.close()
        self._fields = FieldReader(nvml, handle, FIELDS)
        self._links = LinkReader(nvml, handle)
        self._processes = ProcessReader(nvml, handle)
        self._vgpus = VgpuReader(nvml, handle)
        self._samples = SampleReader(nvml, handle) if buffers else None
        self._gpm = GpmSampler(nvml, handle) if with_gpm and has_gpm(nvml, handle) else None
        self._gpm_refused = None
        self._mig: MigReader = MigReader(nvml, handle, self._gpm)
        self._parts_built = True

    def read(self, at: float, now: float, force: bool = False) -> Gpu:
        """One sample. `at` is its unix time, `now` monotonic seconds, `force` reads rarely-read values at once.

        Raises:
            NvmlFailure: of kind LOST or DRIVER_GONE; any other failure leaves values absent, see `Gpu.errors`.
        """
        try:
            return self._read(at, now, force)
        finally:
            self.calling = None

    def _read(self, at: float, now: float, force: bool) -> Gpu:
        self.calling = "start"
        if not self._parts_built:
            self._build()
        tiers = tiers_due(self._count, interval=self._interval, force=force)
        self._count += 1
        self.calling = "fields"
        values = dict(self._fields.read(tiers, self._links.traffic_fields()))
        errors = dict(self._fields.errors)
        # a reason that the GPU does not support is absent from the result, not off
        supported = values.pop("clock_events.supported", None)
        active = values.get("clock_events.active")
        if supported is not None and active is not None:
            values["clock_events.active"] = {reason: on for reason, on in active.items() if supported[reason]}
        # switching MIG on or off changes what the GPU offers: drop the list of what it refused
        enabled = values.get("mig_enabled")
        if self._mig_enabled is not None and enabled != self._mig_enabled:
            self._build()
            self._count = 0  # the next sample reads everything
        self._mig_enabled = enabled
        if self._samples and (Tier.STEADY in tiers or not self._last_samples):
            self.calling = "sample buffers"
            self._last_samples = self._samples.read()
        values |= self._last_samples
        self.calling = "NVLink"
        links = self._links.read(tiers, self._fields.batch)
        self.calling = "processes"
        processes = self._processes.read(now, tiers)
        errors.update(self._processes.errors)
        self.calling = "GPM"
        activity = self._activity(now, errors)
        self.calling = "MIG"
        mig = self._mig.read(now) if self._mig_enabled else ()
        self.calling = "vGPU"
        if Tier.SLOW in tiers:
            self._last_vgpus = self._vgpus.read()
        gpu = msgspec.convert({"identity": self.identity, **nest(values)}, prepared(Gpu))
        return msgspec.structs.replace(
            gpu,
            at=at,
            activity=activity,
            nvlinks=links,
            processes=processes,
            mig=mig,
            vgpus=self._last_vgpus,
            fans=self._fans(tiers),
            unsupported=tuple(self._fields.unsupported),
            why_absent=dict(self._fields.why_absent),
            errors=errors,
        )

    def _activity(self, now: float, errors: dict[str, str]) -> Activity:
        if self._gpm_refused is not None:
            errors["activity"] = self._gpm_refused
        if self._gpm is None or self._gpm_refused is not None:
            return Activity()
        try:
            return self._gpm.read(now)
        except NvmlFailure as error:
            if error.is_gone:
                raise
            if error.kind is Failure.PERMISSION:
                self._gpm_refused = str(error)
            if error.kind is not Failure.UNSUPPORTED or not self._mig_enabled:  # in MIG mode only instances have it
                errors["activity"] = str(error)
            return Activity()

    def _fans(self, tiers: Collection[Tier]) -> tuple[float, ...]:
        if Tier.SLOW not in tiers:
            return self._last_fans
        self.calling = "fans"
        if self._fan_count is None:
            self._fan_count = ask_optional(self._nvml, "nvmlDeviceGetNumFans", self._handle) or 0
        speeds = (
            ask_optional(self._nvml, "nvmlDeviceGetFanSpeed_v2", self._handle, fan) for fan in range(self._fan_count)
        )
        self._last_fans = tuple(speed / 100 for speed in speeds if speed is not None)
        return self._last_fans
