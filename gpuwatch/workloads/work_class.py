"""Whether anybody waits for the work: what its owner says, else the configuration, else the kind of its owner.

Nothing is guessed: what nobody tells is None, and whoever judges takes it for serving.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from gpuwatch.config import WorkClassRule
from gpuwatch.model.work import WorkClass, WorkloadKey

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


def work_class(key: WorkloadKey, said: WorkClass | None, rules: Sequence[WorkClassRule]) -> WorkClass | None:
    """`said`: by an annotation; `rules`: `rightsizing.work_classes`. None: nobody tells."""
    if said is not None:
        return said
    for rule in rules:
        if _fits(rule, key):
            return rule.work_class
    for kind, kinds in KINDS.items():
        if key.kind in kinds:
            return kind
    is_named = key.kind in NAMED_KINDS and any(fnmatchcase(key.name, pattern) for pattern in NOTEBOOK_NAMES)
    return "notebook" if is_named else None


def _fits(rule: WorkClassRule, key: WorkloadKey) -> bool:
    pairs = ((key.namespace, rule.namespace), (key.name, rule.name), (key.kind or "", rule.kind))
    return all(fnmatchcase(value, pattern) for value, pattern in pairs)
