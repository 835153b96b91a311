"""What nvidia-smi printed on real machines, idle and loaded, against gpuwatch's Gpu and /metrics, field by field."""

import re
from collections.abc import Callable
from functools import cache, reduce
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpuwatch.collect.nvml.gpu import GpuReader, register
from gpuwatch.config import MetricsConfig
from gpuwatch.metrics.exposition import Encoder
from gpuwatch.metrics.native import collect
from gpuwatch.model.snapshot import Gpu, GpuState, GpuStatus, Snapshot
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.sim.capture import open_capture
from tests.golden.printed import CAPTURES, gpu_leaves, repeated, section

FILES = sorted(CAPTURES.glob("*.txt"))
PHASES = ("idle", "load")
MIB = 1 << 20
ABSENT = ("N/A", "Requested functionality has been deprecated", "Not Supported")


class Field(NamedTuple):
    """One line of the dump: where its value is in Gpu, how it is printed, and the series that carries it."""

    label: str
    path: str
    convert: Callable[[str], Any]
    metric: str = ""
    labels: tuple[tuple[str, str], ...] = ()


def number(unit: str, scale: float = 1) -> Callable[[str], float]:
    def convert(printed: str) -> float:
        value, found = re.fullmatch(r"(-?[\d.]+)\s*(.*)", printed).groups()
        assert found == unit
        return float(value) * scale

    return convert


def words(**meanings: Any) -> Callable[[str], Any]:
    return lambda printed: meanings[printed.replace(" ", "_").replace("-", "_")]


def same(printed: str) -> str:
    return printed


def field(label: str, path: str, convert: Callable[[str], Any], metric: str = "", **labels: str) -> Field:
    return Field(label, path, convert, metric, tuple(labels.items()))


ON = words(Enabled=True, Disabled=False, Yes=True, No=False, Active=True, Not_Active=False)
COUNT, MEBIBYTES, WATTS = number(""), number("MiB", MIB), number("W")
CELSIUS, RATIO, HERTZ = number("C"), number("%", 0.01), number("MHz", 1e6)
LANES, BANKS, SECONDS = number("x"), number("bank(s)"), number("us", 1e-6)

ECC = {
    "SRAM Correctable": "corrected/{}/sram",
    "SRAM Uncorrectable Parity": "uncorrected/{}/sram_parity",
    "SRAM Uncorrectable SEC-DED": "uncorrected/{}/sram_secded",
    "DRAM Correctable": "corrected/{}/dram",
    "DRAM Uncorrectable": "uncorrected/{}/dram",
}
REASONS = {
    "Idle": "gpu_idle",
    "Applications Clocks Setting": "applications_clocks_setting",
    "SW Power Cap": "sw_power_cap",
    "HW Slowdown": "hw_slowdown",
    "HW Slowdown / HW Thermal Slowdown": "hw_thermal_slowdown",
    "HW Slowdown / HW Power Brake Slowdown": "hw_power_brake_slowdown",
    "Sync Boost": "sync_boost",
    "SW Thermal Slowdown": "sw_thermal_slowdown",
    "Display Clock Setting": "display_clock_setting",
}
HELD = {
    "SW Power Capping": "sw_power_cap",
    "Sync Boost": "sync_boost",
    "SW Thermal Slowdown": "sw_thermal_slowdown",
    "HW Thermal Slowdown": "hw_thermal_slowdown",
    "HW Power Braking": "hw_power_brake_slowdown",
}
THRESHOLDS = {
    "GPU Shutdown": "shutdown",
    "GPU Slowdown": "slowdown",
    "GPU Max Operating": "max_operating",
    "Memory Max Operating": "memory_max",
}
DOMAINS = {"Graphics": "graphics", "SM": "sm", "Memory": "memory", "Video": "video"}
LIMITS = {
    "Current": "enforced",
    "Requested": "configured",
    "Default": "default",
    "Min": "min",
    "Max": "max",
}

