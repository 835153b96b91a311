"""Which pods are asked to leave, and when again: through the Eviction API only, never by force.

While the node's other GPUs are well, only pods on the sick ones have to go. Whom the kubelet's word does not tie to a
sick GPU is not asked: a guess would end healthy work.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from gpuwatch.config import DrainConfig
from gpuwatch.kube.objects import PodObject
from gpuwatch.model.finding import Response
from gpuwatch.model.snapshot import Record
from gpuwatch.model.view import View
from gpuwatch.model.workload import Workload
from gpuwatch.remediation.model import Blocked, BlockReason, Evict, Fault

LONGEST_WAIT = 300.0
AT_ONCE = 5
"""EvictionHistory in one plan."""

LATE_SECONDS = 60.0
"""For a scheduler that had not heard of the taint."""

TOLERATES = "came after the drain began, so it tolerates the taint: it would only come back"

OVER = ("Succeeded", "Failed")


class EvictionAttempt(Record, frozen=True, kw_only=True):
    """How often a pod was asked to leave, when last, and what stood against it."""

    tries: int = 0
    at: float = 0.0
    refused: str = ""


class EvictionHistory(Record, frozen=True, kw_only=True):
    """Pod uid -> how asking went. Forgotten at a restart: asking once more does no harm."""

    attempts: dict[str, EvictionAttempt] = {}
    newest: float | None = None
    """When the youngest pod was created, by the API server's clock, that was there when the first one was asked."""

    def among(self, pods: Sequence[PodObject]) -> "EvictionHistory":
        """With these the drain began."""
        there = [pod.created for pod in pods if pod.created is not None]
        return replace(self, newest=max(there)) if there and self.newest is None else self

    def knows_late(self, pod: PodObject) -> bool:
        """Whether it has come since."""
        return self.newest is not None and pod.created is not None and pod.created > self.newest + LATE_SECONDS

    def asked(self, pod: PodObject, at: float, refused: str = "") -> "EvictionHistory":
        """After `pod` was asked at unix time `at`; `refused`: the API server's message, empty when it agreed."""
        tries = self.attempts.get(pod.uid, EvictionAttempt()).tries + 1
        return replace(self, attempts={**self.attempts, pod.uid: EvictionAttempt(tries=tries, at=at, refused=refused)})


class DrainProgress(Record, frozen=True, kw_only=True):
    """How far the drain is: who still has to go, who may be asked now, what is in the way."""

    waiting: tuple[PodObject, ...] = ()
    steps: tuple[Evict, ...] = ()
    blocked: tuple[Blocked, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether everybody who had to go, and may be asked to, is gone."""
        return not self.waiting and not any(obstacle.reason is BlockReason.STALE for obstacle in self.blocked)


def drain(
    view: View,
    faults: Sequence[Fault],
    pods: Sequence[PodObject],
    config: DrainConfig,
    evictions: EvictionHistory,
    now: float,
    since: float | None,
) -> DrainProgress:
    """Ask those who have to go and whose time has come. `since`: when the first one was asked."""
    sick = [fault for fault in faults if fault.response.reaches(Response.DRAIN)]
    meant, doubts = _meant(view, sick, pods)
    staying = [pod for pod in meant if _stays(pod, config)]
    waiting = tuple(pod for pod in meant if not _stays(pod, config))
    blocked = [Blocked(reason=BlockReason.PROTECTED, message=f"{pod.path} is never evicted") for pod in staying]
    late = [pod for pod in waiting if evictions.knows_late(pod)]
    blocked += [Blocked(reason=BlockReason.PROTECTED, message=f"{pod.path} {TOLERATES}") for pod in late]
    waiting = tuple(pod for pod in waiting if pod not in late)
    blocked += [Blocked(reason=BlockReason.STALE, message=message) for message in doubts]
    blocked += [
        Blocked(
            reason=BlockReason.PDB,
            message=f"{pod.path} may not go yet: {attempt.refused} (asked {attempt.tries} times)",
        )
        for pod in waiting
        if (attempt := evictions.attempts.get(pod.uid)) and attempt.refused
    ]
    if waiting and since is not None and now - since >= config.deadline:
        names = ", ".join(pod.path for pod in waiting)
        message = f"{names} did not leave within {config.deadline:.0f} s; ask their owners, or delete them by hand"
        return DrainProgress(waiting=waiting, blocked=(Blocked(reason=BlockReason.DEADLINE, message=message), *blocked))
    due = [pod for pod in waiting if not pod.deleting and _is_due(evictions.attempts.get(pod.uid), config, now)]
    return DrainProgress(waiting=waiting, steps=tuple(Evict(pod=pod) for pod in due[:AT_ONCE]), blocked=tuple(blocked))


def _meant(view: View, sick: Sequence[Fault], pods: Sequence[PodObject]) -> tuple[list[PodObject], list[str]]:
    """The pods on the sick GPUs, or all with GPUs when the node itself is sick; and what cannot be told."""
    running = [pod for pod in pods if pod.phase not in OVER]
    gpus = {fault.gpu for fault in sick if fault.gpu}
    everything = any(fault.gpu is None for fault in sick)
    uses = [use for use in view.attribution.devices if everything or use.gpu in gpus]
    holders = {_who(holder.workload) for use in uses for holder in use.holders}
    meant = [pod for pod in running if (everything and pod.gpus) or holders & {pod.uid, pod.path}]
    told = {use.gpu for use in uses if use.allocated is not None or use.holders}
    dark = [] if everything else sorted(gpus - told)
    doubts = [f"nobody tells which pods have {gpu}; is the kubelet's socket there?" for gpu in dark]
    return meant, doubts


def _who(workload: Workload) -> str | None:
    """A uid tells apart pods that follow each other under one name; where there is none, the name has to do."""
    return workload.pod_uid or (f"{workload.namespace}/{workload.pod}" if workload.pod else None)


def _stays(pod: PodObject, config: DrainConfig) -> bool:
    return pod.mirror or pod.controller == "DaemonSet" or pod.namespace in config.protected_namespaces


def _is_due(attempt: EvictionAttempt | None, config: DrainConfig, now: float) -> bool:
    if attempt is None:
        return True
    wait = min(config.retry * 2.0 ** min(attempt.tries - 1, 16), LONGEST_WAIT)
    return not 0 <= now - attempt.at < wait
