"""Dump rows of a GPU's identity, settings, utilization and memory."""

import re

from gpuwatch.collect.nvml.decode import ARCHITECTURES, BRANDS, COMPUTE_MODES, VIRTUALIZATION_MODES
from gpuwatch.sim.capture.data import Answer
from gpuwatch.sim.capture.nvidia_smi.parse import DumpNode
from gpuwatch.sim.capture.nvidia_smi.row import DumpRow, Source, at, call, either, field, pair, reverse, struct
from gpuwatch.sim.capture.nvidia_smi.values import (
    NoValue,
    count,
    flag,
    memory,
    one_of,
    percentage,
    performance_state,
    plain,
)

_BRANDS = reverse(BRANDS) | {
    "NVIDIA Virtual Applications": 7,
    "NVIDIA Virtual PC": 8,
    "NVIDIA Virtual Compute Server": 9,
    "NVIDIA RTX Virtual Workstation": 10,
    "NVIDIA Cloud Gaming": 11,
}
"""Names that nvidia-smi prints in full and NVML's constants abbreviate."""

IDENTITY = [
    call("nvmlDeviceGetName", at(plain, "product_name")),
    call("nvmlDeviceGetBrand", at(one_of(_BRANDS, 0), "product_brand")),
    call("nvmlDeviceGetArchitecture", at(one_of({"Ada": 8} | reverse(ARCHITECTURES)), "product_architecture")),
    call("nvmlDeviceGetSerial", at(plain, "serial_number", "serial")),
    call("nvmlDeviceGetBoardPartNumber", at(plain, "board_part_number")),
    call("nvmlDeviceGetVbiosVersion", at(plain, "vbios_version")),
    call("nvmlDeviceGetInforomImageVersion", at(plain, "inforom_version/image_version", "inforom_version/img_version")),
    DumpRow("nvmlDeviceGetGspFirmwareVersion", (), (at(plain, "gsp_firmware_version"),), lambda v: {"bytes": v}),
    call("nvmlDeviceGetMinorNumber", at(count, "minor_number")),
]

_LICENSE = ("vgpu_software_licensed_product", "grid_licensed_product")
_EXPIRY = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2}) (\d{1,2}):(\d{1,2}):(\d{1,2}) GMT")


def _license(product: str, status: str) -> Answer:
    """`Licensed (Expiry: 2026-7-7 16:1:44 GMT)`, `Licensed (Expiry: N/A)`, `Unlicensed (Restricted)`."""
    until = _EXPIRY.search(status)
    parts = map(int, until.groups() if until else ("0",) * 6)
    expiry = dict(zip(("year", "month", "day", "hour", "min", "sec"), parts, strict=True)) | {
        "status": 2 if until else 3
    }
    feature = {"featureState": int(status.startswith("Licensed")), "featureEnabled": 1, "productName": product}
    features = [{"object": feature | {"licenseExpiry": {"object": expiry}}}]
    members = {"isGridLicenseSupported": 1, "licensableFeaturesCount": 1, "gridLicensableFeatures": features}
    return {"object": members}


