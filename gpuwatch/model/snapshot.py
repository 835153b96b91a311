"""What one sample of the node found: an immutable tree from node to GPU to link, in base units.

Every optional value is `None` when the GPU does not support it, the driver does not know it or the read failed; it is
never 0, -1 or NaN for "unknown". Ratios are 0..1, sizes bytes, clocks hertz, power watts, energy joules, times unix
seconds. Field names follow NVML; `collect.nvml.fields.FIELDS` maps each path to its NVML call.
"""

from enum import StrEnum

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all records: immutable, compared by value, compact when encoded."""


class Utilization(Record, frozen=True, kw_only=True):
    """Share of the driver's sampling window in which an engine was busy, 0..1 (nvmlDeviceGetUtilizationRates, ...)."""

    gpu: float | None = None
    memory: float | None = None
    encoder: float | None = None
    decoder: float | None = None
    jpeg: float | None = None
    ofa: float | None = None
    gpu_mean: float | None = None  # over all driver samples since the previous read
    gpu_max: float | None = None


class Activity(Record, frozen=True, kw_only=True):
    """Share of cycles a unit did work since the previous read, 0..1 (GPM, Hopper and newer)."""

    graphics: float | None = None
    sm: float | None = None
    sm_occupancy: float | None = None
    integer: float | None = None
    tensor: float | None = None
    dram: float | None = None
    fp64: float | None = None
    fp32: float | None = None
    fp16: float | None = None
    window_seconds: float | None = None


class Memory(Record, frozen=True, kw_only=True):
    """Frame buffer bytes (nvmlDeviceGetMemoryInfo_v2; `used` excludes `reserved`)."""

    total: int | None = None
    used: int | None = None
    free: int | None = None
    reserved: int | None = None


class Power(Record, frozen=True, kw_only=True):
    """Board draw and limits in watts, energy in joules since the driver was loaded."""

    average: float | None = None
    instant: float | None = None
    mean: float | None = None  # over all driver samples since the previous read
    max: float | None = None
    energy: float | None = None
    limit_enforced: float | None = None
    limit_configured: float | None = None
    limit_default: float | None = None
    limit_min: float | None = None
    limit_max: float | None = None


class Temperature(Record, frozen=True, kw_only=True):
    """Degrees Celsius. Newer GPUs state thresholds as margins: distance in degrees, smaller is hotter."""

    gpu: float | None = None
    memory: float | None = None
    margin: float | None = None  # T.Limit: degrees left before the GPU slows down
    threshold_shutdown: float | None = None
    threshold_slowdown: float | None = None
    threshold_max_operating: float | None = None
    threshold_memory_max: float | None = None
    threshold_target: float | None = None
    margin_shutdown: float | None = None  # the same four, stated relative to T.Limit
    margin_slowdown: float | None = None
    margin_max_operating: float | None = None
    margin_memory_max: float | None = None


class Clocks(Record, frozen=True, kw_only=True):
    """Clock per domain in hertz, now and at most."""

    graphics: float | None = None
    sm: float | None = None
    memory: float | None = None
    video: float | None = None
    graphics_max: float | None = None
    sm_max: float | None = None
    memory_max: float | None = None
    video_max: float | None = None


class ClockEvents(Record, frozen=True, kw_only=True):
    """Why clocks are held down: `active` maps each reason to on or off, `seconds` to the time for which it was on.

    Reasons are the names of `collect.nvml.decode.CLOCK_EVENT_REASONS`; a reason the driver does not know is missing.
    """

    active: dict[str, bool] = {}
    seconds: dict[str, float] = {}


class Pcie(Record, frozen=True, kw_only=True):
    """Link state and traffic; byte counters grow since the driver was loaded."""

    generation: int | None = None
    generation_max: int | None = None
    width: int | None = None
    width_max: int | None = None
    replays: int | None = None
    transmit_bytes: int | None = None
    receive_bytes: int | None = None
    transmit_rate: float | None = None  # bytes per second over 20 ms, where the GPU has no counters
    receive_rate: float | None = None


class C2c(Record, frozen=True, kw_only=True):
    """The chip-to-chip links between a GPU and its CPU (Grace)."""

    enabled: bool | None = None
    links: int | None = None
    bytes_per_second: float | None = None  # what they can carry


class VideoSessions(Record, frozen=True, kw_only=True):
    """Sessions of the encoder, or those that capture the frame buffer; means over all of them."""

    sessions: int | None = None
    frames_per_second: int | None = None
    latency_seconds: float | None = None