FIELDS = [
    field("Product Name", "identity.name", same, "gpu_info", model="="),
    field("Product Brand", "identity.brand", same),
    field("Product Architecture", "identity.architecture", same, "gpu_info", architecture="="),
    field("Serial Number", "identity.serial", same, "gpu_info", serial="="),
    field("GPU UUID", "identity.uuid", same, "gpu_info", uuid="="),
    field("Minor Number", "identity.minor", COUNT),
    field("VBIOS Version", "identity.vbios", same, "gpu_info", vbios="="),
    field("Board Part Number", "identity.board_part_number", same),
    field("Inforom Version / Image Version", "identity.inforom_image", same),
    field("GSP Firmware Version", "identity.gsp_firmware", same),
    field("PCI / Bus Id", "identity.pci_bus_id", same),
    field("Display Active", "display_active", ON),
    field("Persistence Mode", "persistence_mode", ON, "gpu_persistence_mode_enabled"),
    field("MIG Mode / Current", "mig_enabled", ON, "gpu_mig_mode_enabled"),
    field("MIG Mode / Pending", "mig_pending", ON),
    field("Compute Mode", "compute_mode", words(Default="default")),
    field(
        "GPU Virtualization Mode / Virtualization Mode",
        "virtualization_mode",
        words(None_="none", Pass_Through="passthrough", **{"None": "none"}),
    ),
    field("GPU Recovery Action", "recovery_action", words(**{"None": 0}, Reset=1, Reboot=2), "gpu_recovery_action"),
    field("Performance State", "performance_state", lambda p: int(p[1:]), "gpu_performance_state"),
    field("Fan Speed", "fans.0", RATIO, "gpu_fan_speed_ratio", fan="0"),
    field("FB Memory Usage / Total", "memory.total", MEBIBYTES, "gpu_memory_total_bytes"),
    field("FB Memory Usage / Reserved", "memory.reserved", MEBIBYTES, "gpu_memory_reserved_bytes"),
    field("FB Memory Usage / Used", "memory.used", MEBIBYTES, "gpu_memory_used_bytes"),
    field("FB Memory Usage / Free", "memory.free", MEBIBYTES, "gpu_memory_free_bytes"),
    field("BAR1 Memory Usage / Total", "bar1.total", MEBIBYTES, "gpu_bar1_total_bytes"),
    field("BAR1 Memory Usage / Used", "bar1.used", MEBIBYTES, "gpu_bar1_used_bytes"),
    field("BAR1 Memory Usage / Free", "bar1.free", MEBIBYTES),
    field("Utilization / GPU", "utilization.gpu", RATIO, "gpu_utilization_ratio"),
    field("Utilization / Memory", "utilization.memory", RATIO, "gpu_memory_utilization_ratio"),
    field("Utilization / Encoder", "utilization.encoder", RATIO, "gpu_encoder_utilization_ratio"),
    field("Utilization / Decoder", "utilization.decoder", RATIO, "gpu_decoder_utilization_ratio"),
    field("Utilization / JPEG", "utilization.jpeg", RATIO, "gpu_jpeg_utilization_ratio"),
    field("Utilization / OFA", "utilization.ofa", RATIO, "gpu_ofa_utilization_ratio"),
    field("GPU Power Readings / Average Power Draw", "power.average", WATTS, "gpu_power_watts", window="average"),
    field("GPU Power Readings / Instantaneous Power Draw", "power.instant", WATTS, "gpu_power_watts", window="instant"),
    *(
        field(
            f"GPU Power Readings / {label} Power Limit",
            f"power.limit_{limit}",
            WATTS,
            "gpu_power_limit_watts",
            limit=limit,
        )
        for label, limit in LIMITS.items()
    ),
    field("Temperature / GPU Current Temp", "temperature.gpu", CELSIUS, "gpu_temperature_celsius", sensor="gpu"),
    field(
        "Temperature / Memory Current Temp", "temperature.memory", CELSIUS, "gpu_temperature_celsius", sensor="memory"
    ),
    field("Temperature / GPU T.Limit Temp", "temperature.margin", CELSIUS, "gpu_temperature_margin_celsius"),
    field(
        "Temperature / GPU Target Temperature",
        "temperature.threshold_target",
        CELSIUS,
        "gpu_temperature_threshold_celsius",
        threshold="target",
    ),
    *(
        field(
            f"Temperature / {label} {suffix}",
            f"temperature.{member}_{threshold}",
            CELSIUS,
            f"gpu_temperature_{metric}_celsius",
            threshold=threshold,
        )
        for label, threshold in THRESHOLDS.items()
        for suffix, member, metric in [
            ("Temp", "threshold", "threshold"),
            ("T.Limit Temp", "margin", "margin_threshold"),
        ]
    ),
    *(
        field(f"{section} / {label}", f"clocks.{domain}{suffix}", HERTZ, metric, domain=domain)
        for label, domain in DOMAINS.items()
        for section, suffix, metric in [
            ("Clocks", "", "gpu_clock_hertz"),
            ("Max Clocks", "_max", "gpu_clock_max_hertz"),
        ]
    ),
    *(
        field(
            f"Clocks Event Reasons / {label}",
            f"clock_events.active.{reason}",
            ON,
            "gpu_clock_event_active",
            reason=reason,
        )
        for label, reason in REASONS.items()
    ),
    *(
        field(
            f"Clocks Event Reasons Counters / {label}",
            f"clock_events.seconds.{reason}",
            SECONDS,
            "gpu_clock_event_seconds_total",
            reason=reason,
        )
        for label, reason in HELD.items()
    ),
    *(
        field(
            f"PCI / GPU Link Info / {section} / {label}",
            f"pcie.{path}{suffix}",
            convert,
            f"gpu_pcie_link_{path}",
            state=state,
        )
        for section, path, convert in [("PCIe Generation", "generation", COUNT), ("Link Width", "width", LANES)]
        for label, suffix, state in [("Current", "", "current"), ("Max", "_max", "max")]
    ),
    field("PCI / Replays Since Reset", "pcie.replays", COUNT, "gpu_pcie_replays_total"),
    field("ECC Mode / Current", "ecc.enabled", ON, "gpu_ecc_mode_enabled"),
    field("ECC Mode / Pending", "ecc.pending", ON),
    *(
        field(
            f"ECC Errors / {scope} / {label}",
            "ecc.counts." + key.format(scope.lower()),
            COUNT,
            "gpu_ecc_errors_total",
            **dict(zip(("type", "scope", "location"), key.format(scope.lower()).split("/"), strict=True)),
        )
        for scope in ("Volatile", "Aggregate")
        for label, key in ECC.items()
    ),
    *(
        field(
            f"ECC Errors / Aggregate Uncorrectable SRAM Sources / SRAM {label}",
            f"ecc.counts.uncorrected/aggregate/sram_{location}",
            COUNT,
            "gpu_ecc_errors_total",
            type="uncorrected",
            scope="aggregate",
            location=f"sram_{location}",
        )
        for label, location in {
            "L2": "l2",
            "SM": "sm",
            "Microcontroller": "mcu",
            "PCIE": "pcie",
            "Other": "other",
        }.items()
    ),
    field(
        "ECC Errors / Aggregate / SRAM Threshold Exceeded",
        "ecc.sram_threshold_exceeded",
        ON,
        "gpu_ecc_sram_threshold_exceeded",
    ),
    field(
        "ECC Errors / Channel Repair Pending", "ecc.channel_repair_pending", ON, "gpu_repair_pending", repair="channel"
    ),
    field("ECC Errors / TPC Repair Pending", "ecc.tpc_repair_pending", ON, "gpu_repair_pending", repair="tpc"),
    field("ECC Errors / Unrepairable Memory", "ecc.unrepairable_memory", ON, "gpu_memory_unrepairable"),
    field("Retired Pages / Single Bit ECC", "retired_pages.single_bit", COUNT, "gpu_retired_pages", cause="single_bit"),
    field("Retired Pages / Double Bit ECC", "retired_pages.double_bit", COUNT, "gpu_retired_pages", cause="double_bit"),
    field("Retired Pages / Pending Page Blacklist", "retired_pages.pending", ON, "gpu_retired_pages_pending"),
    field("Remapped Rows", "row_remap.banks.max", same),
    field("Remapped Rows / Correctable Error", "row_remap.corrected", COUNT, "gpu_row_remaps_total", cause="corrected"),
    field(
        "Remapped Rows / Uncorrectable Error",
        "row_remap.uncorrected",
        COUNT,
        "gpu_row_remaps_total",
        cause="uncorrected",
    ),
    field("Remapped Rows / Pending", "row_remap.pending", ON, "gpu_row_remap_pending"),
    field("Remapped Rows / Remapping Failure Occurred", "row_remap.failure", ON, "gpu_row_remap_failure"),
    *(
        field(
            f"Remapped Rows / Bank Remap Availability Histogram / {name.title()}",
            f"row_remap.banks.{name}",
            BANKS,
            "gpu_row_remap_banks",
            availability=name,
        )
        for name in ("max", "high", "partial", "low", "none")
    ),
    field("Fabric / State", "fabric.state", words(Not_Started=1, In_Progress=2, Completed=3), "gpu_fabric_state"),
    field("Fabric / Status", "fabric.status", words(Success=0)),
    field("Fabric / CliqueId", "fabric.clique_id", COUNT),
    field("Fabric / ClusterUUID", "fabric.cluster_uuid", same, "gpu_fabric_info", cluster_uuid="="),
    field("Fabric / Health / Bandwidth", "fabric.health_mask", same),
]

