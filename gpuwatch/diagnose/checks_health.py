"""Each GPU is well: memory, heat, clocks, modes, and what the driver asks for."""

from gpuwatch.diagnose.check import Check
from gpuwatch.diagnose.remedies import RESET_GPU
from gpuwatch.diagnose.xids import recent
from gpuwatch.model.diagnosis import Stage

HEALTH: tuple[Check, ...] = (
    Check(
        "G05",
        Stage.HEALTH,
        "no recent XID asks for a repair",
        "XIDs of the kernel log and of NVML's events, by NVIDIA's catalogue",
        "GPU 3: XID 95 4 min ago, uncontained ECC error",
        RESET_GPU.words,
        recent,
        needs=("N02",),
        reads=("view",),
        commands=RESET_GPU.commands,
    ),
)
