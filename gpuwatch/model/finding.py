"""Findings about a GPU or the node, the health they add up to, the checks that make them, and responses to them."""

from enum import StrEnum
from typing import Literal, get_args

from gpuwatch.model.snapshot import Record
from gpuwatch.model.workload import Workload

CheckName = Literal[
    "recovery_action", "recovery_advised", "gpu_lost", "gpu_unresponsive", "gpu_missing", "driver_wedged",
    "gpu_not_allocatable", "driver_slow",
    "xid_fatal", "xid_contained", "xid_warning", "xid_application", "xid_application_repeated", "xid_unknown",
    "xid_unconfirmed", "sxid_fatal", "sxid_warning", "sxid_unconfirmed",
    "row_remap_failure", "row_remap_pending", "memory_unrepairable", "repair_pending",
    "ecc_uncorrected", "ecc_sram_threshold", "ecc_correctable_rate", "retired_pages_pending", "retired_pages_limit",
    "hw_thermal_slowdown", "hw_power_brake", "thermal_margin", "clocks_stuck",
    "nvlink_down", "nvlink_errors", "pcie_degraded", "fabric_state",
    "inforom", "mig_pending", "zombie_memory", "monitoring_degraded",
]  # fmt: skip

CHECK_NAMES: tuple[str, ...] = get_args(CheckName)
"""Values of taints, labels of metrics and keys of the configuration: they never change."""

UnconfirmedCheck = Literal["xid_unconfirmed", "sxid_unconfirmed"]
UNCONFIRMED_CHECKS: tuple[str, ...] = get_args(UnconfirmedCheck)
"""Checks of findings that only the kernel log reports. gpuwatch never acts on a node because of one."""

XidClass = Literal["fatal", "contained", "warning", "application", "ignore"]
"""What an XID means, in this order: the GPU is out of order; it needs a reset when its work is done; an operator
should know of the XID; the application is the cause; nothing."""


class Severity(StrEnum):
    """How bad a finding is; `critical` means the GPU or node cannot do its work."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Health(StrEnum):
    """`unknown` is a state of its own: a GPU that cannot be read counts neither as healthy nor as sick."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Remedy(StrEnum):
    """The remedies, mildest first; a fault that returns after one of them needs the next."""

    NONE = "none"
    RESTART_APP = "restart_app"
    RESET_GPU = "reset_gpu"
    REBOOT_NODE = "reboot_node"
    INSPECT = "inspect"
    CONTACT_SUPPORT = "contact_support"


class Finding(Record, frozen=True, kw_only=True):
    """One judged fact about a GPU (`gpu`: uuid) or the node itself (None); at most one per `key`."""

    check: str
    severity: Severity
    message: str
    gpu: str | None = None
    gi: int | None = None
    """The GPU instance, where the fault is contained in one."""
    xid: int | None = None
    since: float | None = None
    """When it began, unix seconds; survives a restart of the agent."""
    last: float | None = None
    """Unix time of the latest occurrence: of an XID the last one, of a level when it was reached (`since`)."""
    count: int = 1
    """Occurrences since `since`; 1 for a level."""
    remedy: Remedy = Remedy.NONE
    action: str = ""
    """What an operator should do next."""
    evidence: dict[str, str] = {}
    """The readings behind it, by their FIELDS path or a short name."""
    pods: tuple[Workload, ...] = ()
    """Workloads that had the GPU when it was found: possibly affected, not the cause."""
    caused_by: str | None = None
    """The `key` of the finding that explains this one; None: it stands for itself."""

    @property
    def key(self) -> str:
        """Equal for two findings of the same fault: `check/GPU-uuid`, `check/GPU-uuid/xid`, `check/node`; until the GPU
        at the address of an XID is known, `check/address/xid`.
        """
        place = self.evidence.get("pci") if self.gpu is None and self.xid is not None else None
        parts = (self.check, self.gpu or place or "node", None if self.gi is None else f"gi{self.gi}", self.xid)
        return "/".join(str(part) for part in parts if part is not None)

    @property
    def latest(self) -> float:
        """Unix time of the latest occurrence, 0 if unknown."""
        return self.last or self.since or 0.0


class Judgement(Record, frozen=True, kw_only=True):
    """All findings of one snapshot and the health they mean: of the node and of each GPU by uuid."""

    node: Health = Health.UNKNOWN
    gpus: dict[str, Health] = {}
    findings: tuple[Finding, ...] = ()
    ignored: tuple[str, ...] = ()
    """Checks that `checks.ignore` switches off: they make no finding."""


SchedulingLabel = Literal["gpu-class", "gpu-degraded", "gpu-healthy-count", "nvlink"]
"""Labels about GPUs for schedulers, without the domain."""

Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]

DeviceEffect = Literal["NoSchedule", "NoExecute"]
"""The effect of a DeviceTaintRule."""

Scope = Literal["gpu", "node"]
"""What is taken out of service: only the sick GPUs, where the platform can keep work from them; or the whole node."""


class Response(StrEnum):
    """What a policy does about a finding, mildest first; each includes those before it but `ignore`.

    condition: GPUHealthy=False and an Event; taint: no new work; cordon: the node is unschedulable for all pods;
    drain: GPU pods are evicted through the Eviction API.
    """

    IGNORE = "ignore"
    OBSERVE = "observe"
    CONDITION = "condition"
    TAINT = "taint"
    CORDON = "cordon"
    DRAIN = "drain"

    def reaches(self, other: "Response") -> bool:
        """Whether it is at least as strong as `other`."""
        return _ORDER[self] >= _ORDER[other]


_ORDER = {response: place for place, response in enumerate(Response)}
