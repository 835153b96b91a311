"""The input for judging causes of low speed: one GPU of a View, its last minutes, its users and its peers."""

from collections.abc import Sequence
from statistics import fmean, median
from typing import NamedTuple

from gpuwatch.model.finding import Finding
from gpuwatch.model.recent import Recent, RecentSample
from gpuwatch.model.snapshot import Gpu, GpuStatus
from gpuwatch.model.view import View
from gpuwatch.model.workload import PodUsage, Workload
from gpuwatch.tuning.model.setting import Knob, Setting
from gpuwatch.workloads.workload_key import key_of_pod

WINDOW = 120.0
"""Seconds of samples by which causes are judged."""

CLOCK_WINDOW = 60.0
"""Shorter, for clocks: a new lock or limit shows soon."""

BUSY, IDLE = 0.5, 0.05
"""Utilization of a sample at work, and of one without work."""


class SlowGpu(NamedTuple):
    """One GPU. `samples`: those of the window, oldest first; `peers`: GPUs of its model with the same owners."""

    status: GpuStatus
    gpu: Gpu | None
    findings: tuple[Finding, ...]
    samples: tuple[RecentSample, ...]
    settings: dict[Knob, Setting]
    users: tuple[Workload, ...]
    usage: tuple[PodUsage, ...]
    peers: "tuple[SlowGpu, ...]" = ()

    @property
    def busy(self) -> tuple[RecentSample, ...]:
        """Its samples at work, of the shorter window."""
        since = self.samples[-1].at - CLOCK_WINDOW if self.samples else 0.0
        return tuple(each for each in self.samples if (each.utilization or 0.0) >= BUSY and each.at >= since)

    @property
    def clock(self) -> float | None:
        """Usual SM clock at work, hertz."""
        known = [each.clock for each in self.busy if each.clock]
        return median(known) if known else None

    @property
    def is_clock_steady(self) -> bool:
        """Whether its clocks at work are equal (within 2 %), without the highest and the lowest fifth."""
        known = sorted(each.clock for each in self.busy if each.clock)
        cut = len(known) // 5
        return bool(known) and known[len(known) - 1 - cut] - known[cut] <= 0.02 * known[-1]

    @property
    def clock_loss(self) -> float | None:
        """Share by which its clock is below its highest."""
        most = self.gpu.clocks.sm_max if self.gpu else None
        return max(0.0, 1 - self.clock / most) if self.clock and most else None

    @property
    def clocks(self) -> str:
        """`1200 of 1980 MHz`."""
        most = self.gpu.clocks.sm_max if self.gpu else None
        return " of ".join("?" if each is None else f"{each / 1e6:.0f}" for each in (self.clock, most)) + " MHz"

    @property
    def use(self) -> float | None:
        """Mean utilization."""
        return _mean([each.utilization for each in self.samples])

    @property
    def sm(self) -> float | None:
        """Mean SM activity."""
        return _mean([each.sm for each in self.samples])

    def held(self, *reasons: str) -> float:
        """Share of the samples at work in which one of these clock event reasons was active."""
        return fmean(any(reason in each.held for reason in reasons) for each in self.busy) if self.busy else 0.0


def slow_gpus(view: View, recent: Recent, settings: Sequence[Setting] = ()) -> list[SlowGpu]:
    """Every GPU of the View, its peers joined."""
    fresh = {gpu.identity.uuid: gpu for gpu in view.snapshot.gpus}
    gpus = []
    for status in view.snapshot.statuses:
        uuid = status.identity.uuid
        usage = tuple(each for each in view.attribution.usage if each.gpu == uuid)
        holders = [holder.workload for each in view.attribution.devices if each.gpu == uuid for holder in each.holders]
        gpus.append(
            SlowGpu(
                status=status,
                gpu=fresh.get(uuid),
                findings=tuple(finding for finding in view.judgement.findings if finding.gpu == uuid),
                samples=tuple(each for each in recent.gpus.get(uuid, ()) if view.snapshot.at - each.at <= WINDOW),
                settings={each.knob: each for each in settings if each.uuid == uuid},
                users=tuple(dict.fromkeys([*holders, *(each.workload for each in usage)])),
                usage=usage,
            )
        )
    kinds: list[tuple[str | None, frozenset[tuple[str, str]]]] = []  # the model, and the owners of the users
    for gpu in gpus:
        owners = (key_of_pod(user.namespace or "", user.pod or user.pod_uid or "") for user in gpu.users)
        kinds.append((gpu.status.identity.name, frozenset((owner.namespace, owner.name) for owner in owners)))
    return [
        gpu._replace(peers=tuple(o for o, k in zip(gpus, kinds, strict=True) if o is not gpu and kind[1] and k == kind))
        for gpu, kind in zip(gpus, kinds, strict=True)
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
