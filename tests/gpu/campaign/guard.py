"""Makes pynvml refuse every call that could change a GPU: only what reads gets to libnvidia-ml.

`bootstrap` appends a call of `read_only` to the pynvml.py that it unpacks, so that every process of the campaign
(gpuwatch's agent and reader, its tuner, the peer, the tests) has it, whatever it was started by.
"""

import os
import re
import sys
from typing import Any

LOG = "GPUWATCH_CAMPAIGN_REFUSED"
"""Names the file to which refused calls are appended."""

READS = re.compile(
    r"nvml(Init\w*|Shutdown|ErrorString"
    r"|(System|Device|Unit|Vgpu[A-Za-z]*|GpuInstance|ComputeInstance|EventSet|Gpm)?(Get|Is|Query)\w*"
    r"|EventSet(Create|Wait\w*|Free)|DeviceRegisterEvents"
    r"|GpmSample(Alloc|Free|Get)|GpmMigSampleGet|GpmMetricsGet\w*)"
)
"""Functions of libnvidia-ml that change nothing. What is not in this pattern is refused, however new it is."""

NO_PERMISSION = 4  # NVML_ERROR_NO_PERMISSION


def allowed(name: str) -> bool:
    """Whether a function only reads."""
    return READS.fullmatch(name) is not None


def read_only(pynvml: dict[str, Any]) -> None:
    """`pynvml`: the module's namespace. All of its functions get at the library by `_nvmlGetFunctionPointer`."""
    pointer = pynvml["_nvmlGetFunctionPointer"]

    def refusing(name: str) -> Any:
        if allowed(name):
            return pointer(name)
        if path := os.environ.get(LOG):
            with open(path, "a", encoding="utf-8") as log:
                log.write(f"{name} {os.getpid()} {' '.join(sys.argv)[:200]}\n")
        raise pynvml["NVMLError"](NO_PERMISSION)

    pynvml["_nvmlGetFunctionPointer"] = refusing