LEFT_OUT = (
    "Display Mode", "Display Attached", "Addressing Mode", "Accounting Mode", "Driver Model", "GPU PDI",
    "MultiGPU Board", "Board ID", "GPU Part Number", "FRU Part Number", "Platform Info", "Inforom Version / OEM",
    "Inforom Version / ECC", "Inforom Version / Power", "Inforom BBX", "GPU Operation Mode", "GPU C2C",
    "GPU Virtualization Mode / Host", "GPU Virtualization Mode / vGPU", "IBMNPU", "PCI / Bus", "PCI / Device",
    "PCI / Domain", "PCI / Base", "PCI / Sub", "PCI / GPU Link Info / PCIe Generation / Device",
    "PCI / GPU Link Info / PCIe Generation / Host", "PCI / Bridge Chip", "PCI / Replay Number Rollovers",
    "PCI / Tx", "PCI / Rx", "PCI / Atomic", "Sparse", "Conf Compute", "Encoder Stats", "FBC Stats",
    "DRAM Encryption", "GPU Memory Power Readings", "Module Power Readings", "Power Smoothing", "Workload Power",
    "EDPp", "Applications Clocks", "Default Applications Clocks", "Deferred Clocks", "Max Customer Boost",
    "Clock Policy", "Remapped Rows / Inactive", "Fabric / Health", "Processes", "Capabilities",
)  # fmt: skip
"""Begin of the labels that gpuwatch does not show."""


