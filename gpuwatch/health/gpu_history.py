"""The state kept of one GPU between snapshots, and the growth of its counters."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpuwatch.config import ChecksConfig
from gpuwatch.model.snapshot import Gpu, GpuState, GpuStatus, NvLink
from gpuwatch.model.workload import Workload

HOUR = 3600.0
SPACING = 30.0
"""Seconds between two remembered values of a counter."""

NVLINK_ERRORS = frozenset(
    {"replay", "recovery", "crc", "crc_flit", "crc_data", "ecc_data", "malformed_packet", "buffer_overrun", "receive"}
    | {"local_link_integrity", "link_recovery", "link_recovery_failed"}
)
"""Errors of a faulty link; symbol errors are corrected all the time and mean little."""

RESTARTED = 0.5
"""An energy counter below this share of its last value has restarted: with the driver, or by a reset."""

FAILED_PODS = 256


class RepairEvidence(NamedTuple):
    """The latest evidence that the GPU was reset or has recovered. `at` None: it is newer than all before `order`."""

    order: int
    at: float | None
    why: str


class Growth:
    """How much a counter grew within the last hour. A counter that falls has restarted."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque()

    def add(self, now: float, value: float) -> None:
        """The counter's value at `now`, which never falls."""
        points = self._points
        if points and value < points[-1][1]:
            points.clear()
        if len(points) > 1 and now - points[-2][0] < SPACING:
            points.pop()
        points.append((now, value))
        while now - points[0][0] > HOUR:
            points.popleft()

    @property
    def amount(self) -> float:
        """Over the hour, or over the time for which the counter is known."""
        return self._points[-1][1] - self._points[0][1] if self._points else 0.0


class GpuHistory:
    """One GPU. Members describe the latest snapshot unless stated otherwise."""

    def __init__(self, uuid: str, config: ChecksConfig, node: "Mapping[str, GpuHistory]") -> None:
        """`node`: all GPUs of the node by uuid, this one among them."""
        self.uuid, self.config, self._node = uuid, config, node
        self.status: GpuStatus | None = None
        self.gpu: Gpu | None = None
        """The fresh sample; None where there is none."""
        self.is_new = False
        """Whether the sample is another one than in the snapshot before."""
        self.repair: RepairEvidence | None = None
        self.energy: float | None = None
        """The energy counter as last read, joules."""
        self.clean_seconds = 0.0
        """Seconds without a gap for which the driver has asked for nothing."""
        self.unresponsive_seconds = 0.0
        """Seconds for which no call about it has returned."""
        self.lost_line: str | None = None
        """The kernel log's line about its loss, until it answers again."""
        self.inforom: tuple[int, int] | None = None
        """Order and number of the last XID about the infoROM."""
        self.corrected = Growth()
        self.nvlink_errors = Growth()
        self.is_withheld: bool | None = None
        """Whether the kubelet can allocate nothing of it, though of other GPUs; None where that is not known."""
        self.order = 0
        """The history's order of the latest new sample."""
        self._sampled: float | None = None
        self._uses: Sequence[tuple[int | None, Workload]] = ()
        self._uses_before: Sequence[tuple[int | None, Workload]] = ()
        self._pods: dict[tuple[str | None, str | None], tuple[Workload, float]] = {}
        self._now = 0.0

    def update(
        self,
        status: GpuStatus | None,
        gpu: Gpu | None,
        uses: Sequence[tuple[int | None, Workload]],
        now: float,
        step: float,
        order: int,
    ) -> None:
        """Take the next snapshot: status and sample (None without one), and `uses`: GPU instance and workload of every
        container that was given the GPU or has a process on it. `step`: seconds since the snapshot before.
        """
        self.status, self._now = status, now
        self.gpu = gpu if self.is_fresh else None
        self.is_new = self.gpu is not None and self.gpu.at != self._sampled
        self._uses_before, self._uses = self._uses, uses
        # the last sample of a slow GPU may be minutes old: what the driver asks for meanwhile is not known
        is_slow = status is not None and (status.read_intervals or 0.0) > 1
        clean_seconds = self.gpu is not None and self.gpu.recovery_action == 0 and not is_slow
        self.clean_seconds = self.clean_seconds + step if clean_seconds else 0.0
        hangs = status is not None and status.state is GpuState.UNRESPONSIVE
        self.unresponsive_seconds = self.unresponsive_seconds + step if hangs else 0.0
        if self.gpu is not None and self.is_new:
            self._sampled, self.order = self.gpu.at, order
            energy = self.gpu.power.energy
            if energy is not None:
                if self.energy is not None and energy < RESTARTED * self.energy:
                    self.repair = RepairEvidence(
                        order, None, "its energy counter began at zero: reset, or driver reloaded"
                    )
                self.energy = energy
            corrected = self.gpu.ecc.counts.get("corrected/volatile/total")
            if corrected is not None:
                self.corrected.add(now, corrected)
            if self.gpu.nvlinks:
                self.nvlink_errors.add(now, sum(map(link_errors, self.gpu.nvlinks)))
            self.lost_line = None

    @property
    def is_fresh(self) -> bool:
        """Whether it answers."""
        return self.status is not None and self.status.state is GpuState.FRESH

    @property
    def hangs(self) -> bool:
        """Whether it has not answered for longer than a busy driver needs (`checks.unresponsive_after`)."""
        state = self.status.state if self.status else None
        return state is GpuState.UNRESPONSIVE and self.unresponsive_seconds >= self.config.unresponsive_after

    @property
    def is_in_use(self) -> bool:
        """Whether a container was given it, or a process runs on it."""
        return bool(self._uses)

    def pods(self, gi: int | None = None) -> tuple[Workload, ...]:
        """Workloads that have it, or had it in the snapshot before; with MIG those on instance `gi`, if known."""
        uses = self._uses or self._uses_before
        fitting = (workload for instance, workload in uses if gi is None or instance in (None, gi))
        named = {(w.namespace, w.pod or w.pod_uid, w.container): w for w in fitting}
        return tuple(named.values())

    def add_failed_pods(self, pods: Sequence[Workload], now: float) -> None:
        """Keep the pods whose application failed here; a burst of one pod counts once."""
        for pod in pods:
            name = pod.namespace, pod.pod or pod.pod_uid
            _, before = self._pods.pop(name, (pod, now))
            self._pods[name] = pod, max(now, before)
        while len(self._pods) > FAILED_PODS:
            del self._pods[next(iter(self._pods))]

    def failed_pods(self) -> tuple[Workload, ...]:
        """Pods whose application failed here within the window."""
        return tuple(pod for pod, at in self._pods.values() if self._now - at <= self.config.repeat_window)

    @property
    def other_gpus(self) -> "tuple[GpuHistory, ...]":
        """The node's other GPUs."""
        return tuple(past for past in self._node.values() if past is not self)


def link_errors(link: NvLink) -> int:
    """Errors of one link that matter."""
    if not any(link.errors.values()):
        return 0
    return sum(count for kind, count in link.errors.items() if kind in NVLINK_ERRORS)
