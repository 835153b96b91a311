"""What the driver's event set tells, as it travels from the reader to the agent."""

from gpuwatch.model.snapshot import Record


class DriverEvent(Record, frozen=True, kw_only=True):
    """One NVML event. `kind` is a key of `sources.nvml_events.EVENT_TYPES` or the type in hex; `data` is the XID for
    `xid` and the new action for `recovery_action`; `at` unix seconds of its arrival.
    """

    kind: str
    at: float
    data: int = 0
    uuid: str | None = None
    pci_bus_id: str | None = None
    gi: int | None = None
    ci: int | None = None
