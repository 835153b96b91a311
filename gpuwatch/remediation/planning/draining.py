"""Which pods are evicted, and when an eviction is tried again: through the Eviction API only, never by force.

While the node's other GPUs are healthy, only pods on the sick ones are evicted. A pod that the kubelet's allocations do
not tie to a sick GPU is left alone: a guess would end healthy work. With `evict: owner-on-node` the pods of the same
job on this node leave as well: a rank that has lost a peer waits for it, on GPUs that nothing else can use.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from gpuwatch.config import DrainConfig
from gpuwatch.kube.objects import PodGroup, PodObject
from gpuwatch.model.finding import Response
from gpuwatch.model.snapshot import Record
from gpuwatch.model.view import View
from gpuwatch.remediation.model import Blocked, BlockReason, Evict, Fault

LONGEST_WAIT = 300.0
AT_ONCE = 5
"""Evictions in one plan."""

LATE_SECONDS = 60.0
"""For a scheduler that had not received the taint yet."""

TOLERATES = "came after the drain began, so it tolerates the taint: it would only come back"

OVER = ("Succeeded", "Failed")


class EvictionAttempt(Record, frozen=True, kw_only=True):
    """How often a pod's eviction was requested, when last, and why it was refused."""

    tries: int = 0
    at: float = 0.0
    refused: str = ""


class EvictionHistory(Record, frozen=True, kw_only=True):
    """Pod uid -> its evictions so far. Lost at a restart: one more request does no harm."""

    attempts: dict[str, EvictionAttempt] = {}
    newest: float | None = None
    """Creation time, by the API server's clock, of the youngest pod that was there at the first eviction."""
    groups: frozenset[PodGroup] = frozenset()
    """Groups of the pods evicted so far."""

    def with_baseline(self, pods: Sequence[PodObject]) -> "EvictionHistory":
        """With the pods that were there when the drain began."""
        there = [pod.created for pod in pods if pod.created is not None]
        return replace(self, newest=max(there)) if there and self.newest is None else self

    def is_late(self, pod: PodObject) -> bool:
        """Whether the pod was created more than LATE_SECONDS after `newest`."""
        return self.newest is not None and pod.created is not None and pod.created > self.newest + LATE_SECONDS

    def with_attempt(self, pod: PodObject, at: float, refused: str = "") -> "EvictionHistory":
        """After an eviction of `pod` at unix time `at`; `refused`: the API server's reason, empty when it agreed."""
        tries = self.attempts.get(pod.uid, EvictionAttempt()).tries + 1
        return replace(
            self,
            attempts={**self.attempts, pod.uid: EvictionAttempt(tries=tries, at=at, refused=refused)},
            groups=self.groups | ({pod.group} if pod.group else frozenset()),
        )

    def is_due(self, pod: PodObject, retry: float, now: float) -> bool:
        """Whether the pod may be evicted now: `retry` seconds after the last try, doubling."""
        attempt = self.attempts.get(pod.uid)
        if attempt is None:
            return True
        wait = min(retry * 2.0 ** min(attempt.tries - 1, 16), LONGEST_WAIT)
        return not 0 <= now - attempt.at < wait


class DrainProgress(Record, frozen=True, kw_only=True):
    """How far the drain is: the pods that still have to leave, the evictions due now, the obstacles."""

    waiting: tuple[PodObject, ...] = ()
    steps: tuple[Evict, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    late: tuple[PodObject, ...] = ()
    """Pods that came after the drain began: something still gives them the sick GPU."""

    @property
    def is_done(self) -> bool:
        """Whether every pod that had to leave, and may be evicted, is gone."""
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
    """The evictions that are due for `faults`. `since`: when the first pod was evicted."""
    affected, unknown = _affected_pods(view, faults, pods)
    if config.evict == "owner-on-node":
        affected = [*affected, *_pods_of_groups(view, affected, pods, evictions)]
    waiting: list[PodObject] = []
    late: list[PodObject] = []
    obstacles: list[tuple[BlockReason, str]] = []
    for pod in affected:
        attempt = evictions.attempts.get(pod.uid)
        if _stays(pod, config):
            obstacles.append((BlockReason.PROTECTED, f"{pod.path} is never evicted"))
        elif evictions.is_late(pod):
            late.append(pod)
            obstacles.append((BlockReason.PROTECTED, f"{pod.path} {TOLERATES}"))
        else:
            waiting.append(pod)
            if attempt and attempt.refused:
                message = f"{pod.path} may not go yet: {attempt.refused} (asked {attempt.tries} times)"
                obstacles.append((BlockReason.PDB, message))
    for gpu in unknown:
        message = f"it is not known which pods have {gpu}; is the kubelet's socket there?"
        obstacles.append((BlockReason.STALE, message))
    due = [pod for pod in waiting if not pod.deleting and evictions.is_due(pod, config.retry, now)]
    if waiting and since is not None and now - since >= config.deadline:
        names = ", ".join(pod.path for pod in waiting)
        message = f"{names} did not leave within {config.deadline:.0f} s; ask their owners, or delete them by hand"
        obstacles.insert(0, (BlockReason.DEADLINE, message))
        due = []
    return DrainProgress(
        waiting=tuple(waiting),
        steps=tuple(Evict(pod=pod) for pod in due[:AT_ONCE]),
        blocked=tuple(Blocked(reason=reason, message=message) for reason, message in obstacles),
        late=tuple(late),
    )


def _affected_pods(view: View, faults: Sequence[Fault], pods: Sequence[PodObject]) -> tuple[list[PodObject], list[str]]:
    """The pods on the sick GPUs, or all with GPUs when the node itself is sick; and GPUs whose pods are not known."""
    sick = [fault for fault in faults if fault.response.reaches(Response.DRAIN)]
    gpus = {fault.gpu for fault in sick if fault.gpu}
    everything = any(fault.gpu is None for fault in sick)
    uses = [use for use in view.attribution.devices if everything or use.gpu in gpus]
    workloads = [holder.workload for use in uses for holder in use.holders]
    # A uid distinguishes pods that follow each other under one name; where there is no uid, the name is used.
    holders = {each.pod_uid or (f"{each.namespace}/{each.pod}" if each.pod else None) for each in workloads}
    running = [pod for pod in pods if pod.phase not in OVER]
    affected = [pod for pod in running if (everything and pod.gpus) or holders & {pod.uid, pod.path}]
    known = {use.gpu for use in uses if use.allocated is not None or use.holders}
    return affected, [] if everything else sorted(gpus - known)


def _pods_of_groups(
    view: View, affected: Sequence[PodObject], pods: Sequence[PodObject], evictions: EvictionHistory
) -> list[PodObject]:
    """The other pods of the same groups that have GPUs of this node. One that came after the first eviction stays: the
    group started it again, on a healthy GPU.
    """
    groups = evictions.groups | {pod.group for pod in affected if pod.group}
    holders = {holder.workload.pod_uid for use in view.attribution.devices for holder in use.holders}
    known = {pod.uid for pod in affected}
    return [
        pod
        for pod in pods
        if pod.group in groups
        and pod.phase not in OVER
        and (pod.gpus or pod.uid in holders)
        and pod.uid not in known
        and (evictions.newest is None or pod.created is None or pod.created <= evictions.newest)
    ]


def _stays(pod: PodObject, config: DrainConfig) -> bool:
    return pod.mirror or pod.controller == "DaemonSet" or pod.namespace in config.protected_namespaces
