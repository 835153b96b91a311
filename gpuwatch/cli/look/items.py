"""The nouns that `get` and `status` print: one struct per resource, in base units. Frozen like an API.

They are made from the View, but are types of their own: a View may change with its schema, these only get new members.
"""

from datetime import datetime
from typing import Any, TypeVar

import msgspec

from gpuwatch.cli.console.words import utc
from gpuwatch.model.finding import Health, Remedy, Severity
from gpuwatch.model.snapshot import (
    Activity,
    ClockEvents,
    Clocks,
    Ecc,
    Fabric,
    GpuState,
    Memory,
    Pcie,
    Power,
    RetiredPages,
    RowRemap,
    Temperature,
    Utilization,
)
from gpuwatch.model.workload import Container, Holder, Workload
from gpuwatch.tuning.model.setting import Knob, Setting


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all items."""


AnyItem = TypeVar("AnyItem", bound=Item)


def same_members(kind: type[AnyItem], source: object, /, **others: Any) -> AnyItem:
    """An item with `others`, and with what `source` has under the names of the item's remaining members."""
    names = (name for name in kind.__struct_fields__ if name not in others and hasattr(source, name))
    return kind(**others, **{name: getattr(source, name) for name in names})


class XidItem(Item, frozen=True, kw_only=True):
    """How often a GPU raised an XID. `mnemonic` and the rest are the catalogue's, null for an unknown code."""

    gpu: int | None
    uuid: str | None
    pci_bus_id: str | None
    xid: int
    count: int
    last: datetime | None
    mnemonic: str | None = None
    description: str | None = None
    severity: str | None = None
    category: str | None = None
    action: str | None = None


class GpuItem(Item, frozen=True, kw_only=True):
    """One GPU, fresh or not; one that is not fresh has no measured values."""

    index: int
    uuid: str
    pci_bus_id: str
    name: str | None
    serial: str | None
    architecture: str | None
    health: Health
    state: GpuState
    detail: str | None
    since: datetime | None
    at: datetime | None = None
    utilization: Utilization = Utilization()
    activity: Activity = Activity()
    memory: Memory = Memory()
    bar1: Memory = Memory()
    power: Power = Power()
    temperature: Temperature = Temperature()
    clocks: Clocks = Clocks()
    clock_events: ClockEvents = ClockEvents()
    performance_state: int | None = None
    fans: tuple[float, ...] = ()
    pcie: Pcie = Pcie()
    ecc: Ecc = Ecc()
    row_remap: RowRemap = RowRemap()
    retired_pages: RetiredPages = RetiredPages()
    recovery_action: int | None = None
    fabric: Fabric = Fabric()
    persistence_mode: bool | None = None
    compute_mode: str | None = None
    mig_enabled: bool | None = None
    mig_instances: int = 0
    processes: int | None = None
    allocated: bool | None = None
    users: tuple[str, ...] = ()
    holders: tuple[Holder, ...] = ()
    last_xid: XidItem | None = None


class ProcessItem(Item, frozen=True, kw_only=True):
    """One process on one GPU or MIG instance."""

    gpu: int
    uuid: str
    gi: int | None
    ci: int | None
    pid: int
    type: str
    name: str | None
    memory: int | None
    utilization: float | None
    user: str | None
    workload: Workload | None
    slurm_job: str | None
    container: Container | None


class PodItem(Item, frozen=True, kw_only=True):
    """One container on one GPU or MIG instance: what it was given and what it does."""

    namespace: str | None
    pod: str | None
    container: str | None
    pod_uid: str | None
    gpu: int | None
    uuid: str
    gi: int | None
    profile: str | None
    resource: str | None
    replicas: int | None
    processes: int
    memory: int | None
    utilization: float | None
    energy: float | None


class MigItem(Item, frozen=True, kw_only=True):
    """One MIG device."""

    gpu: int
    index: int
    uuid: str
    gi: int
    ci: int
    profile: str | None
    memory: Memory
    activity: Activity
    multiprocessors: int | None
    allocated: bool | None
    users: tuple[str, ...]


class NvLinkItem(Item, frozen=True, kw_only=True):
    """One NVLink of one GPU; byte counters grow since the driver was loaded."""

    gpu: int
    uuid: str
    link: int
    active: bool | None
    version: str | None
    speed_bytes_per_second: float | None
    transmit_bytes: int | None
    receive_bytes: int | None
    errors: dict[str, int]
    remote_pci: str | None
    remote_type: str | None
    effective_ber: float | None
    symbol_ber: float | None
    fec_history: dict[str, int]


class FindingItem(Item, frozen=True, kw_only=True):
    """One judged fact. `gpu` null: about the node. `pods` had the GPU: possibly affected, not the cause. `caused_by`:
    the `key` of the finding that explains this one; null: it stands for itself.
    """

    key: str
    caused_by: str | None
    gpu: int | None
    uuid: str | None
    check: str
    severity: Severity
    since: datetime | None
    message: str
    action: str
    gi: int | None = None
    xid: int | None = None
    last: datetime | None = None
    count: int = 1
    remedy: Remedy = Remedy.NONE
    evidence: dict[str, str] = {}
    pods: tuple[Workload, ...] = ()


class SettingItem(Item, frozen=True, kw_only=True):
    """A setting that gpuwatch has changed: watts or hertz. `original` null: the clocks were not locked."""

    knob: Knob
    original: float | None
    applied: float
    at: datetime


def setting_items(settings: tuple[Setting, ...], uuid: str) -> tuple[SettingItem, ...]:
    """Those of one GPU."""
    return tuple(
        same_members(SettingItem, each, applied=each.applied[0], at=utc(each.at))
        for each in settings
        if each.uuid == uuid
    )
