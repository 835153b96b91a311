"""The key of what outlives a pod: its owner, from the API server, else as far as the pod's name shows it.

Controllers name what they make: a Deployment's ReplicaSet `x-<hash>`, its pods `x-<hash>-<5 letters>`, a CronJob's Jobs
`x-<minutes since 1970>`, a StatefulSet's pods `x-<number>`.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, get_args

from gpuwatch.config import Mode, WorkClassRule
from gpuwatch.model.consent import AUTOTUNE, CLASS, Consents, PodConsent, plain_image
from gpuwatch.model.work import WorkClass, WorkloadKey

Owner = tuple[str, str]
"""Kind and name."""

RANDOM = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of what Kubernetes appends to a name (apimachinery, util/rand)."""

HASH = "[456789bcdf]{7,10}"
"""The hash of a pod template: decimal digits, each replaced by the character of RANDOM at its code point modulo 27."""

_DEPLOYMENT = re.compile(rf"(?P<name>.+)-{HASH}-[{RANDOM}]{{5}}")
_REPLICA_SET = re.compile(rf"(?P<name>.+)-{HASH}")
_SUFFIXED = re.compile(rf"(?P<name>.+)-[{RANDOM}]{{5}}")
_SCHEDULED = re.compile(r"(?P<name>.+)-[0-9]{8,}", re.ASCII)
_NUMBERED = re.compile(r"(?P<name>.+)-[0-9]{1,5}", re.ASCII)

CLASSES: tuple[WorkClass, ...] = get_args(WorkClass)
MODES: tuple[Mode, ...] = get_args(Mode)


class Tenant(NamedTuple):
    """The user of a device: one container of a pod; outside Kubernetes `kind` and `pod` are those of a WorkloadKey."""

    namespace: str
    pod: str
    container: str = ""
    kind: str | None = None


class Tenants:
    """Owners of pods, as far as a process with an API token has read them."""

    def __init__(self, consents: Consents | None = None) -> None:
        consents = consents or Consents(at=0.0)
        self._pods = {(pod.namespace, pod.name): pod for pod in consents.pods}
        self._namespaces = consents.namespaces

    def key(self, tenant: Tenant) -> WorkloadKey:
        """The key of the workload that it belongs to."""
        if tenant.kind is not None:
            return WorkloadKey(namespace="", name=tenant.pod, kind=tenant.kind)
        known = self._pods.get((tenant.namespace, tenant.pod))
        image = known.images.get(tenant.container) if known else None
        return key_of_pod(tenant.namespace, tenant.pod, tenant.container, image, known.owner if known else None)

    def declared_class(self, tenant: Tenant) -> WorkClass | None:
        """The class that its annotation, else its namespace's, names; None: neither is set, or the value is unknown."""
        text = self._annotation(tenant, CLASS)
        return next((each for each in CLASSES if each == text), None)

    def autotune(self, tenant: Tenant) -> str | None:
        """The tuning mode that its annotation, else its namespace's, names; None as in `declared_class`."""
        text = self._annotation(tenant, AUTOTUNE)
        return next((each for each in MODES if each == text), None)

    def _annotation(self, tenant: Tenant, name: str) -> str | None:
        if tenant.kind is not None:
            return None
        known: PodConsent | None = self._pods.get((tenant.namespace, tenant.pod))
        text = known.annotations.get(name) if known else None
        return text or self._namespaces.get(tenant.namespace, {}).get(name)


def key_of_pod(
    namespace: str, pod: str, container: str = "", image: str | None = None, owner: Owner | None = None
) -> WorkloadKey:
    """`owner`: as the API server has it, ReplicaSets and Jobs too; None: derived from the pod's name."""
    kind, name = owner_by_name(pod) if owner is None else root(owner)
    return WorkloadKey(
        namespace=namespace, name=name, container=container, kind=kind, image=plain_image(image) if image else None
    )


def root(owner: Owner) -> Owner:
    """The root owner behind one that another controller has made: a Deployment or a CronJob; else the owner itself."""
    kind, name = owner
    if kind == "ReplicaSet" and (match := _REPLICA_SET.fullmatch(name)):
        return "Deployment", match["name"]
    if kind == "Job" and (match := _SCHEDULED.fullmatch(name)):
        return "CronJob", match["name"]
    return owner


def owner_by_name(pod: str) -> tuple[str | None, str]:
    """Kind and name that a pod's name shows. Kind None: several kinds name their pods so, or the name shows none."""
    if match := _DEPLOYMENT.fullmatch(pod):
        return "Deployment", match["name"]
    if match := _SUFFIXED.fullmatch(pod):  # of a Job, a DaemonSet, ...
        made = match["name"]
        scheduled = _SCHEDULED.fullmatch(made)
        return ("CronJob", scheduled["name"]) if scheduled else (None, made)
    if match := _NUMBERED.fullmatch(pod):
        return "StatefulSet", match["name"]
    if match := _SCHEDULED.fullmatch(pod):
        return None, match["name"]
    return None, pod


KINDS: dict[WorkClass, tuple[str, ...]] = {
    "batch": (
        *("Job", "CronJob", "JobSet", "SlurmJob", "RayJob", "TrainJob", "AppWrapper", "SparkApplication"),
        *("PyTorchJob", "TFJob", "MPIJob", "JAXJob", "PaddleJob", "XGBoostJob", "MXJob", "DeepSpeedJob"),
        *("Workflow", "CronWorkflow", "PipelineRun", "TaskRun", "FlyteWorkflow", "Trial"),
    ),
    "notebook": ("Notebook",),
    "serving": (
        *("InferenceService", "LLMInferenceService", "RayService", "SeldonDeployment", "NIMService"),
        *("BentoDeployment", "DynamoGraphDeployment", "DynamoComponentDeployment", "InferencePool"),
    ),
}
"""Kinds of owners that do one thing only. A Deployment, a StatefulSet, a RayCluster or a Pod may do anything."""

NOTEBOOK_NAMES = ("jupyter-*", "notebook", "notebook-*", "*-notebook")
NAMED_KINDS = (None, "Pod", "StatefulSet")
"""As JupyterHub and Kubeflow name and own them. A Deployment with such a name may serve notebooks to others."""


def work_class(key: WorkloadKey, declared: WorkClass | None, rules: Sequence[WorkClassRule]) -> WorkClass | None:
    """`declared`: by an annotation; `rules`: `rightsizing.work_classes`. None: no source gives one."""
    if declared is not None:
        return declared
    for rule in rules:
        pairs = ((key.namespace, rule.namespace), (key.name, rule.name), (key.kind or "", rule.kind))
        if all(fnmatchcase(value, pattern) for value, pattern in pairs):
            return rule.work_class
    for kind, kinds in KINDS.items():
        if key.kind in kinds:
            return kind
    is_named = key.kind in NAMED_KINDS and any(fnmatchcase(key.name, pattern) for pattern in NOTEBOOK_NAMES)
    return "notebook" if is_named else None
