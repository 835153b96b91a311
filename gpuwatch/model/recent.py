"""The last minutes of each GPU at low resolution, which one View does not hold. The body of `/api/v1/recent`."""

from collections import deque

from gpuwatch.model.snapshot import Record
from gpuwatch.model.view import SCHEMA, View

SPACING = 5.0
"""Seconds between two samples that are kept."""

KEPT = 120
"""Samples kept of each GPU: ten minutes."""


class RecentSample(Record, frozen=True, kw_only=True, array_like=True):
    """One GPU at unix time `at`. `memory`: share in use, 0..1; `held`: clock event reasons that were active."""

    at: float
    utilization: float | None = None
    sm: float | None = None
    memory: float | None = None
    power: float | None = None
    temperature: float | None = None
    clock: float | None = None
    held: tuple[str, ...] = ()


class Recent(Record, frozen=True, kw_only=True, omit_defaults=False):
    """Samples of the GPUs in the newest View, by uuid, oldest first."""

    schema: int = SCHEMA
    gpus: dict[str, tuple[RecentSample, ...]] = {}


class RecentSamples:
    """Collects samples from Views. One thread calls `add`; others may read `recent`, which is replaced as a whole."""

    def __init__(self, spacing: float = SPACING) -> None:
        self._spacing, self._kept = spacing, dict[str, deque[RecentSample]]()
        self.recent = Recent()

    def add(self, view: View) -> None:
        """Keep those samples of a View that are far enough from the last ones."""
        present = {status.identity.uuid for status in view.snapshot.statuses}
        self._kept = {uuid: samples for uuid, samples in self._kept.items() if uuid in present}
        for gpu in view.snapshot.gpus:
            samples = self._kept.setdefault(gpu.identity.uuid, deque(maxlen=KEPT))
            if samples and 0 <= gpu.at - samples[-1].at < self._spacing:
                continue  # but a sample from before the last one, of a clock that was set back, is kept
            mean, memory = gpu.utilization.gpu_mean, gpu.memory
            samples.append(
                RecentSample(
                    at=gpu.at,
                    utilization=gpu.utilization.gpu if mean is None else mean,
                    sm=gpu.activity.sm,
                    memory=memory.used / memory.total if memory.used is not None and memory.total else None,
                    power=gpu.power.instant if gpu.power.instant is not None else gpu.power.average,
                    temperature=gpu.temperature.gpu,
                    clock=gpu.clocks.sm,
                    held=tuple(reason for reason, active in gpu.clock_events.active.items() if active),
                )
            )
        self.recent = Recent(gpus={uuid: tuple(samples) for uuid, samples in self._kept.items()})