MODES = [
    DumpRow(
        "nvmlDeviceGetGridLicensableFeatures_v4",
        (),
        tuple(
            at(plain, *(f"{section}/{label}" for section in _LICENSE for label in labels))
            for labels in (("product_name", "licensed_product_name"), ("license_status",))
        ),
        _license,
    ),
    call("nvmlDeviceGetPersistenceMode", at(flag, "persistence_mode")),
    call("nvmlDeviceGetDisplayActive", at(flag, "display_active")),
    call("nvmlDeviceGetDisplayMode", at(flag, "display_attached", "display_mode")),
    call("nvmlDeviceGetAccountingMode", at(flag, "accounting_mode")),
    call("nvmlDeviceGetComputeMode", at(one_of(reverse(COMPUTE_MODES)), "compute_mode")),
    call(
        "nvmlDeviceGetVirtualizationMode",
        at(one_of(reverse(VIRTUALIZATION_MODES)), "gpu_virtualization_mode/virtualization_mode"),
    ),
    DumpRow(
        "nvmlDeviceGetMigMode",
        (),
        (
            at(flag, "mig_mode/current", "mig_mode/current_mig"),
            either(
                at(flag, "mig_mode/pending", "mig_mode/pending_mig"),
                at(flag, "mig_mode/current", "mig_mode/current_mig"),
            ),
        ),
        pair,
    ),
    call("nvmlDeviceGetPerformanceState", at(performance_state, "performance_state")),
    field(
        "DEV_GET_GPU_RECOVERY_ACTION",
        at(
            one_of(
                {
                    "None": 0,
                    "Reset": 1,
                    "GPU Reset": 1,
                    "Reboot": 2,
                    "Node Reboot": 2,
                    "Drain P2P": 3,
                    "Drain and Reset": 4,
                    "Recover IMEX Domain": 5,
                    "Bus Reset": 6,
                    "System Reboot": 7,
                }
            ),
            "gpu_recovery_action",
        ),
    ),
    field("DEV_RESET_STATUS", at(flag, "gpu_reset_status/reset_required")),
    field("DEV_DRAIN_AND_RESET_STATUS", at(flag, "gpu_reset_status/drain_and_reset_recommended")),
    # one speed is printed, whatever the number of fans
    DumpRow("nvmlDeviceGetNumFans", (), (at(percentage, "fan_speed"),), lambda _: 1),
    call("nvmlDeviceGetFanSpeed", at(percentage, "fan_speed")),
    call("nvmlDeviceGetFanSpeed_v2", at(percentage, "fan_speed"), 0),
]


def _engine(name: str, *labels: str) -> DumpRow:
    source = at(percentage, *(f"utilization/{label}" for label in labels))
    return DumpRow(f"nvmlDeviceGet{name}Utilization", (), (source,), lambda value: [value, 0])


def _utilization(gpu: DumpNode) -> Answer:
    """Some GPUs without memory of their own have only the first of the two."""
    shares: dict[str, int] = {}
    problem = NoValue()
    for name in ("gpu", "memory"):
        try:
            shares[name] = at(percentage, f"utilization/{name}", f"utilization/{name}_util")(gpu)
        except NoValue as error:
            if error.code != problem.code:
                raise
    if not shares:
        raise problem
    return {"object": {"gpu": None, "memory": None} | shares}


USE = [
    DumpRow("nvmlDeviceGetUtilizationRates", (), (_utilization,)),
    _engine("Encoder", "encoder", "encoder_util"),
    _engine("Decoder", "decoder", "decoder_util"),
    _engine("Jpg", "jpeg", "jpeg_util"),
    _engine("Ofa", "ofa", "ofa_util"),
]


def _memory(section: str, *, shared: str = "") -> dict[str, Source]:
    sections = (shared, section) if shared else (section,)
    return {
        name: at(memory, *(f"{found}/{name}" for found in sections)) for name in ("total", "used", "free", "reserved")
    }


_FB = _memory("fb_memory_usage", shared="shared_fb_memory_usage")
_BAR1 = _memory("bar1_memory_usage", shared="shared_bar1_memory")

PROTECTED = DumpRow(
    "nvmlDeviceGetConfComputeProtectedMemoryUsage",
    (),
    tuple(
        at(memory, *(f"{section}_protected_memory_usage/{name}" for section in ("conf_compute", "cc")))
        for name in ("total", "used", "free")
    ),
    struct("c_nvmlMemory_t", "total", "used", "free"),
)
"""Of a whole GPU; MIG devices do not have it."""

MEMORY = [
    DumpRow(
        "nvmlDeviceGetMemoryInfo",
        ("nvmlMemory_v2",),
        (_FB["total"], _FB["used"], _FB["free"], _FB["reserved"]),
        struct("c_nvmlMemory_v2_t", "total", "used", "free", "reserved"),
    ),
    DumpRow(
        "nvmlDeviceGetMemoryInfo",
        (),
        (_FB["total"], _FB["used"], _FB["free"]),
        struct("c_nvmlMemory_t", "total", "used", "free"),
    ),
    DumpRow(
        "nvmlDeviceGetBAR1MemoryInfo",
        (),
        (_BAR1["total"], _BAR1["used"], _BAR1["free"]),
        struct("c_nvmlBAR1Memory_t", "bar1Total", "bar1Used", "bar1Free"),
    ),
]
