"""Each GPU is well: memory, heat, clocks, modes, and what the driver asks for."""

from gpuwatch.diagnose.check import DiagnosticCheck
from gpuwatch.diagnose.checks.health.board import BOARD
from gpuwatch.diagnose.checks.health.memory import MEMORY
from gpuwatch.diagnose.checks.health.modes import MODES
from gpuwatch.diagnose.checks.remedies import RESET_GPU
from gpuwatch.diagnose.checks.xids import recent
from gpuwatch.diagnose.model import CheckStage

XIDS: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "G05",
        CheckStage.HEALTH,
        "no recent XID asks for a repair",
        "XIDs of the kernel log and of NVML's events, by NVIDIA's catalogue",
        "GPU 3: XID 95: Uncorrectable memory error that could not be contained, 4 min ago",
        RESET_GPU.words,
        recent,
        needs=("N04", "G02", "G03"),
        reads=("view",),
        commands=RESET_GPU.commands,
        each=True,
    ),
)

HEALTH: tuple[DiagnosticCheck, ...] = (*MEMORY, *XIDS, *BOARD, *MODES)
