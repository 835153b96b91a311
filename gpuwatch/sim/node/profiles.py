"""The simulated GPU models: one frozen row per model, after the output of nvidia-smi -q on real ones.

Draw, clocks, limits, thresholds and layouts of H100, H200, L40S and RTX 4080 SUPER are those of real machines; T4,
A100 and B200 follow NVIDIA's data sheets; GB10 has the answers of its driver, and the draw that its data sheet allows.
"""

import msgspec


class MigProfile(msgspec.Struct, frozen=True):
    """One way to cut a GPU: compute and memory slices, multiprocessors and usable memory in MiB."""

    name: str
    slices: int
    memory_slices: int
    multiprocessors: int
    memory: int


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU model. Watts, MHz, MiB, degrees Celsius, MB/s, as NVML counts them."""

    key: str
    name: str
    brand: int = 14  # nvmlBrandType_t: NVIDIA
    architecture: int  # nvmlDeviceArchitecture_t
    compute_capability: tuple[int, int]
    cores: int
    multiprocessors: int
    device_id: int
    subsystem_id: int
    vbios: str
    part_number: str
    inforom: str
    driver: str = "580.105.08"

    memory: int
    unified: bool = (
        False  # `memory` is the host's: NVML has none, and neither its clock, BAR1, thresholds nor power limits
    )
    reserved: int
    bar1: int
    bus_width: int

    power_limit: int
    power_min: int
    power_max: int
    power_idle: float
    power_context: float  # clocks up for a process that does nothing
    power_full: float  # what a dense GEMM would draw at full clock if no limit held it
    power_static: float = 0.35  # of the dynamic draw, the part that does not fall with the clock
    power_exponent: float = 2.75

    clock_idle: int
    clock_max: int
    memory_clock: int
    memory_clock_idle: int
    video_clock_idle: int
    video_clock_max: int
    idle_state: int = 0  # P-state without work

    thermal_resistance: float  # degrees per watt over the inlet air
    thermal_seconds: float = 25.0
    shutdown: int
    slowdown: int
    max_operating: int
    memory_max: int | None = None  # None: no memory sensor
    acoustic: int | None = None
    margins: bool = True  # states thresholds as T.Limit margins, not in degrees

    pcie_generation: int
    nvlinks: int = 0
    nvlink_version: int = 0  # NVML_NVLINK_VERSION_*
    nvlink_speed: int = 0
    fabric: bool = False
    fans: int = 0
    gpm: bool = False
    ecc: bool = True
    sram_status: bool = True
    retired_pages: bool = False
    remap_banks: int | None = None
    persistence: bool = True
    mig: tuple[MigProfile, ...] = ()

    @property
    def nvlink5(self) -> bool:
        """NVLink 5 counts bytes and errors under fields of its own."""
        return self.nvlink_version >= 7


def _mig(*rows: tuple[str, int, int, float]) -> tuple[MigProfile, ...]:
    """(name, memory slices, multiprocessors, usable GiB), one row a profile."""
    return tuple(
        MigProfile(name, int(name.split("g.")[0]), slices, sms, round(gib * 1024)) for name, slices, sms, gib in rows
    )


_ROWS = (
    Model(
        key="t4", name="Tesla T4", architecture=6, compute_capability=(7, 5), cores=2560, multiprocessors=40,
        device_id=0x1EB810DE, subsystem_id=0x12A210DE, vbios="90.04.38.00.03", part_number="900-2G183-0000-000",
        inforom="G183.0200.00.02", memory=15360, reserved=452, bar1=256, bus_width=256, power_limit=70, power_min=60,
        power_max=70, power_idle=9.6, power_context=26, power_full=78, clock_idle=300, clock_max=1590,
        memory_clock=5000, memory_clock_idle=405, video_clock_idle=540, video_clock_max=1470, idle_state=8,
        thermal_resistance=0.62, thermal_seconds=60, shutdown=96, slowdown=93, max_operating=85, margins=False,
        pcie_generation=3, sram_status=False, retired_pages=True,
    ),
    Model(
        key="a100", name="NVIDIA A100-SXM4-80GB", architecture=7, compute_capability=(8, 0), cores=6912,
        multiprocessors=108, device_id=0x20B210DE, subsystem_id=0x146310DE, vbios="92.00.45.00.05",
        part_number="692-2G506-0210-002", inforom="G506.0210.00.04", memory=81920, reserved=624, bar1=131072,
        bus_width=5120, power_limit=400, power_min=100, power_max=400, power_idle=58, power_context=82, power_full=425,
        power_static=0.4, power_exponent=4.0, clock_idle=210, clock_max=1410, memory_clock=1593, memory_clock_idle=1593,
        video_clock_idle=585, video_clock_max=1275, thermal_resistance=0.083, shutdown=92, slowdown=89,
        max_operating=85, memory_max=95, margins=False, pcie_generation=4, nvlinks=12, nvlink_version=4,
        nvlink_speed=25781, remap_banks=640,
        mig=_mig(("1g.10gb", 1, 14, 9.5), ("1g.20gb", 2, 14, 19.5), ("2g.20gb", 2, 28, 19.5), ("3g.40gb", 4, 42, 39.25),
                 ("4g.40gb", 4, 56, 39.25), ("7g.80gb", 8, 98, 79.0)),
    ),
    Model(
        key="h100", name="NVIDIA H100 80GB HBM3", architecture=9, compute_capability=(9, 0), cores=16896,
        multiprocessors=132, device_id=0x233010DE, subsystem_id=0x16C110DE, vbios="96.00.A5.00.01",
        part_number="692-2G520-0200-000", inforom="G520.0200.00.05", memory=81559, reserved=479, bar1=131072,
        bus_width=5120, power_limit=700, power_min=200, power_max=700, power_idle=69.8, power_context=118,
        power_full=745, memory_clock=2619, memory_clock_idle=2619, thermal_resistance=0.058, shutdown=95, slowdown=89,
        max_operating=87, memory_max=95, pcie_generation=5, nvlinks=18, nvlink_version=6, nvlink_speed=26562,
        fabric=True, gpm=True, remap_banks=2560, clock_idle=345,
        clock_max=1980, video_clock_idle=765, video_clock_max=1545,
        mig=_mig(("1g.10gb", 1, 16, 9.75), ("1g.20gb", 2, 26, 19.62), ("2g.20gb", 2, 32, 19.62),
                 ("3g.40gb", 4, 60, 39.5), ("4g.40gb", 4, 64, 39.5), ("7g.80gb", 8, 132, 79.25)),
    ),
    Model(
        key="h200", name="NVIDIA H200", architecture=9, compute_capability=(9, 0), cores=16896, multiprocessors=132,
        device_id=0x233510DE, subsystem_id=0x18BE10DE, vbios="96.00.A5.00.03", part_number="695-2G520-0280-001",
        inforom="G520.0280.02.02", memory=143771, reserved=614, bar1=262144, bus_width=6144, power_limit=700,
        power_min=200, power_max=700, power_idle=77.9, power_context=126, power_full=750, memory_clock=3201,
        memory_clock_idle=3201, thermal_resistance=0.055, shutdown=95, slowdown=89, max_operating=87, memory_max=95,
        pcie_generation=5, nvlinks=18, nvlink_version=6, nvlink_speed=26562, fabric=True, gpm=True, remap_banks=2560,
        clock_idle=345, clock_max=1980, video_clock_idle=765, video_clock_max=1545,
        mig=_mig(("1g.18gb", 1, 16, 16.0), ("1g.35gb", 2, 26, 32.5), ("2g.35gb", 2, 32, 32.5),
                 ("3g.71gb", 4, 60, 69.75), ("4g.71gb", 4, 64, 69.75), ("7g.141gb", 8, 132, 140.0)),
    ),
    Model(
        key="b200", name="NVIDIA B200", architecture=10, compute_capability=(10, 0), cores=18944, multiprocessors=148,
        device_id=0x290110DE, subsystem_id=0x199910DE, vbios="97.00.88.00.0F", part_number="692-2G525-0220-002",
        inforom="G525.0220.00.03", memory=183359, reserved=720, bar1=262144, bus_width=8192, power_limit=1000,
        power_min=200, power_max=1000, power_idle=141, power_context=198, power_full=1060, clock_idle=120,
        clock_max=1965, memory_clock=3996, memory_clock_idle=3996, video_clock_idle=615, video_clock_max=1860,
        thermal_resistance=0.039, shutdown=95, slowdown=90, max_operating=88, memory_max=95, pcie_generation=5,
        nvlinks=18, nvlink_version=7, nvlink_speed=53125, fabric=True, gpm=True, remap_banks=5120,
        mig=_mig(("1g.23gb", 1, 18, 21.5), ("1g.45gb", 2, 30, 43.5), ("2g.45gb", 2, 36, 43.5), ("3g.90gb", 4, 70, 88.0),
                 ("4g.90gb", 4, 72, 88.0), ("7g.180gb", 8, 148, 178.0)),
    ),
    Model(
        key="l40s", name="NVIDIA L40S", architecture=8, compute_capability=(8, 9), cores=18176, multiprocessors=142,
        device_id=0x26B910DE, subsystem_id=0x185110DE, vbios="95.02.66.00.02", part_number="900-2G133-0080-000",
        inforom="G133.0242.00.03", memory=46068, reserved=609, bar1=65536, bus_width=384, power_limit=350,
        power_min=100, power_max=350, power_idle=33, power_context=82, power_full=380, clock_idle=210, clock_max=2520,
        memory_clock=9001, memory_clock_idle=405, video_clock_idle=1185, video_clock_max=1965, idle_state=8,
        thermal_resistance=0.125, thermal_seconds=45, shutdown=93, slowdown=90, max_operating=88, pcie_generation=4,
        remap_banks=192, persistence=False,
    ),
    Model(
        key="rtx4080s", name="NVIDIA GeForce RTX 4080 SUPER", brand=5, architecture=8, compute_capability=(8, 9),
        cores=10240, multiprocessors=80, device_id=0x270210DE, subsystem_id=0x51471458, vbios="95.03.44.00.B2",
        part_number="", inforom="G002.0000.00.03", memory=16376, reserved=434, bar1=16384, bus_width=256,
        power_limit=320, power_min=150, power_max=400, power_idle=25.9, power_context=48, power_full=330,
        clock_idle=210, clock_max=3165, memory_clock=11501, memory_clock_idle=405, video_clock_idle=1185,
        video_clock_max=2415, idle_state=8, thermal_resistance=0.13, thermal_seconds=50, shutdown=101, slowdown=96,
        max_operating=90, acoustic=84, margins=False, pcie_generation=4, fans=3, ecc=False, sram_status=False,
        persistence=False,
    ),
    Model(
        key="gb10", name="NVIDIA GB10", architecture=10, compute_capability=(12, 1), cores=6144, multiprocessors=48,
        device_id=0x2E1210DE, subsystem_id=0x000010DE, vbios="9A.0B.0D.00.00", part_number="", inforom="",
        driver="580.95.05", memory=122572, unified=True, reserved=0, bar1=0, bus_width=256, power_limit=100,
        power_min=100, power_max=100, power_idle=4.1, power_context=12, power_full=110, clock_idle=208, clock_max=3003,
        memory_clock=8533, memory_clock_idle=8533, video_clock_idle=598, video_clock_max=3003, idle_state=8,
        thermal_resistance=0.4, thermal_seconds=60, shutdown=100, slowdown=95, max_operating=90, margins=False,
        pcie_generation=5, ecc=False, sram_status=False,
    ),
)  # fmt: skip

MODELS = {model.key: model for model in _ROWS}
"""Every model that a scenario can name."""
