"""Rows of METRICS about what is wrong with one GPU: memory errors, repairs, the action it asks for."""

from functools import cache

from gpuwatch.metrics.labelled_view import Scene
from gpuwatch.metrics.metric import Metric, Sample, entries, read, split

Row = Metric[Scene]


@cache
def _ecc_labels(name: str) -> tuple[str, ...]:
    """`corrected/volatile/dram` taken apart; there are a few dozen."""
    return tuple(name.split("/", 2))


def _ecc_errors(scene: Scene) -> list[Sample]:
    """Of a GPU whatever it counts; of a GPU instance NVML tells the uncorrected SRAM errors only."""
    gpus: list[Sample] = [
        ((subject, _ecc_labels(name)), count)
        for (subject, _), gpu in scene.gpus
        for name, count in gpu.ecc.counts.items()
    ]
    instances: list[Sample] = [
        ((subject, ("uncorrected", "volatile", "sram")), mig.ecc_sram_uncorrected)
        for (subject, _), mig in scene.instances
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
    Row(
        "gpu_row_remap_banks",
        "Memory banks by spare rows left.",
        entries("row_remap.banks"),
        ("availability",),
    ),
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
