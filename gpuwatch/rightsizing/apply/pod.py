"""How a workload gets other resources or annotations: where its pod template is, and what changes there.

Extended resources of a pod never change: a changed template makes new pods, and an object without one must be
created again. Only templates of Kubernetes' own kinds are patched; those of operators differ from version to version.
"""

from collections.abc import Mapping
from typing import Any

from gpuwatch.rightsizing.apply.kubectl import ApplyContext, kubectl, patch, thing
from gpuwatch.rightsizing.model import mig_profiles
from gpuwatch.rightsizing.model.recommendation import Apply, Recommendation, RecommendationTarget

TEMPLATES: dict[str, tuple[str, ...]] = {
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""Kinds whose template can be patched -> where it is."""

AFTERWARDS = {
    "CronJob": "The next Job gets it; one that runs keeps what it has.",
    "ReplicaSet": "Running pods keep what they have: delete them.",
    "ReplicationController": "Running pods keep what they have: delete them.",
    "DaemonSet": "The pods are replaced node after node.",
}
REPLACED = (
    "The pods are replaced; with the strategy RollingUpdate a new one needs its GPU while the old one has its own."
    " Where an operator owns it (an InferenceService does), that takes the change back: change it there."
)

ELSEWHERE = {
    "Notebook": "spec.template",
    "PyTorchJob": "spec.pytorchReplicaSpecs.Worker.template (and Master)",
    "TFJob": "spec.tfReplicaSpecs.Worker.template",
    "MPIJob": "spec.mpiReplicaSpecs.Worker.template",
    "TrainJob": "spec.trainer.resourcesPerNode",
    "RayCluster": "spec.workerGroupSpecs[].template (and headGroupSpec)",
    "RayJob": "spec.rayClusterSpec.workerGroupSpecs[].template",
    "RayService": "spec.rayClusterConfig.workerGroupSpecs[].template",
    "JobSet": "spec.replicatedJobs[].template.spec.template",
    "LeaderWorkerSet": "spec.leaderWorkerTemplate.workerTemplate",
    "InferenceService": "spec.predictor",
    "Workflow": "the container of its template",
    "Rollout": "spec.template",
}
"""Kinds of operators -> where their manifests have the pod's template."""

RECREATED = {
    "Job": "A Job's template cannot be changed: put this into its manifest, under spec.template.spec.containers, and"
    " create it again with `kubectl replace --force -f FILE`, when losing what it has computed does no harm.",
    "Pod": "The resources of a pod cannot be changed: put this into its manifest, under spec.containers, and create it"
    " again with `kubectl replace --force -f FILE`, or change what creates it (a hub, a pipeline).",
}

FEWER = "What it starts needs the new number (--nproc-per-node, --tensor-parallel-size, ...)."

USUAL = "nvidia.com/gpu"
MIG = "nvidia.com/mig-"

NEEDS = {
    MIG: "Nodes must offer {resource}: GPUs in MIG mode, and the device plugin's MIG strategy `mixed`.",
    "nvidia.com/gpu.shared": "Nodes must offer {resource}: apply the device plugin's configuration first.",
}


def resources(about: Recommendation, _: ApplyContext) -> tuple[Apply, ...]:
    """The container's GPUs as advised."""
    change = about.change
    now = change.resource or USUAL
    then, count = change.to_resource or now, change.to_count
    if count is None or (now, change.count) == (then, count):
        return ()
    need = next((words.format(resource=then) for prefix, words in NEEDS.items() if then.startswith(prefix)), "")
    fewer = FEWER if then == now and count < (change.count or count) else ""
    dropped = [now] if now != then else []
    guess = ""
    if not change.resource:
        known = mig_profiles.model_of(about.target.model)
        instances = [profile.resource for profile in known.plain()] if known and then.startswith(MIG) else []
        dropped += [each for each in instances if each != then]  # removing one that is not there changes nothing
        guess = f"What it asks for now is not known, and taken to be {USUAL}{' or an instance' if dropped[1:] else ''}."
    return (_container(about.target, {then: str(count)}, dropped, _words(need, fewer, guess)),)


def annotations(about: Recommendation, _: ApplyContext) -> tuple[Apply, ...]:
    """On running pods, which restarts nothing, and in the manifest for later pods."""
    target, wanted = about.target, about.change.annotations
    if not wanted:
        return ()
    here = bool(target.namespace and target.pods)
    pods = [thing("Pod", pod) for pod in target.pods]
    pairs = [f"{key}={value}" for key, value in sorted(wanted.items())]
    command = kubectl("annotate", *pods, *pairs, "--overwrite", namespace=target.namespace or "") if here else None
    where = _where(target.kind)
    note = f"For pods to come, put the annotations into the pod template's metadata{where}. " + (
        "The command is for the pods that run: nothing restarts." if here else "No pod of it runs now."
    )
    manifest = _at(TEMPLATES.get(target.kind or "", ()), {"metadata": {"annotations": dict(wanted)}})
    return (Apply(what="energy_class", note=note, command=command, manifest=manifest),)


def _container(target: RecommendationTarget, asked: Mapping[str, str], dropped: list[str], need: str) -> Apply:
    """`dropped`: resources that it must not ask for any more."""
    wanted = ", ".join(f"{name}: {count}" for name, count in asked.items())
    if not target.namespace or not target.kind:
        note = f"Ask for {wanted} instead, in limits and requests. Who makes the pods is not known."
        return Apply(what="pod_patch", note=_words(note if target.namespace else f"Ask for {wanted} instead.", need))
    place = TEMPLATES.get(target.kind)
    if place is None or not target.container or not target.name:
        fragment = {"name": target.container, "resources": {"limits": dict(asked), "requests": dict(asked)}}
        note = RECREATED.get(target.kind, f"Put this into the manifest of the {target.kind}{_where(target.kind)}.")
        if dropped:
            note = _words(note, f"Take {', '.join(dropped)} out there.")
        return Apply(what="pod_patch", note=_words(note, need), manifest=fragment)
    changed = {**dict.fromkeys(dropped), **asked}
    container = {"name": target.container, "resources": {"limits": changed, "requests": changed}}
    change = _at(place, {"spec": {"containers": [container]}})
    command = patch(target.kind, target.name, change, "strategic", namespace=target.namespace)
    note = _words(AFTERWARDS.get(target.kind, REPLACED), need, "Change it where the manifest is kept, too.")
    return Apply(what="pod_patch", note=note, command=command, manifest=change)


def _at(place: tuple[str, ...], value: dict[str, Any]) -> dict[str, Any]:
    """The value, nested under the keys of `place`."""
    for key in reversed(place):
        value = {key: value}
    return value


def _where(kind: str | None) -> str:
    return f", under {ELSEWHERE[kind]}" if kind in ELSEWHERE else ""


def _words(*sentences: str) -> str:
    return " ".join(filter(None, sentences))