class NvLink(Record, frozen=True, kw_only=True):
    """One NVLink; `errors` maps error kind (crc_flit, crc_data, replay, recovery, ecc_data, ...) to its count."""

    link: int
    active: bool | None = None
    speed_bytes_per_second: float | None = None
    version: str | None = None
    remote_pci: str | None = None
    remote_type: str | None = None  # gpu, switch or cpu
    effective_ber: float | None = None  # bit errors per bit that error correction left, since the link came up
    symbol_ber: float | None = None
    transmit_bytes: int | None = None
    receive_bytes: int | None = None
    errors: dict[str, int] = {}
    fec_history: dict[str, int] = {}  # bin -> blocks in which FEC corrected so many symbols (NVLink 5)


class License(Record, frozen=True, kw_only=True):
    """The vGPU software licence of a GPU in a virtual machine; `expires` is None also for one that does not expire."""

    product: str | None = None
    licensed: bool | None = None
    expires: float | None = None


class Ecc(Record, frozen=True, kw_only=True):
    """ECC mode and counters. `counts` maps `kind/scope/location` (corrected|uncorrected / volatile|aggregate / dram,
    sram, sram_parity, ..., total) to a count; a counter that cannot be read is missing, never zero.
    """

    enabled: bool | None = None
    pending: bool | None = None
    counts: dict[str, int] = {}
    sram_threshold_exceeded: bool | None = None
    channel_repair_pending: bool | None = None
    tpc_repair_pending: bool | None = None
    unrepairable_memory: bool | None = None


class RowRemap(Record, frozen=True, kw_only=True):
    """Row remapping (Ampere and newer); `banks` maps spare availability (max, high, partial, low, none) to banks."""

    corrected: int | None = None
    uncorrected: int | None = None
    pending: bool | None = None
    failure: bool | None = None
    banks: dict[str, int] = {}


class RetiredPages(Record, frozen=True, kw_only=True):
    """Page retirement (Volta and older)."""

    single_bit: int | None = None
    double_bit: int | None = None
    pending: bool | None = None


class Fabric(Record, frozen=True, kw_only=True):
    """NVSwitch fabric registration (nvmlDeviceGetGpuFabricInfo): state 0 not supported, 1 not started, 2 in progress,
    3 completed; `status` is the nvmlReturn of the registration; clique and cluster identify the NVLink domain.
    """

    state: int | None = None
    status: int | None = None
    clique_id: int | None = None
    cluster_uuid: str | None = None
    health_mask: int | None = None


class GpuProcess(Record, frozen=True, kw_only=True):
    """One process on a GPU or a MIG instance, with host pid; memory in bytes, utilization 0..1 of the whole GPU."""

    pid: int
    type: str  # compute | graphics | compute+graphics | mps
    name: str | None = None
    used_memory: int | None = None
    gi: int | None = None
    ci: int | None = None
    sm_utilization: float | None = None
    memory_utilization: float | None = None
    encoder_utilization: float | None = None
    decoder_utilization: float | None = None


class MigInstance(Record, frozen=True, kw_only=True):
    """One MIG device: a compute instance `ci` in GPU instance `gi`. `start`: the latter's first memory slice; None
    where the driver does not report it (it takes the right to).
    """

    index: int
    uuid: str
    gi: int
    ci: int
    start: int | None = None
    profile: str | None = None
    memory: Memory = Memory()
    bar1: Memory = Memory()
    activity: Activity = Activity()
    multiprocessors: int | None = None
    ecc_sram_uncorrected: int | None = None


class Vgpu(Record, frozen=True, kw_only=True):
    """One active vGPU of a host GPU."""

    uuid: str
    instance: int
    type: str | None = None
    vm: str | None = None
    vm_name: str | None = None
    used_memory: int | None = None
    utilization: float | None = None
    licensed: bool | None = None


class Identity(Record, frozen=True, kw_only=True):
    """What a GPU is; cached by the reader at registration so that a lost GPU keeps its name."""

    index: int
    uuid: str
    pci_bus_id: str  # as NVML writes it: 00000000:3B:00.0
    name: str | None = None
    brand: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    serial: str | None = None
    board_part_number: str | None = None
    vbios: str | None = None
    inforom_image: str | None = None
    inforom_oem: str | None = None
    inforom_ecc: str | None = None
    inforom_power: str | None = None
    gsp_firmware: str | None = None
    gsp_enabled: bool | None = None
    minor: int | None = None
    cores: int | None = None
    memory_bus_width: int | None = None
    numa_node: int | None = None
    chassis_serial: str | None = None  # where the GPU is in its rack, as the platform reports it
    slot: int | None = None
    tray: int | None = None
    host: int | None = None  # number of the node in the tray
    module: int | None = None  # number of the GPU on its baseboard


