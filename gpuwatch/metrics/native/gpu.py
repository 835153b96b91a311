"""Rows of METRICS about one GPU: load, memory, power, heat, clocks, links, faults. Paths are those of `Gpu`."""

from functools import cache
from operator import attrgetter

from gpuwatch.metrics.metric import TRAFFIC, Metric, MetricContext, Parts, Sample, Samples, each, entries, read, split
from gpuwatch.model.snapshot import Gpu

Row = Metric[MetricContext]


def _links(member: str) -> Samples[MetricContext]:
    """One value of every NVLink."""
    get = attrgetter(member)
    return lambda context: [(key, value) for key, link in context.links if (value := get(link)) is not None]


def _total(counter: str) -> Samples[MetricContext]:
    """A counter of all NVLinks of a GPU together."""
    return lambda context: [(key, totals[counter]) for key, totals in context.nvlink_totals if counter in totals]


def _fabric_info(gpu: Gpu) -> Parts:
    clique, cluster = gpu.fabric.clique_id, gpu.fabric.cluster_uuid
    if cluster is not None:
        yield (None if clique is None else str(clique), cluster), 1


_BUSY = "Share of the driver's last sampling window in which {} was busy, 0 to 1."
_CYCLES = "Share of cycles since the previous read in which {}, 0 to 1 (GPM, Hopper and newer)."

READINGS: tuple[Row, ...] = (
    Row("gpu_utilization_ratio", _BUSY.format("the GPU"), read("utilization.gpu")),
    Row(
        "gpu_utilization_mean_ratio",
        "Mean of all of the driver's utilization samples since the previous read, 0 to 1.",
        read("utilization.gpu_mean"),
    ),
    Row(
        "gpu_utilization_max_ratio",
        "Highest of the driver's utilization samples since the previous read, 0 to 1.",
        read("utilization.gpu_max"),
    ),
    Row("gpu_memory_utilization_ratio", _BUSY.format("device memory"), read("utilization.memory")),
    Row("gpu_memory_total_bytes", "Device memory.", read("memory.total", mig=True), scope="instance"),
    Row("gpu_memory_used_bytes", "Device memory allocated.", read("memory.used", mig=True), scope="instance"),
    Row("gpu_memory_free_bytes", "Device memory not allocated.", read("memory.free", mig=True), scope="instance"),
    Row(
        "gpu_memory_reserved_bytes",
        "Device memory kept by the driver.",
        read("memory.reserved", mig=True),
        scope="instance",
    ),
    Row(
        "gpu_protected_memory_bytes",
        "Device memory that confidential computing protects, where it is on.",
        split(total="protected_memory.total", used="protected_memory.used", free="protected_memory.free"),
        ("state",),
    ),
    Row("gpu_bar1_total_bytes", "BAR1 aperture.", read("bar1.total", mig=True), scope="instance"),
    Row("gpu_bar1_used_bytes", "BAR1 aperture mapped.", read("bar1.used", mig=True), scope="instance"),
    Row(
        "gpu_power_watts",
        "Power draw: the driver's running average, this instant, mean and peak since the previous read.",
        split(average="power.average", instant="power.instant", mean="power.mean", max="power.max"),
        ("window",),
    ),
    Row(
        "gpu_power_limit_watts",
        "Power limits: in force, set, of the factory, and the range that may be set.",
        split(
            enforced="power.limit_enforced",
            configured="power.limit_configured",
            default="power.limit_default",
            min="power.limit_min",
            max="power.limit_max",
        ),
        ("limit",),
    ),
    Row("gpu_energy_joules_total", "Energy used since the driver was loaded.", read("power.energy")),
    Row(
        "gpu_temperature_celsius",
        "Temperature of the GPU and of its memory.",
        split(gpu="temperature.gpu", memory="temperature.memory"),
        ("sensor",),
    ),
    Row(
        "gpu_temperature_threshold_celsius",
        "Temperatures at which the GPU acts.",
        split(
            shutdown="temperature.threshold_shutdown",
            slowdown="temperature.threshold_slowdown",
            max_operating="temperature.threshold_max_operating",
            memory_max="temperature.threshold_memory_max",
            target="temperature.threshold_target",
        ),
        ("threshold",),
    ),
    Row(
        "gpu_temperature_margin_celsius",
        "Degrees left before the GPU slows down (T.Limit).",
        read("temperature.margin"),
    ),
    Row(
        "gpu_temperature_margin_threshold_celsius",
        "Margins (T.Limit) at which the GPU acts, on GPUs that state thresholds so.",
        split(
            shutdown="temperature.margin_shutdown",
            slowdown="temperature.margin_slowdown",
            max_operating="temperature.margin_max_operating",
            memory_max="temperature.margin_memory_max",
        ),
        ("threshold",),
    ),
    Row(
        "gpu_clock_hertz",
        "Clock now.",
        split(graphics="clocks.graphics", sm="clocks.sm", memory="clocks.memory", video="clocks.video"),
        ("domain",),
    ),
    Row(
        "gpu_clock_max_hertz",
        "Highest clock of the domain.",
        split(graphics="clocks.graphics_max", sm="clocks.sm_max", memory="clocks.memory_max", video="clocks.video_max"),
        ("domain",),
    ),
    Row(
        "gpu_clock_event_active",
        "Whether the reason holds clocks down now.",
        entries("clock_events.active"),
        ("reason",),
    ),
    Row(
        "gpu_clock_event_seconds_total",
        "Time the reason has held clocks down.",
        entries("clock_events.seconds"),
        ("reason",),
    ),
    Row("gpu_performance_state", "P-state, 0 (fastest) to 15.", read("performance_state")),
    Row(
        "gpu_fan_speed_ratio",
        "Fan speed as a share of its maximum.",
        each(lambda gpu: (((str(fan),), ratio) for fan, ratio in enumerate(gpu.fans))),
        ("fan",),
    ),
    Row("gpu_mig_mode_enabled", "Whether MIG is on.", read("mig_enabled")),
    Row("gpu_licensed", "Whether a GPU of a virtual machine has its vGPU software licence.", read("license.licensed")),
    Row("gpu_license_expiry_timestamp_seconds", "When that licence ends, if it does.", read("license.expires")),
    Row("gpu_ecc_mode_enabled", "Whether ECC is on.", read("ecc.enabled")),
    Row("gpu_persistence_mode_enabled", "Whether the driver stays loaded without clients.", read("persistence_mode")),
    Row("gpu_read_duration_seconds", "Time the driver took for the last sample.", read("read_seconds")),
    Row(
        "gpu_failed_reads",
        "Readings that failed in the last sample, besides those the GPU does not support.",
        each(lambda gpu: [((), len(gpu.errors))]),
    ),
)
"""Readings of the GPU as a whole, which almost every user needs."""

