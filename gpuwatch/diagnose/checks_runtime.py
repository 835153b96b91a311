"""How containers get GPUs: NVIDIA's toolkit, the container runtime, CDI."""

from gpuwatch.diagnose.check import Check

RUNTIME: tuple[Check, ...] = ()
