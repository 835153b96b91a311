"""What work does with the GPUs it holds, over spans of time: the records from the collectors to the rules.

A collector (the agent's Views, recorded Views, a Prometheus) makes Windows; the ledger keeps them as histograms and
peaks by workload; the rules of right-sizing judge Summaries. Ratios are 0..1 of the whole physical GPU, also on a MIG
instance, so that one workload's spans compare; None is unknown.
"""

from gpuwatch.model.snapshot import Record
from gpuwatch.model.work import DayPeak, Distribution, WorkClass, WorkloadKey


class UsageWindow(Record, frozen=True, kw_only=True):
    """What one container did on one GPU or MIG instance from `at` for `span` seconds; `covered` of them were observed.

    `*_high` is the high end within the window (95th percentile or more), for windows longer than a minute; a shorter
    one may leave it None, which means: as the mean.
    """

    at: float  # unix seconds of its begin
    span: float
    covered: float
    key: WorkloadKey
    pod: str  # its name, else its uid; outside Kubernetes as key.name
    gpu: str  # uuid of the physical GPU
    node: str = ""
    device: str = ""  # uuid of the MIG instance; empty: the whole GPU
    index: int | None = None  # NVML index of the GPU
    model: str | None = None  # NVML name of the GPU
    profile: str | None = None  # of the MIG instance, such as 1g.10gb
    resource: str | None = None  # under which the kubelet allocated it, such as nvidia.com/gpu
    replicas: int = 1  # slots of a shared GPU that it has
    holders: int = 1  # containers on the device, with this one
    held_since: float | None = None  # when its hold began, where that is known
    declared_class: WorkClass | None = None  # from its annotations
    autotune: str | None = None  # value of the annotation gpuwatch.io/autotune: off, observe or enforce
    processes: int | None = None  # compute processes of its own, the most at a time
    programs: tuple[str, ...] = ()  # their names, without arguments
    busy: float | None = None  # share of time in which any kernel ran, mean
    busy_high: float | None = None
    busy_low: float | None = None  # 5th percentile or less: with `busy_high` it shows a saw-tooth
    sm: float | None = None
    sm_high: float | None = None
    dram: float | None = None
    dram_high: float | None = None
    pipe: float | None = None  # the busiest of tensor, fp64, fp32, fp16
    memory: int | None = None  # bytes in use, the most in the window: its own, or the device's where it is alone
    memory_low: int | None = None  # the least
    memory_total: int | None = None  # bytes of the device
    pcie: float | None = None  # bytes a second, both directions
    watts: float | None = None  # of the physical GPU
    power_limit: float | None = None
    cpu_throttled: float | None = None  # share of CPU periods in which the container was held back


class Slowdown(Record, frozen=True, kw_only=True):
    """How much longer work would take on a MIG profile, 95th percentile of windows with work: 0.2 is 20 % longer."""

    profile: str
    low: float  # if a busy multiprocessor had room for more
    high: float  # if it had none


class DeviceAllocation(Record, frozen=True, kw_only=True):
    """One pod's container on one device, now or lately."""

    pod: str
    gpu: str
    node: str = ""
    device: str = ""
    index: int | None = None
    model: str | None = None
    profile: str | None = None
    resource: str | None = None
    replicas: int = 1
    holders: int = 1
    since: float  # first observed, or its begin where that is known
    last: float  # end of the newest window
    present: bool  # still there
    covered: float  # seconds of it that were observed
    idle_since: float | None = None  # begin of the idle time, moved on by `unobserved`; None: it works, or unknown
    unobserved: float = 0.0  # seconds between its last work and `idle_since` that were not observed
    longest_gap: float = 0.0  # seconds of the longest idle time after which it worked again
    worked: bool = False  # ever
    processes: int | None = None  # in the newest window
    busy: float | None = None  # mean over the hold
    watts: float | None = None  # mean of the newest idle time, else of the hold
    loaded_idle_watts: float | None = None  # lowest window's mean while it held the GPU
    pcie: float | None = None  # mean of the newest idle time, bytes a second
    has_requests: bool = (
        False  # within the newest idle time there were short kernels, more irregular than health checks
    )
    memory: int | None = None  # the most
    memory_at_start: int | None = None  # the most within 120 s of its begin, or in the first window
    memory_later: float | None = None  # mean after the start
    memory_spread: float | None = None  # standard deviation over that mean
    power_limit: float | None = None


class WorkloadSummary(Record, frozen=True, kw_only=True):
    """All that is known of one workload, for the rules."""

    key: WorkloadKey
    work_class: WorkClass | None  # None: no annotation or setting gives it, nor do its kind and name
    first: float  # unix seconds
    last: float
    held: float  # device-seconds it held
    covered: float  # of these, observed
    days: float  # between first and last window, with gaps
    holds: tuple[DeviceAllocation, ...] = ()  # present ones, and the latest that are gone
    models: tuple[str, ...] = ()  # of the GPUs it was on
    memory_total: int | None = None  # of the device it was on last
    busy: Distribution | None = None
    sm: Distribution | None = None
    dram: Distribution | None = None
    pipe: Distribution | None = None
    pcie: Distribution | None = None
    watts: Distribution | None = None
    peaks: tuple[DayPeak, ...] = ()  # oldest first, at most 8
    slowdowns: tuple[Slowdown, ...] = ()  # for the profiles of its GPU's model
    sawtooth: float | None = None  # share of its time in windows that swing between idle and busy
    cpu_throttled: float | None = None  # mean share
    gpus_per_pod: int = 1
    programs: tuple[str, ...] = ()
    autotune: str | None = None  # as of the newest window that knew it


class NamespaceUsage(Record, frozen=True, kw_only=True):
    """GPUs in use by a namespace; `used` and `hard` are of its ResourceQuota, where that is known.

    `active`: newest last, the most GPUs that were at work in any five minutes of each day. `steady`: GPUs that were at
    work in 95 % of all time.
    """

    namespace: str
    resource: str = "nvidia.com/gpu"
    quota: str | None = None  # name of the ResourceQuota
    hard: int | None = None
    used: int | None = None
    held: int = 0  # now
    active: tuple[float, ...] = ()
    days: float = 0.0
    steady: int = 0


class GpuFacts(Record, frozen=True, kw_only=True):
    """One GPU that advice may be about."""

    node: str
    uuid: str
    index: int | None = None
    model: str | None = None
    memory_total: int | None = None
    mig_enabled: bool | None = None
    layout: tuple[str, ...] = ()  # profiles of its MIG instances now
    held: bool = True  # a pod or process uses it, or that is not known
    idle_watts: float | None = None


class FleetFacts(Record, frozen=True, kw_only=True):
    """What advice needs besides workloads. `whole`: all GPUs of the cluster are known, not only those of one node.

    `alone`: one node, or a few of them: a workload may have pods on others.
    """

    gpus: tuple[GpuFacts, ...] = ()
    namespaces: tuple[NamespaceUsage, ...] = ()
    whole: bool = False
    alone: bool = False