class Case(NamedTuple):
    file: Path
    phase: str

    def __str__(self) -> str:
        return f"{self.file.stem.split('__')[0]}-{self.phase}"


CASES = [Case(file, phase) for file in FILES for phase in PHASES]


@cache
def shown(case: Case) -> tuple[Gpu, dict[str, list[Any]]]:
    """The Gpu that the real readers make of the dump, and the samples of /metrics by name."""
    nvml = open_capture(f"{case.file}#{case.phase}")
    gpu = GpuReader(nvml, *register(nvml, 0)).read(1.0, 1.0)
    status = GpuStatus(identity=gpu.identity, state=GpuState.FRESH)
    view = View(
        snapshot=Snapshot(at=1.0, interval=1.0, gpus=(gpu,), statuses=(status,)),
        agent=AgentStatus(version="0", started=0.0),
    )
    page = Encoder().encode(collect(view, MetricsConfig())).decode()
    samples: dict[str, list[Any]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(sample)
    return gpu, samples


@cache
def printed(case: Case) -> dict[str, str]:
    return gpu_leaves(case.file, case.phase)


def value_at(gpu: Gpu, path: str) -> Any:
    def member(holder: Any, name: str) -> Any:
        if isinstance(holder, dict):
            return holder.get(name)
        if isinstance(holder, tuple):
            return holder[int(name)] if int(name) < len(holder) else None
        return getattr(holder, name)

    return reduce(member, path.split("."), gpu)


def samples_of(case: Case, field: Field, expected: Any) -> list[Any]:
    """The whole GPU's samples of a field's series; `=` stands for the printed value as a label."""
    wanted = {name: expected if value == "=" else value for name, value in field.labels}
    return [
        sample
        for sample in shown(case)[1].get("gpuwatch_" + field.metric, [])
        if "gi" not in sample.labels and wanted.items() <= sample.labels.items()
    ]


def rows(case: Case, *, absent: bool) -> list[Field]:
    """What the machine has printed; `absent`: as not supported."""
    return [
        field for field in FIELDS if field.label in printed(case) and (printed(case)[field.label] in ABSENT) == absent
    ]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gpuwatch_says_what_nvidia_smi_shows(case):
    assert len(rows(case, absent=False)) > 10
    for field in rows(case, absent=False):
        expected = field.convert(printed(case)[field.label])
        assert value_at(shown(case)[0], field.path) == pytest.approx(expected), field.label
        if field.metric:
            (sample,) = samples_of(case, field, expected)
            assert sample.value == pytest.approx(1 if isinstance(expected, str) else float(expected)), field.label


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_the_model_does_not_support_is_absent(case):
    for field in rows(case, absent=True):
        assert value_at(shown(case)[0], field.path) is None, field.label
        if field.metric and "=" not in dict(field.labels).values():
            assert samples_of(case, field, None) == [], field.label


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_printed_line_is_shown_or_left_out_on_purpose(case):
    compared = {field.label for field in FIELDS}

    assert [
        label for label in printed(case) if label and label not in compared and not label.startswith(LEFT_OUT)
    ] == []


@pytest.mark.parametrize("case", CASES, ids=str)
def test_processes_are_those_of_nvidia_smi(case):
    blocks = repeated(case.file, case.phase, "Processes", "GPU instance ID")

    def instance(text: str) -> int | None:
        return None if text == "N/A" else int(text)

    expected = sorted(
        (
            int(block["Process ID"]),
            {"C": "compute", "G": "graphics", "C+G": "compute+graphics"}[block["Process ID / Type"]],
            MEBIBYTES(block["Process ID / Used GPU Memory"]),
            instance(block["GPU instance ID"]),
            instance(block["Compute instance ID"]),
        )
        for block in blocks
    )
    found = [(p.pid, p.type, p.used_memory, p.gi, p.ci) for p in shown(case)[0].processes]

    assert found == expected


@pytest.mark.parametrize("case", CASES, ids=str)
def test_mig_devices_are_those_of_nvidia_smi(case):
    blocks = repeated(case.file, case.phase, "MIG Device", "Index")
    listed = re.findall(r"^  MIG (\S+) +Device +\d+: \(UUID: (\S+)\)", case.file.read_text(), re.MULTILINE)
    expected = [
        (
            int(block["Index"]),
            int(block["GPU Instance ID"]),
            int(block["Compute Instance ID"]),
            int(block["Device Attributes / Shared / Multiprocessor count"]),
            int(block["ECC Errors / Volatile / SRAM Uncorrectable"]),
            *(MEBIBYTES(block[f"Shared FB Memory Usage / {name}"]) for name in ("Total", "Reserved", "Used", "Free")),
            *(MEBIBYTES(block[f"Shared BAR1 Memory / {name}"]) for name in ("Total", "Used", "Free")),
        )
        for block in blocks
    ]
    migs = shown(case)[0].mig

    assert [
        (
            *(mig.index, mig.gi, mig.ci, mig.multiprocessors, mig.ecc_sram_uncorrected),
            *(mig.memory.total, mig.memory.reserved, mig.memory.used, mig.memory.free),
            *(mig.bar1.total, mig.bar1.used, mig.bar1.free),
        )
        for mig in migs
    ] == expected
    assert [(m.profile, m.uuid) for m in migs] == listed


@pytest.mark.parametrize("case", CASES, ids=str)
def test_nvlinks_are_those_of_nvidia_smi(case):
    lines = section(case.file, "capabilities :: nvlink -s")
    expected = [(int(link), float(speed)) for link, speed in re.findall(r"Link (\d+): ([\d.]+) GB/s", "\n".join(lines))]
    links = shown(case)[0].nvlinks

    assert [(link.link, link.speed_bytes_per_second / 1e9) for link in links] == expected
    assert all(link.active for link in links)