ACTIVITY: tuple[Row, ...] = (
    Row("gpu_encoder_utilization_ratio", _BUSY.format("the video encoder"), read("utilization.encoder")),
    *(
        Row(f"gpu_{name}_{unit}", f"{help_} of {what}.", read(f"{name}.{member}"))
        for name, what in (("encoder", "the video encoder"), ("frame_capture", "frame buffer capture"))
        for unit, member, help_ in (
            ("sessions", "sessions", "Sessions"),
            ("frames_per_second", "frames_per_second", "Mean frame rate over the sessions"),
            ("latency_seconds", "latency_seconds", "Mean latency over the sessions"),
        )
    ),
    Row("gpu_decoder_utilization_ratio", _BUSY.format("the video decoder"), read("utilization.decoder")),
    Row("gpu_jpeg_utilization_ratio", _BUSY.format("the JPEG engine"), read("utilization.jpeg")),
    Row("gpu_ofa_utilization_ratio", _BUSY.format("the optical flow engine"), read("utilization.ofa")),
    *(
        Row(f"gpu_{name}_ratio", _CYCLES.format(what), read(f"activity.{path}", mig=True), scope="instance")
        for name, path, what in (
            ("graphics_active", "graphics", "the graphics or compute engine worked"),
            ("sm_active", "sm", "a multiprocessor had a warp, mean over all"),
            ("sm_occupancy", "sm_occupancy", "warp slots of the multiprocessors were taken, mean over all"),
            ("tensor_active", "tensor", "the tensor cores worked"),
            ("fp64_active", "fp64", "the FP64 pipe worked"),
            ("fp32_active", "fp32", "the FP32 pipe worked"),
            ("fp16_active", "fp16", "the FP16 pipe worked"),
            ("integer_active", "integer", "the integer pipe worked"),
            ("dram_active", "dram", "device memory moved data"),
        )
    ),
)
"""How busy each engine and pipe is."""

