"""Faults as NVML and the kernel log report them: XIDs, SXids of NVSwitches, a GPU lost from the bus.

A `KernelLine` is the content of one line of text; an event is an occurrence on this node, with time and origin.
"""

from typing import Literal

import msgspec

from gpuwatch.model.snapshot import Record

LineKind = Literal["xid", "sxid", "sxid_detail", "bus_loss", "gpu_uuid", "gpu_serial", "other"]
XidSource = Literal["nvml", "kernel"]


class NvLinkError(msgspec.Struct, frozen=True, kw_only=True):
    """The body of XIDs 144-150 (NVLink 5): `UNIT Fatal|Nonfatal XC0 i0 Link 01 (6 words)`."""

    unit: str
    severity: Literal["fatal", "nonfatal"]
    link: int | None = None
    """None where the driver writes -1: not about one link."""
    xc: int = 0
    injected: bool = False
    words: tuple[int, ...] = ()
    """The first is NVIDIA's `intrInfo`, the second its `errorStatus`; empty when the line was cut."""


class KernelLine(msgspec.Struct, frozen=True, kw_only=True):
    """One parsed kernel log line. Absent is None. The JSON of `gpuwatch xid parse`."""

    kind: LineKind
    pci: str | None = None
    """As exact as the line: `0000:3b:00` on Xid lines, `0000:3b:00.0` where the function is given."""
    xid: int | None = None
    sxid: int | None = None
    pid: int | None = None
    name: str | None = None
    """Owner of the channel or of the call, 15 characters of it. It may not be the cause."""
    gi: int | None = None
    ci: int | None = None
    message: str | None = None
    recovery: int | None = None
    """XID 154: the recovery action the GPU now asks for (NVML_GPU_RECOVERY_ACTION_*); 0 = recovered."""
    recovery_previous: int | None = None
    nvlink: NvLinkError | None = None
    caused_by: int | None = None
    uuid: str | None = None
    serial: str | None = None
    switch: int | None = None
    severity: str | None = None
    """SXid: `fatal`, `non-fatal`, `correctable`."""
    link: int | None = None
    """SXid: the NVLink that the switch names."""
    forgeable: bool = False
    """Whether the log's form leaves open where a record begins: then text that a program put into the kernel log, such
    as its own name with a newline in it, can look like this line.
    """


class KernelEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line of this node's kernel log about a GPU or an NVSwitch."""

    at: float
    """Unix seconds, from the record's own monotonic time."""
    line: KernelLine
    boot_id: str | None = None
    uptime: float | None = None
    """Seconds since that boot, which do not jump; None where the boot is unknown."""
    sequence: int | None = None
    """The record's number, unique within one boot; None where the kernel gives no numbers (klogctl)."""
    historical: bool = False
    """Written before the agent started."""


class KernelCursor(msgspec.Struct, frozen=True, kw_only=True):
    """How far one boot's kernel log has been reported; what comes behind it is new to gpuwatch."""

    boot_id: str
    mode: Literal["kmsg", "klogctl"]
    position: int | None = None
    """Number of the last record, or its microseconds since boot (klogctl); None: the log was empty."""


class XidEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One XID of one GPU."""

    at: float
    """Unix seconds."""
    xid: int
    source: XidSource
    """The source that reported first."""
    also: XidSource | None = None
    """The other source, once it has reported the same occurrence."""
    pci: str | None = None
    """Match key, `0000:3b:00`."""
    uuid: str | None = None
    gi: int | None = None
    ci: int | None = None
    pid: int | None = None
    name: str | None = None
    message: str | None = None
    recovery: int | None = None
    nvlink: NvLinkError | None = None
    caused_by: int | None = None
    boot_id: str | None = None
    uptime: float | None = None
    """Seconds since that boot, which do not jump; None where the boot is unknown."""
    sequence: int | None = None
    historical: bool = False

    @property
    def sources(self) -> tuple[XidSource, ...]:
        """The sources that have reported this occurrence so far, the first one first."""
        return (self.source,) if self.also is None else (self.source, self.also)


class SxidEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One SXid of one NVSwitch (systems up to Hopper)."""

    at: float
    sxid: int
    switch: int
    """N of `nvidia-nvswitchN`."""
    pci: str | None = None
    severity: str
    link: int | None = None
    message: str | None = None
    boot_id: str | None = None
    sequence: int | None = None
    historical: bool = False


class BusLossEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU fell off the PCIe bus; with or without an XID 79 beside it."""

    at: float
    pci: str
    """Match key, `0000:3b:00`."""
    uuid: str | None = None
    message: str | None = None
    boot_id: str | None = None
    sequence: int | None = None
    historical: bool = False


class XidCount(msgspec.Struct, frozen=True, kw_only=True):
    """How often one GPU raised one XID since the agent started."""

    uuid: str | None
    """None until the GPU behind `pci` is known."""
    pci: str | None
    xid: int
    count: int = 0
    last: float | None = None
    """Unix seconds of the latest occurrence, historical ones included; None: there was none."""


class SxidCount(msgspec.Struct, frozen=True, kw_only=True):
    """How often one NVSwitch raised one SXid since the agent started."""

    switch: int
    sxid: int
    severity: str
    count: int = 0
    last: float | None = None


class DriverEvent(Record, frozen=True, kw_only=True):
    """One NVML event. `kind` is a key of `collect.nvml.events.EVENT_TYPES` or the type in hex; `data` is the XID for
    `xid` and the new action for `recovery_action`; `at` unix seconds of its arrival.
    """

    kind: str
    at: float
    data: int = 0
    uuid: str | None = None
    pci_bus_id: str | None = None
    gi: int | None = None
    ci: int | None = None