class Gpu(Record, frozen=True, kw_only=True):
    """One sample of one GPU."""

    identity: Identity
    at: float = 0.0  # unix seconds of the sample
    utilization: Utilization = Utilization()
    activity: Activity = Activity()
    memory: Memory = Memory()
    protected_memory: Memory = Memory()  # the part of `memory` that confidential computing protects
    bar1: Memory = Memory()
    power: Power = Power()
    temperature: Temperature = Temperature()
    clocks: Clocks = Clocks()
    clock_events: ClockEvents = ClockEvents()
    performance_state: int | None = None
    fans: tuple[float, ...] = ()  # ratio per fan
    pcie: Pcie = Pcie()
    c2c: C2c = C2c()
    encoder: VideoSessions = VideoSessions()
    frame_capture: VideoSessions = VideoSessions()
    nvlinks: tuple[NvLink, ...] = ()
    ecc: Ecc = Ecc()
    row_remap: RowRemap = RowRemap()
    retired_pages: RetiredPages = RetiredPages()
    recovery_action: int | None = None
    fabric: Fabric = Fabric()
    persistence_mode: bool | None = None
    accounting_mode: bool | None = None
    display_active: bool | None = None
    compute_mode: str | None = None
    virtualization_mode: str | None = None
    license: License = License()
    mig_enabled: bool | None = None
    mig_pending: bool | None = None
    mig: tuple[MigInstance, ...] = ()
    vgpus: tuple[Vgpu, ...] = ()
    processes: tuple[GpuProcess, ...] | None = None
    unsupported: tuple[str, ...] = ()  # FIELDS paths this GPU or driver does not offer
    why_absent: dict[str, str] = {}  # unsupported path -> why, where the driver's version is the reason
    errors: dict[str, str] = {}  # FIELDS path -> NVML error of a read that failed this time
    read_seconds: float | None = None  # time the driver took for this sample


class GpuState(StrEnum):
    """How a GPU's last sample went; `health` is judged elsewhere."""

    FRESH = "fresh"
    UNRESPONSIVE = "unresponsive"  # a driver call does not return, or samples stopped
    LOST = "lost"  # NVML answers GPU_IS_LOST or the GPU vanished from NVML
    UNKNOWN = "unknown"  # not read: gpuwatch failed, which is no evidence about the GPU


QUICK_INTERVALS = 0.75
"""A read shorter than this share of the interval is quick; one longer than the interval is slow."""


class GpuStatus(Record, frozen=True, kw_only=True):
    """Presence of one GPU, known even when it cannot be read: `detail`: the observation in words."""

    identity: Identity
    state: GpuState
    detail: str = ""
    since: float | None = None
    read_intervals: float | None = None  # how long its read takes or took, in intervals; None below QUICK_INTERVALS


class SourceStatus(Record, frozen=True, kw_only=True):
    """How one outside interface (nvml, gpm, kmsg, podresources, procfs, pci) is doing; `up` None means switched off."""

    name: str
    up: bool | None
    reason: str = ""
    duration_seconds: float | None = None
    last_success: float | None = None
    failures: int = 0
    hanging_seconds: float | None = None  # seconds for which a call of its start has not returned
    code: int | None = None  # nvmlReturn, where NVML itself cannot be used


class Driver(Record, frozen=True, kw_only=True):
    """Versions as NVML gives them, `cuda` such as 12.8, and whether the GPUs are in confidential computing: that is set
    before the driver is loaded.
    """

    version: str | None = None
    nvml: str | None = None
    cuda: str | None = None
    confidential: bool | None = None
    confidential_debug: bool | None = None  # development tools may look inside


class Host(Record, frozen=True, kw_only=True):
    """Which machine and which boot this is, with the names of the Node's `status.nodeInfo`; None where unreadable."""

    boot_id: str | None = None  # /proc/sys/kernel/random/boot_id, the same inside containers
    machine_id: str | None = None  # /etc/machine-id
    system_uuid: str | None = None  # /sys/class/dmi/id/product_uuid


class Snapshot(Record, frozen=True, kw_only=True):
    """One sample of the node. `gpus` holds fresh samples only; `statuses` every GPU found since the agent started."""

    at: float
    interval: float
    driver: Driver | None = None
    gpus: tuple[Gpu, ...] = ()
    statuses: tuple[GpuStatus, ...] = ()
    sources: tuple[SourceStatus, ...] = ()
    unanswered: dict[int, str] = {}  # NVML index -> why that GPU does not give its identity
    awaited: dict[int, float] = {}  # of those, GPUs that may yet answer: seconds waited so far
    bus: tuple[str, ...] | None = None  # PCI addresses of NVIDIA GPUs on the bus, from sysfs; None when unreadable
    expected_gpus: int | None = None
    node: str | None = None
    host: Host = Host()


UNREADABLE = (msgspec.MsgspecError, UnicodeError, RecursionError)
