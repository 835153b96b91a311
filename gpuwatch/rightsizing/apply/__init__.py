"""From recommendations to patches, files and commands, for a person to read and to run.

gpuwatch runs none of them. No command ends a workload that may be serving: its owner is asked.
"""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from gpuwatch.rightsizing.apply.kubectl import ApplyContext, kubectl, label, patch, thing
from gpuwatch.rightsizing.apply.node import partitioning, sharing, specs_of
from gpuwatch.rightsizing.apply.pod import annotations, resources
from gpuwatch.rightsizing.model.recommendation import Apply, Recommendation, RecommendedAction
from gpuwatch.rightsizing.model.usage import FleetFacts

Way = Callable[[Recommendation, ApplyContext], tuple[Apply, ...]]


def all_applied(
    recommendations: Iterable[Recommendation], fleet: FleetFacts | None = None
) -> tuple[Recommendation, ...]:
    """The same with `apply` filled where WAYS has a way. All layouts of one node become one configuration.

    `fleet`: what else is on the nodes; without it, the reader must check that.
    """
    known, gpus = tuple(recommendations), (fleet or FleetFacts()).gpus
    cuts = [each for each in known if each.change.layouts]
    specs = specs_of((layout for each in cuts for layout in each.change.layouts), fleet or FleetFacts())
    bearers = (each.id for each in cuts if all(layout.node in specs for layout in each.change.layouts))
    around = ApplyContext(
        specs=specs,
        bearer=next(bearers, ""),
        cut=frozenset(gpu.node for gpu in gpus if gpu.mig_enabled),
        used=frozenset(gpu.node for gpu in gpus if gpu.held),
        alone=fleet is not None and fleet.alone,
    )
    return tuple(
        replace(each, apply=tuple(part for way in WAYS.get(each.action, ()) for part in way(each, around)))
        for each in known
    )


def scale(about: Recommendation, around: ApplyContext) -> tuple[Apply, ...]:
    """Ends work that holds a GPU and does not use it: only batch and notebooks, whatever the recommendation is."""
    target = about.target
    if target.work_class not in {"batch", "notebook"} or not target.name:
        return ()
    note = UNKNOWN if target.kind is None else SCALE_NOTES.get(target.kind, OTHERS.format(kind=target.kind))
    if not target.namespace:
        note = f"{ELSEWHERE} Ask its owner first." if around.alone else "Ask its owner first."
        command = f"scancel {target.name}" if target.kind == "SlurmJob" and target.name.isdecimal() else None
        return (Apply(what="scale", note=note, command=None if around.alone else command),)
    if around.alone and target.kind not in ONE_POD:
        return (Apply(what="scale", note=f"{ELSEWHERE} {note}"),)
    command = _scaling(target.kind, target.name, target.pods, target.namespace)
    return (Apply(what="scale", note=note, command=command),)


ONE_POD = ("Pod", "Notebook")
"""Kinds that have no pods on other nodes."""

ELSEWHERE = "Only this node was seen: look first whether it works on others, as all of it would end."
UNKNOWN = "Who makes its pods is not known: end it there. A deleted pod may come back."
OTHERS = "End it by its {kind}: a deleted pod may come back."

SCALE_NOTES = {
    "Deployment": "Back again with --replicas and the number it has now. Where an operator owns it (an InferenceService"
    " does), that scales it up again: stop it there.",
    "StatefulSet": "Back again with --replicas and the number it has now. Where a controller owns it (a Notebook of"
    " Kubeflow does), that scales it up again: stop it there.",
    "ReplicaSet": "Back again with --replicas and the number it has now. Where a controller owns it, scale that.",
    "Job": "Suspends it: its pods end, what they hold in memory is lost; `suspend` false starts it again.",
    "CronJob": "Suspends the Jobs that run now: their pods end. The next one comes as planned.",
    "Pod": "Its memory is lost. A hub starts it again when its user comes back; a bare pod stays away.",
}


def _scaling(kind: str | None, name: str, pods: tuple[str, ...], namespace: str) -> str | None:
    suspended = {"spec": {"suspend": True}}
    match kind:
        case "Deployment" | "StatefulSet" | "ReplicaSet":
            return kubectl("scale", thing(kind, name), "--replicas=0", namespace=namespace)
        case "Job":
            return patch("Job", name, suspended, "merge", namespace=namespace)
        case "CronJob":
            jobs = sorted({pod.rpartition("-")[0] for pod in pods if pod.startswith(f"{name}-")})
            return "\n".join(patch("Job", job, suspended, "merge", namespace=namespace) for job in jobs) or None
        case "Pod":
            return kubectl("delete", thing("Pod", name), namespace=namespace)
    return None


def quota(about: Recommendation, _: ApplyContext) -> tuple[Apply, ...]:
    """A ResourceQuota limits extended resources by the prefix `requests.` only; its other limits stay."""
    hard = {f"requests.{name.removeprefix('requests.')}": str(count) for name, count in about.change.hard.items()}
    namespace, name = about.target.namespace, about.change.quota
    if not hard or not namespace:
        return ()
    change = {"spec": {"hard": hard}}
    if name is None:
        note = f"The name of the ResourceQuota in {namespace} is not known; this goes into it."
        return (Apply(what="resource_quota", note=note, manifest=change),)
    command = patch("ResourceQuota", name, change, "merge", namespace=namespace)
    note = "Running pods stay; a quota only keeps new ones out. Change it where the manifest is kept, too."
    return (Apply(what="resource_quota", note=note, command=command, manifest=change),)


RESERVED = "gpuwatch.io/gpu-reserved"


def reserving(about: Recommendation, _: ApplyContext) -> tuple[Apply, ...]:
    """A taint and a label that only the namespace's pods tolerate and ask for."""
    namespace, nodes = about.target.namespace, about.target.nodes
    if not namespace:
        return ()
    toleration = {"key": RESERVED, "operator": "Equal", "value": namespace, "effect": "NoSchedule"}
    fragment = {"spec": {"nodeSelector": {RESERVED: namespace}, "tolerations": [toleration]}}
    back = [kubectl(verb, "nodes", f"--selector={RESERVED}={namespace}", f"{RESERVED}-") for verb in ("taint", "label")]
    note = (
        f"First put the toleration into the templates of {namespace}, and into DaemonSets that do not tolerate"
        " everything (device plugin, exporters); then run the command; then add the nodeSelector. Pods of others stay"
        f" until they end. Back with: {' && '.join(back)}"
    )
    if not nodes:
        return (Apply(what="reserve", note=f"Choose the nodes. {note}", manifest=fragment),)
    taint = kubectl("taint", "--overwrite", "nodes", "--", *nodes, f"{RESERVED}={namespace}:NoSchedule")
    command = "\n".join([taint, label(nodes, RESERVED, namespace)])
    return (Apply(what="reserve", note=note, command=command, manifest=fragment),)


WAYS: dict[RecommendedAction, tuple[Way, ...]] = {
    RecommendedAction.SCALE_DOWN: (scale,),
    RecommendedAction.SHARE: (sharing, resources),
    RecommendedAction.RESIZE: (resources,),
    RecommendedAction.REDUCE: (resources,),
    RecommendedAction.CHANGE_QUOTA: (quota,),
    RecommendedAction.RESERVE: (reserving,),
    RecommendedAction.TUNE: (annotations,),
    RecommendedAction.REPARTITION: (partitioning,),
}
"""All other actions are left to a person: a question, a setting of a server, more CPU."""