LINKS: tuple[Row, ...] = (
    Row(
        "gpu_pcie_link_generation",
        "PCIe generation; the current one drops when the GPU idles.",
        split(current="pcie.generation", max="pcie.generation_max"),
        ("state",),
    ),
    Row("gpu_pcie_link_width", "PCIe lanes.", split(current="pcie.width", max="pcie.width_max"), ("state",)),
    Row("gpu_pcie_replays_total", "PCIe packets sent again.", read("pcie.replays")),
    Row("gpu_pcie_transmit_bytes_total", "Bytes the GPU sent over PCIe.", read("pcie.transmit_bytes")),
    Row("gpu_pcie_receive_bytes_total", "Bytes the GPU received over PCIe.", read("pcie.receive_bytes")),
    Row(
        "gpu_pcie_transmit_bytes_per_second",
        "What the GPU sends over PCIe, over 20 ms, where it does not count bytes.",
        read("pcie.transmit_rate"),
    ),
    Row(
        "gpu_pcie_receive_bytes_per_second",
        "What the GPU receives over PCIe, over 20 ms, where it does not count bytes.",
        read("pcie.receive_rate"),
    ),
    Row("gpu_c2c_links", "Chip-to-chip links between the GPU and its CPU.", read("c2c.links")),
    Row("gpu_c2c_bytes_per_second", "What the chip-to-chip links can carry.", read("c2c.bytes_per_second")),
    Row(
        "gpu_fabric_state",
        "NVSwitch fabric: 0 not supported, 1 not started, 2 in progress, 3 completed.",
        read("fabric.state"),
    ),
    Row(
        "gpu_fabric_info",
        "The NVLink domain a registered GPU belongs to.",
        each(_fabric_info),
        ("clique_id", "cluster_uuid"),
    ),
    Row(
        "gpu_nvlinks",
        "NVLinks of the GPU that are up and down.",
        each(
            lambda gpu: [
                ((state,), sum(link.active is up for link in gpu.nvlinks) if gpu.nvlinks else None)
                for state, up in (("up", True), ("down", False))
            ]
        ),
        ("state",),
    ),
    Row(
        "gpu_nvlinks_errors_total",
        "Errors of all NVLinks of the GPU by kind.",
        lambda context: [
            ((subject, (name,)), count)
            for (subject, _), totals in context.nvlink_totals
            for name, count in totals.items()
            if name not in TRAFFIC
        ],
        ("error",),
    ),
    Row("gpu_nvlinks_transmit_bytes_total", "Bytes the GPU sent over all its NVLinks.", _total("transmit_bytes")),
    Row("gpu_nvlinks_receive_bytes_total", "Bytes the GPU received over all its NVLinks.", _total("receive_bytes")),
)
"""PCIe, the NVSwitch fabric, and the NVLinks of a GPU together."""

