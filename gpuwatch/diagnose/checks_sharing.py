"""GPUs cut or shared: MIG, MPS, time-slicing."""

from gpuwatch.diagnose.check import Check

SHARING: tuple[Check, ...] = ()
