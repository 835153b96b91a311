"""NVSwitch fabric registration as an nvidia-smi dump shows it."""

from typing import Any

import pynvml

from gpuwatch.sim.capture.nvidia_smi.node import DumpNode
from gpuwatch.sim.capture.nvidia_smi.sources import at, bits
from gpuwatch.sim.capture.nvidia_smi.values import NoValue, count, one_of, plain

STATES = {"Not Supported": 0, "Not Started": 1, "In Progress": 2, "Completed": 3}
TRUTH = {"True": 1, "Yes": 1, "Degraded": 1, "False": 2, "No": 2, "Full": 2}
"""NVML_GPU_FABRIC_HEALTH_MASK_*_TRUE and _FALSE."""

CONFIGURATION = {
    "None": 1,
    "Incorrect SysGUID": 2,
    "Incorrect Chassis SN": 3,
    "No Partition": 4,
    "Insufficient Nvlinks": 5,
    "Incompatible GPU FW": 6,
    "Incompatible GPU Firmware": 6,
    "Invalid Location": 7,
    "GPU State Invalid": 8,
}
HEALTH = {
    1 << 0: ("bandwidth", "degraded_bandwidth"),
    1 << 2: ("route_recovery_in_progress", "route_recovery"),
    1 << 4: ("route_unhealthy",),
    1 << 6: ("access_timeout_recovery",),
}
"""Place in the health mask -> labels."""

_INCORRECT = bits(
    one_of(CONFIGURATION, 0),
    {1 << 8: ("fabric/health/incorrect_configuration", "fabric/health/incorrect_config")},
    required=False,
)
_HEALTH = bits(
    one_of(TRUTH),
    {place: tuple(f"fabric/health/{label}" for label in labels) for place, labels in HEALTH.items()},
)
_STATUS = one_of({"Success": 0} | {text: code for code, text in pynvml.NVMLError._errcode_to_string.items()})


def fabric(gpu: DumpNode) -> dict[str, Any]:
    """Call -> answer: the older call without health, and the newer one where a health is printed.

    Raises:
        NoValue: the GPU has no fabric.
    """
    state = at(one_of(STATES), "fabric/state")(gpu)
    info = {
        "state": state,
        "status": _optional(at(_STATUS, "fabric/status"), gpu),
        "cliqueId": _optional(at(count, "fabric/cliqueid", "fabric/clique_id"), gpu),
        "clusterUuid": cluster(gpu),
    }
    answers = {"nvmlDeviceGetGpuFabricInfo": {"fills": [info]}}
    try:
        health = _HEALTH(gpu) | _INCORRECT(gpu)
    except NoValue:
        return answers
    return answers | {"nvmlDeviceGetGpuFabricInfoV": {"fills": [info | {"healthMask": health}]}}


def cluster(gpu: DumpNode) -> list[int]:
    """The 16 bytes of the cluster's UUID; zeros where none is printed, as NVML has it."""
    try:
        digits = at(plain, "fabric/clusteruuid", "fabric/cluster_uuid")(gpu).replace("-", "")
        return list(bytes.fromhex(digits)[:16])
    except (NoValue, ValueError):
        return [0] * 16


def _optional(source: Any, gpu: DumpNode) -> int:
    try:
        return int(source(gpu))
    except NoValue:
        return 0
