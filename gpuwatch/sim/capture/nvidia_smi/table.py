"""ROWS: which NVML answer each line of an nvidia-smi dump came from. Reading another line is adding a row to its list.

Paths are labels in lower case, words joined by `_`; text and XML, older and newer drivers use different ones.
"""

from gpuwatch.sim.capture.nvidia_smi.ecc import ECC, REPAIRS
from gpuwatch.sim.capture.nvidia_smi.physics import CLOCKS, PCIE, POWER, TEMPERATURE
from gpuwatch.sim.capture.nvidia_smi.row import DumpRow, call
from gpuwatch.sim.capture.nvidia_smi.sources import at
from gpuwatch.sim.capture.nvidia_smi.state import IDENTITY, MEMORY, MODES, USE
from gpuwatch.sim.capture.nvidia_smi.values import count

ROWS: tuple[DumpRow, ...] = (
    *IDENTITY,
    *MODES,
    *USE,
    *MEMORY,
    *POWER,
    *TEMPERATURE,
    *CLOCKS,
    *PCIE,
    *ECC,
    *REPAIRS,
)
"""Answers about a whole GPU; fabric, processes, NVLinks and MIG devices have their own files."""

MIG_ROWS: tuple[DumpRow, ...] = (
    *MEMORY,
    call(
        "nvmlDeviceGetMemoryErrorCounter",
        at(count, "ecc_errors/volatile/sram_uncorrectable", "ecc_error_count/volatile_count/sram_uncorrectable"),
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED",
        "NVML_VOLATILE_ECC",
        "NVML_MEMORY_LOCATION_SRAM",
    ),
    call("nvmlDeviceGetGpuInstanceId", at(count, "gpu_instance_id")),
    call("nvmlDeviceGetComputeInstanceId", at(count, "compute_instance_id")),
)
"""Answers about a MIG device."""
