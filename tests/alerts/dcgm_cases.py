"""When each alert of the pack on DCGM's names has to fire: a table as `cases` is one, and the public rules it replaces.

Each case is also played beside gpuwatch's native families, where the pack must be silent.
"""

from typing import NamedTuple

from tests.alerts.cases import grows
from tests.alerts.timeline import FAULT, Case, Values

SUBJECT = {"gpu": "3", "UUID": "GPU-3", "Hostname": "n1", "modelName": "NVIDIA H100 80GB HBM3"}
OF_GPU = ",".join(f'{label}="{value}"' for label, value in SUBJECT.items())
NATIVE = 'gpuwatch_gpu_health{job="gpuwatch",gpu="3",uuid="GPU-3",state="healthy"}'
ABSENT = "DcgmMetricsAbsent"


RESTART = 90
"""The minute in which gpuwatch is restarted where it runs beside dcgm-exporter."""


def dcgm(name: str, more: str = "") -> str:
    """A series of the GPU."""
    return f"{name}{{{OF_GPU}{more}}}"


def _xid(code: int) -> str:
    return dcgm("DCGM_EXP_XID_ERRORS_COUNT", f',window_size_in_ms="300000",xid="{code}"')


NO_XID = dcgm("DCGM_EXP_XID_ERRORS_COUNT", ',window_size_in_ms="300000"')
LAST_XID = dcgm("DCGM_FI_DEV_XID_ERRORS", ',err_code="79",err_msg="GPU has fallen off the bus"')
REASONS = dcgm("DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
TEMPERATURE = dcgm("DCGM_FI_DEV_GPU_TEMP")
SBE, DBE = dcgm("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"), dcgm("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")
REPLAYS = dcgm("DCGM_FI_DEV_PCIE_REPLAY_COUNTER")
CRC = dcgm("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL")
REMAP_FAILURE, REMAP_PENDING = dcgm("DCGM_FI_DEV_ROW_REMAP_FAILURE"), dcgm("DCGM_FI_DEV_ROW_REMAP_PENDING")
RETIRED_PENDING = dcgm("DCGM_FI_DEV_RETIRED_PENDING")
UTILIZATION = dcgm("DCGM_FI_DEV_GPU_UTIL", ',namespace="ml",pod="train-0"')
POD = {**SUBJECT, "namespace": "ml", "pod": "train-0"}


def _grew(by: float) -> Values:
    """A counter that grows for 40 minutes."""
    return grows(by, until=FAULT + 39)


CASES = [
    Case(ABSENT, {TEMPERATURE: (40, None)}, target={"cluster": ""}),
    Case(ABSENT, {TEMPERATURE: (40, 40)}, lasts=30, fires=False, why="it is there"),
    Case("DcgmGpuLost", {dcgm("DCGM_FI_DEV_XID_ERRORS", ',err_code="0"'): (0, 0), TEMPERATURE: (40, None)}, SUBJECT),
    Case("DcgmGpuLost", {LAST_XID: (79, 79), TEMPERATURE: (40, 40)}, lasts=30, fires=False, why="it is read again"),
    Case("DcgmXidCritical", {NO_XID: (0, 0), _xid(79): (None, 1)}, {**SUBJECT, "xid": "79"}),
    Case("DcgmXidCritical", {LAST_XID: (79, 79), NO_XID: (0, 0)}, lasts=30, fires=False, why="of old"),
    Case("DcgmXidCritical", {_xid(13): (None, 1), _xid(94): (None, 1)}, lasts=30, fires=False, why="milder ones"),
    Case("DcgmXidContained", {_xid(94): (None, 2)}, {**SUBJECT, "xid": "94"}),
    Case("DcgmXidContained", {_xid(79): (None, 2)}, lasts=30, fires=False, why="a worse one"),
    Case("DcgmXidApplication", {_xid(31): (None, 2)}, {**SUBJECT, "xid": "31"}),
    Case("DcgmXidApplication", {_xid(79): (None, 2), NO_XID: (0, 0)}, lasts=30, fires=False, why="a worse one"),
    Case("DcgmXidOther", {_xid(999): (None, 1)}, {**SUBJECT, "xid": "999"}),
    Case("DcgmXidOther", {NO_XID: (0, 3), _xid(13): (None, 1), _xid(79): (None, 1)}, lasts=9, fires=False, why="named"),
    Case("DcgmEccUncorrectable", {DBE: (0, 2)}, SUBJECT),
    Case("DcgmEccUncorrectable", {DBE: (0, 0), SBE: (9, 9)}, lasts=30, fires=False, why="corrected ones"),
    # increase() reads a counter that began at 0 ten minutes ago: 30 a minute are 1000 after 34 of them
    Case("DcgmEccCorrectableRateHigh", {SBE: _grew(30)}, SUBJECT, delay=33, linger=26, lasts=40),
    Case("DcgmEccCorrectableRateHigh", {SBE: grows(0, born=5000)}, lasts=90, fires=False, why="born with 5000"),
    Case("DcgmRowRemapFailure", {REMAP_FAILURE: (0, 1)}, SUBJECT),
    Case("DcgmRowRemapFailure", {REMAP_FAILURE: (0, 0), REMAP_PENDING: (0, 1)}, lasts=30, fires=False, why="pending"),
    Case("DcgmRepairPending", {REMAP_PENDING: (0, 1)}, SUBJECT),
    Case("DcgmRepairPending", {RETIRED_PENDING: (0, 1)}, SUBJECT),
    Case("DcgmRepairPending", {REMAP_PENDING: (0, 0), RETIRED_PENDING: (0, 0)}, lasts=90, fires=False, why="none"),
    Case("DcgmHardwareSlowdown", {REASONS: (4, 0x48)}, SUBJECT, why="heat"),
    Case("DcgmHardwareSlowdown", {REASONS: (1, 0x88)}, SUBJECT, why="power brake"),
    Case("DcgmHardwareSlowdown", {REASONS: (0, 0x100 + 0x20 + 0x10 + 4)}, lasts=30, fires=False, why="software"),
    Case("DcgmGpuTemperatureHigh", {TEMPERATURE: (60, 88)}, SUBJECT),
    Case("DcgmGpuTemperatureHigh", {TEMPERATURE: (60, 85)}, lasts=30, fires=False, why="warm"),
    Case("DcgmNvlinkErrors", {CRC: _grew(30)}, SUBJECT, delay=33, linger=26, lasts=40),
    Case("DcgmNvlinkErrors", {CRC: grows(0, born=5000)}, lasts=90, fires=False, why="born with 5000"),
    Case("DcgmPcieReplays", {REPLAYS: _grew(3)}, SUBJECT, delay=33, linger=26, lasts=40),
    Case("DcgmPcieReplays", {REPLAYS: grows(0, born=5000)}, lasts=90, fires=False, why="born with 5000"),
    Case("DcgmAllocatedIdle", {UTILIZATION: (80, 0)}, POD, delay=10),
    Case("DcgmAllocatedIdle", {dcgm("DCGM_FI_DEV_GPU_UTIL"): (80, 0)}, lasts=200, fires=False, why="nobody has it"),
]


class Public(NamedTuple):
    """A rule as it stands in public packs, the scenario of the simulator in which it holds, and after how long.

    `dead`: why it never does, on dcgm-exporter itself neither. `always`: why it holds on a healthy node as well.
    """

    expression: str
    scenario: str
    minute: int
    dead: str = ""
    always: str = ""


CAPPED = "nanoseconds: any node that reaches its power limit has them"
FULL = "memory in use is no fault"
LATCHED = "the code is a label as well, so every series is constant"
PUBLIC = (
    Public("DCGM_FI_DEV_GPU_TEMP > 80", "thermal", 8),
    Public("DCGM_FI_DEV_GPU_TEMP > 85", "thermal", 8),
    Public("DCGM_FI_DEV_XID_ERRORS > 0", "fallen-off-bus", 4),
    Public("increase(DCGM_FI_DEV_XID_ERRORS[5m]) > 0", "fallen-off-bus", 4, dead=LATCHED),
    Public('DCGM_EXP_XID_ERRORS_COUNT{xid="79"} > 0', "fallen-off-bus", 4),
    Public("DCGM_FI_DEV_ROW_REMAP_FAILURE > 0", "row-remap", 4),
    Public("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS > 0", "row-remap", 4),
    Public("increase(DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS[6h]) > 5", "worn-memory", 6),
    Public("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL > 0", "ecc-storm", 6),
    Public("increase(DCGM_FI_DEV_ECC_DBE_AGG_TOTAL[10m]) > 0", "ecc-storm", 6),
    Public("rate(DCGM_FI_DEV_ECC_SBE_VOL_TOTAL[5m]) > 0.1", "ecc-storm", 6),
    Public("DCGM_FI_DEV_POWER_VIOLATION > 100", "power-brake", 3, always=CAPPED),
    Public("rate(DCGM_FI_DEV_POWER_VIOLATION[5m]) > 100", "power-brake", 3, always=CAPPED),
    Public("DCGM_FI_DEV_THERMAL_VIOLATION > 100", "thermal", 8),
    Public("rate(DCGM_FI_DEV_THERMAL_VIOLATION[5m]) > 100", "thermal", 8),
    Public("rate(DCGM_FI_DEV_PCIE_REPLAY_COUNTER[5m]) > 0", "replays", 6),
    Public("floor(DCGM_FI_DEV_CLOCKS_EVENT_REASONS / 128) % 2 == 1", "power-brake", 2),
    Public("floor(DCGM_FI_DEV_CLOCKS_EVENT_REASONS / 64) % 2 == 1", "thermal", 8),
    Public("DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE) > 0.8", "healthy", 2, always=FULL),
    Public(
        "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE + DCGM_FI_DEV_FB_RESERVED) > 0.8",
        "healthy",
        2,
        always=FULL,
    ),
    Public("DCGM_FI_DEV_FB_USED / DCGM_FI_DEV_FB_TOTAL > 0.8", "healthy", 2, always=FULL),
    Public("absent(DCGM_FI_DEV_GPU_TEMP)", "gone", 2),
)