NVLINKS: tuple[Row, ...] = (
    Row("gpu_nvlink_active", "Whether the NVLink is up.", _links("active"), ("link",)),
    Row(
        "gpu_nvlink_errors_total",
        "Errors of the NVLink by kind.",
        lambda context: [
            ((subject, (own[0], error)), count)
            for (subject, own), link in context.links
            for error, count in link.errors.items()
        ],
        ("link", "error"),
    ),
    Row("gpu_nvlink_transmit_bytes_total", "Bytes the GPU sent over the NVLink.", _links("transmit_bytes"), ("link",)),
    Row(
        "gpu_nvlink_receive_bytes_total", "Bytes the GPU received over the NVLink.", _links("receive_bytes"), ("link",)
    ),
    Row("gpu_nvlink_speed_bytes_per_second", "What the NVLink can carry.", _links("speed_bytes_per_second"), ("link",)),
    Row(
        "gpu_nvlink_effective_bit_error_ratio",
        "Bit errors per bit that error correction left, since the NVLink came up.",
        _links("effective_ber"),
        ("link",),
    ),
    Row(
        "gpu_nvlink_symbol_bit_error_ratio",
        "Bit errors per bit in symbols, since the NVLink came up.",
        _links("symbol_ber"),
        ("link",),
    ),
    Row(
        "gpu_nvlink_fec_blocks_total",
        "Blocks on the NVLink by the symbols that error correction mended in them: bin 0, no symbol (NVLink 5).",
        lambda context: [
            ((subject, (own[0], bin_)), count)
            for (subject, own), link in context.links
            for bin_, count in link.fec_history.items()
        ],
        ("link", "bin"),
    ),
    Row(
        "gpu_nvlink_info",
        "Version of the NVLink, kind and PCI address of its other end.",
        lambda context: [
            ((subject, (own[0], link.version, link.remote_type, link.remote_pci)), 1)
            for (subject, own), link in context.links
        ],
        ("link", "version", "remote_type", "remote_pci"),
    ),
)
"""Readings of every NVLink."""


@cache
def _ecc_labels(name: str) -> tuple[str, ...]:
    """`corrected/volatile/dram` split into labels; there are a few dozen."""
    return tuple(name.split("/", 2))


def _ecc_errors(context: MetricContext) -> list[Sample]:
    """All counters of a GPU; of a GPU instance NVML has the uncorrected SRAM errors only."""
    gpus: list[Sample] = [
        ((subject, _ecc_labels(name)), count)
        for (subject, _), gpu in context.gpus
        for name, count in gpu.ecc.counts.items()
    ]
    instances: list[Sample] = [
        ((subject, ("uncorrected", "volatile", "sram")), mig.ecc_sram_uncorrected)
        for (subject, _), mig in context.instances
        if mig.ecc_sram_uncorrected is not None
    ]
    return gpus + instances


FAULTS: tuple[Row, ...] = (
    Row(
        "gpu_ecc_errors_total",
        "Memory errors: volatile ones since the driver was loaded, aggregate ones over the GPU's life.",
        _ecc_errors,
        ("type", "scope", "location"),
        scope="instance",
    ),
    Row(
        "gpu_ecc_sram_threshold_exceeded",
        "Whether uncorrected SRAM errors call for a new GPU.",
        read("ecc.sram_threshold_exceeded"),
    ),
    Row(
        "gpu_repair_pending",
        "Whether a repair waits for a reset.",
        split(channel="ecc.channel_repair_pending", tpc="ecc.tpc_repair_pending"),
        ("repair",),
    ),
    Row(
        "gpu_memory_unrepairable",
        "Whether memory has a fault that cannot be repaired.",
        read("ecc.unrepairable_memory"),
    ),
    Row(
        "gpu_row_remaps_total",
        "Memory rows replaced by spare ones (Ampere and newer).",
        split(corrected="row_remap.corrected", uncorrected="row_remap.uncorrected"),
        ("cause",),
    ),
    Row("gpu_row_remap_pending", "Whether a row remap waits for a reset.", read("row_remap.pending")),
    Row("gpu_row_remap_failure", "Whether a row remap has failed.", read("row_remap.failure")),
    Row("gpu_row_remap_banks", "Memory banks by spare rows left.", entries("row_remap.banks"), ("availability",)),
    Row(
        "gpu_retired_pages",
        "Memory pages taken out of use (Volta and older).",
        split(single_bit="retired_pages.single_bit", double_bit="retired_pages.double_bit"),
        ("cause",),
    ),
    Row("gpu_retired_pages_pending", "Whether a page retirement waits for a reset.", read("retired_pages.pending")),
    Row(
        "gpu_recovery_action",
        "What the GPU asks for: 0 nothing, 1 reset, 2 node reboot, 3 drain P2P, 4 drain and reset, 5 recover IMEX.",
        read("recovery_action"),
    ),
)
"""Faults of the GPU as its driver counts them."""
