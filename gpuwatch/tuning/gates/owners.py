"""The owners of the work on each GPU, and which GPUs are therefore set together.

The slowest rank of a parallel job sets its pace, so that a cap on one of its GPUs slows all, and saves energy on one.
"""

from collections.abc import Iterable, Iterator

from gpuwatch.model.consent import Consents, PodConsent
from gpuwatch.model.snapshot import Gpu, Record
from gpuwatch.model.view import View
from gpuwatch.model.workload import Workload
from gpuwatch.workloads.workload_key import key_of_pod

MOST_KEY = 1000
"""Characters of a key by which work is recognised."""

UNKNOWN_OWNER = "a process"
"""The name of an owner that is not known."""


class Owner(Record, frozen=True, kw_only=True):
    """A pod, or outside of pods a Slurm job or an account. `name`: for display; the others are known of pods only,
    and not always: a pod that the kubelet reports has no uid until a process of it is found, another has only a uid.
    """

    name: str
    uid: str | None = None
    namespace: str | None = None
    pod: str | None = None

    @property
    def is_pod(self) -> bool:
        """Whether it is a pod, with a namespace and annotations that count."""
        return self.uid is not None or self.pod is not None

    @property
    def id(self) -> str:
        """Its identity: a pod that is created again under its old name is another owner."""
        return self.uid or self.name


class Gang(Record, frozen=True, kw_only=True):
    """GPUs that are moved together. `owners` empty: none is found on the GPU. `pids`: all processes on them. `shared`:
    one of the GPUs has several owners.
    """

    uuids: tuple[str, ...]
    owners: tuple[Owner, ...] = ()
    pids: frozenset[int] = frozenset()
    shared: bool = False

    @property
    def key(self) -> str:
        """The same as long as the same owners have the same GPUs."""
        return " ".join((*sorted(owner.id for owner in self.owners), "on", *sorted(self.uuids)))


def gangs(view: View, consents: Consents | None) -> tuple[Gang, ...]:
    """Every GPU of the View, in one gang each, by the index of their first GPU.

    A lost GPU stays with the pod that had it. Two GPUs are in one gang if an owner is on both, or pods of one job are.
    """
    samples = {gpu.identity.uuid: gpu for gpu in view.snapshot.gpus}
    order = sorted(view.snapshot.statuses, key=lambda status: status.identity.index)
    on = {
        status.identity.uuid: owners(view, status.identity.uuid, samples.get(status.identity.uuid), consents)
        for status in order
    }
    bonds = {uuid: {bond for owner in on[uuid] for bond in _bonds(owner, consents)} for uuid in on}
    return tuple(
        Gang(
            uuids=tuple(uuids),
            owners=tuple(dict.fromkeys(owner for uuid in uuids for owner in on[uuid])),
            pids=frozenset(
                process.pid for uuid in uuids if (gpu := samples.get(uuid)) for process in gpu.processes or ()
            ),
            shared=any(len(on[uuid]) > 1 for uuid in uuids),
        )
        for uuids in _joined(bonds)
    )


def follow(before: Gang | None, now: Gang) -> tuple[Gang, bool]:
    """The gang to keep, and whether its work is another one than before.

    It is with another owner or other GPUs, and when none of the processes it began with is left: a restarted script may
    do something else. New processes alone are no change: the ranks of a job come one after the other. Processes that
    are gone are kept until others come.
    """
    if before is None or before.key != now.key:
        return now, before is not None
    if now.pids and before.pids.isdisjoint(now.pids):
        return now, bool(before.pids)
    return before, False


def owners(view: View, uuid: str, gpu: Gpu | None, consents: Consents | None = None) -> tuple[Owner, ...]:
    """The owners of the work on a GPU, by name; empty: none is found. `gpu`: its sample, if there is one."""
    holders = (
        holder.workload for device in view.attribution.devices if device.gpu == uuid for holder in device.holders
    )
    pods = {_pod(workload, consents) for workload in holders}
    named = {(pod.namespace, pod.pod) for pod in pods if pod.uid is not None}
    found = {pod.id: pod for pod in pods if pod.uid is not None or (pod.namespace, pod.pod) not in named}
    known = {owner.pid: owner for owner in view.owners}
    for process in gpu.processes or () if gpu else ():
        owner = known.get(process.pid)
        if owner is not None and owner.workload is None and owner.pod_uid is None:
            name = owner.name_outside_pods or UNKNOWN_OWNER
            found[name] = Owner(name=name)
    if not found and gpu and gpu.processes:
        found[UNKNOWN_OWNER] = Owner(name=UNKNOWN_OWNER)
    return tuple(sorted(found.values(), key=lambda owner: (owner.name, owner.id)))


def returning_key(gang: Gang, view: View, consents: Consents | None) -> str | None:
    """The key by which work that comes back is recognised: for each pod its root owner and its images, for other work
    the account and the names of its processes; and the models of its GPUs. None: a pod is not known yet.

    It is an estimate, as the same image may do something else: a cap that is known by it is measured before it is held.
    """
    names = {status.identity.uuid: status.identity.name or "" for status in view.snapshot.statuses}
    parts = [" + ".join(sorted(names.get(uuid, "") for uuid in gang.uuids))]
    for owner in gang.owners:
        pod = consent_of(owner, consents)
        if owner.is_pod and pod is None:
            return None
        if pod is not None:
            key = key_of_pod(pod.namespace, pod.name, owner=pod.owner)
            parts.append(" ".join((pod.namespace, key.kind or "", key.name, *sorted(pod.images.values()))))
    here = [each for each in view.owners if each.pid in gang.pids and each.workload is None and each.pod_uid is None]
    parts += {f"user {each.account or ''} {each.name or ''}" for each in here}
    return " | ".join((parts[0], *sorted(parts[1:])))[:MOST_KEY]


def consent_of(owner: Owner, consents: Consents | None) -> PodConsent | None:
    """The consent of a pod; None: not known. One that is created again under its old name is another pod."""
    pods = consents.pods if consents else ()
    if owner.uid is not None:
        return next((pod for pod in pods if pod.uid == owner.uid), None)
    if owner.pod is None:
        return None
    return next((pod for pod in pods if (pod.namespace, pod.name) == (owner.namespace, owner.pod)), None)


def _pod(workload: Workload, consents: Consents | None) -> Owner:
    name = f"{workload.namespace}/{workload.pod}" if workload.pod else f"pod {workload.pod_uid}"
    owner = Owner(name=name, uid=workload.pod_uid, namespace=workload.namespace, pod=workload.pod)
    known = consent_of(owner, consents)
    if known is None:
        return owner
    return Owner(name=f"{known.namespace}/{known.name}", uid=known.uid, namespace=known.namespace, pod=known.name)


def _bonds(owner: Owner, consents: Consents | None) -> Iterator[str]:
    """What the GPUs of a gang have in common."""
    yield f"owner {owner.id}"
    known = consent_of(owner, consents)
    if known is not None and known.job is not None:
        yield f"job {known.namespace}/{known.job}"


def _joined(bonds: dict[str, set[str]]) -> Iterable[list[str]]:
    """Groups of GPUs, connected by any chain of bonds."""
    groups: list[tuple[list[str], set[str]]] = []
    for uuid, own in bonds.items():
        near = [group for group in groups if group[1] & own]
        rest = [group for group in groups if not group[1] & own]
        members = [member for group in near for member in group[0]]
        groups = [*rest, ([*members, uuid], own.union(*(group[1] for group in near)))]
    order = list(bonds)
    return sorted((sorted(group[0], key=order.index) for group in groups), key=lambda uuids: order.index(uuids[0]))
