"""Helps to read what the active checks bring home."""

from gpuwatch.diagnose.active.results import Active, DeviceRun
from gpuwatch.model.view import View

ALL = ("vector_add", "bandwidth", "memory")


def devices(view: View) -> list[str]:
    """What CUDA shows of a node: uuids of GPUs, or of their MIG instances."""
    return [
        uuid
        for gpu in view.snapshot.gpus
        for uuid in ([m.uuid for m in gpu.mig] if gpu.mig_enabled else [gpu.identity.uuid])
    ]


def by_test(active: Active, index: int | None = None) -> dict[str, DeviceRun]:
    """The last run of each test, of one GPU or of all."""
    return {run.test: run for run in active.runs if index in (None, run.index)}
