"""Advice: what holds more GPU than it uses, what to give it instead, on what evidence, and how to apply that.

The item of `gpuwatch recommend` and of `/api/v1/recommendations`. Nothing here is ever applied by gpuwatch.
"""

from enum import StrEnum
from typing import Any

from gpuwatch.model.snapshot import Record
from gpuwatch.model.work import DayPeak, Distribution, WorkClass


class FindingKind(StrEnum):
    """What was found; the `kind` of a recommendation."""

    NEVER_USED = "never_used"
    IDLE_HOLDER = "idle_holder"
    DUTY_CYCLED = "duty_cycled"
    MIG_FIT = "mig_fit"
    GANG_OVERSIZED = "gang_oversized"
    PREALLOCATED = "preallocated"
    CPU_BOUND = "cpu_bound"
    IO_BOUND = "io_bound"
    QUOTA_SLACK = "quota_slack"
    STEADY_LOAD = "steady_load"  # a namespace that always uses whole nodes: reserve them
    ENERGY = "energy"  # batch work that keeps its GPU busy: let the tuner save energy
    MIG_LAYOUT = "mig_layout"  # how to cut free GPUs, for workloads that fit an instance


class RecommendedAction(StrEnum):
    """What to do about it. Only `scale_down` ends work for good; it is never advised where that may be serving."""

    SCALE_DOWN = "scale_down"  # delete the pod, or scale its owner to 0
    ASK_OWNER = "ask_owner"
    SHARE = "share"
    RESIZE = "resize"
    REDUCE = "reduce"
    CHANGE_SETTING = "change_setting"
    RAISE_CPU = "raise_cpu"
    LOOK_AT_INPUT = "look_at_input"
    CHANGE_QUOTA = "change_quota"
    RESERVE = "reserve"
    TUNE = "tune"
    REPARTITION = "repartition"


class Level(StrEnum):
    """Of confidence and of risk."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class RecommendationTarget(Record, frozen=True, kw_only=True):
    """What it is about; for quotas a namespace alone, for layouts nodes and GPUs alone. `gpus`: uuids."""

    namespace: str | None = None
    kind: str | None = None
    name: str | None = None
    container: str | None = None
    image: str | None = None
    work_class: WorkClass | None = None
    pods: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    model: str | None = None


class Evidence(Record, frozen=True, kw_only=True):
    """What was measured, over `days`; `coverage`: share of that time that was observed. Sizes in bytes."""

    days: float
    coverage: float
    held_seconds: float | None = None
    idle_seconds: float | None = None
    busy: Distribution | None = None
    sm: Distribution | None = None
    dram: Distribution | None = None
    pcie: Distribution | None = None
    watts: Distribution | None = None
    memory_peak: int | None = None
    peaks: tuple[DayPeak, ...] = ()  # of memory, by day
    memory_total: int | None = None
    active: Distribution | None = None  # GPUs at work at a time, of a namespace


class Predicted(Record, frozen=True, kw_only=True):
    """What would follow. Slowdowns as in `usage.Slowdown`; `memory_needed` bytes with margin, of `memory_offered`."""

    slowdown_low: float | None = None
    slowdown_high: float | None = None
    memory_needed: int | None = None
    memory_offered: int | None = None


class Savings(Record, frozen=True, kw_only=True):
    """Estimates. `money_per_day` is None without a price in the configuration."""

    gpu_hours_per_day: float
    watts: float | None = None
    money_per_day: float | None = None
    currency: str | None = None


class Placement(Record, frozen=True, kw_only=True):
    """One MIG instance: its profile and the first memory slice it takes."""

    profile: str
    start: int
    size: int


class Layout(Record, frozen=True, kw_only=True):
    """How one GPU is to be cut."""

    node: str
    gpu: str
    index: int | None
    model: str
    placements: tuple[Placement, ...]


class RecommendedChange(Record, frozen=True, kw_only=True):
    """What is to change, for programs; members that do not apply are None or empty."""

    resource: str | None = None  # extended resource now
    count: int | None = None  # of it, for each pod
    to_resource: str | None = None
    to_count: int | None = None
    strategy: str | None = None  # time_slicing | mps
    replicas: int | None = None  # containers that may share one GPU
    setting: str | None = None  # name of the setting of a server
    hard: dict[str, int] = {}  # of a ResourceQuota, by resource
    quota: str | None = None  # name of the ResourceQuota
    layouts: tuple[Layout, ...] = ()
    annotations: dict[str, str] = {}


class Apply(Record, frozen=True, kw_only=True):
    """One way to carry it out. `manifest`: the object or file as plain values; `command`: complete, for a shell."""

    what: str  # pod_patch | mig_parted | device_plugin | resource_quota | reserve | energy_class | scale
    note: str
    command: str | None = None
    manifest: dict[str, Any] | None = None


class Recommendation(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One recommendation. `id` depends on target and finding only; `expires`: unix seconds after which it is stale."""

    id: str
    kind: FindingKind
    action: RecommendedAction
    target: RecommendationTarget
    current: str
    recommended: str
    why: str
    evidence: Evidence
    confidence: Level
    risk: Level
    risk_text: str
    savings: Savings
    change: RecommendedChange = RecommendedChange()
    predicted: Predicted | None = None
    apply: tuple[Apply, ...] = ()
    at: float
    expires: float


SCHEMA = 1


class Recommendations(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The body of `/api/v1/recommendations`: largest savings first. `learning`: workloads too little known to judge."""

    at: float
    since: float | None  # unix seconds since when usage is known
    schema: int = SCHEMA
    node: str | None = None
    workloads: int = 0
    learning: int = 0
    items: tuple[Recommendation, ...] = ()
