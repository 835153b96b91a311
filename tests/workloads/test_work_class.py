"""Whether anybody waits for the work: who says it, in which order, and what is left open."""

import pytest

from gpuwatch.config import WorkClassRule
from gpuwatch.model.work import WorkClass, WorkloadKey
from gpuwatch.workloads.workload_key import work_class


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("Job", "train", "batch"),
        ("CronJob", "jupyter-cleanup", "batch"),
        ("PyTorchJob", "llm", "batch"),
        ("SlurmJob", "4711", "batch"),
        ("Notebook", "ann", "notebook"),
        ("Pod", "jupyter-ann", "notebook"),
        ("StatefulSet", "notebook", "notebook"),
        (None, "jupyter-ann", "notebook"),
        ("InferenceService", "chat", "serving"),
        ("Deployment", "jupyter-hub", None),
        ("Deployment", "chat", None),
        ("RayCluster", "ray", None),
        ("User", "ann", None),
        (None, "chat", None),
    ],
)
def test_the_kind_of_owner_counts(kind: str | None, name: str, expected: WorkClass | None) -> None:
    assert work_class(WorkloadKey(namespace="nlp", kind=kind, name=name), None, ()) == expected


def test_the_annotation_is_before_the_configuration_and_that_before_the_kind() -> None:
    key = WorkloadKey(namespace="nlp", kind="Job", name="chat")
    rules = (
        WorkClassRule(work_class="notebook", namespace="dev-*"),
        WorkClassRule(work_class="serving", name="chat*", kind="Job"),
        WorkClassRule(work_class="batch"),
    )

    assert work_class(key, "notebook", rules) == "notebook"
    assert work_class(key, None, rules) == "serving"
    assert work_class(key, None, rules[:1]) == "batch"
