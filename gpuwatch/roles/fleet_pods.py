"""Whose the pods of a fleet's history are, by what kube-state-metrics says of them."""

import re
from collections.abc import Iterator

from gpuwatch.model.usage import WorkClass
from gpuwatch.rules.history_windows import PodFacts
from gpuwatch.rules.workload_key import CLASSES, Owner, key_of_pod

Who = tuple[str, str, str]
"""Namespace, pod, container."""

Told = dict[str, list[tuple[dict[str, str], float | None]]]
"""By query: labels and value of each row."""

_NAMESPACE = re.compile(r"[a-z0-9-]{1,63}")


def either(names: set[Who]) -> str:
    """A regular expression for their namespaces. What is no DNS label is no namespace, and would need escaping."""
    return "|".join(sorted({namespace for namespace, _, _ in names if _NAMESPACE.fullmatch(namespace)}))


def pod_facts(names: set[Who], told: Told) -> Iterator[tuple[Who, PodFacts]]:
    """Of these containers, by the rows of each query."""
    owners = {_pod(row): owner for row, _ in told["pod_owner"] if (owner := _owner(row))}
    above = {
        (kind, row.get("namespace", ""), row.get(name, "")): _owner(row)
        for kind, query, name in (("ReplicaSet", "replicaset_owner", "replicaset"), ("Job", "job_owner", "job_name"))
        for row, _ in told[query]
    }
    images = {(*_pod(row), row.get("container")): row.get("image") for row, _ in told["image"]}
    said = {_pod(row): _class(row) for row, _ in told["class"]}
    started = {_pod(row): value for row, value in told["start"]}
    for who in names:
        namespace, pod, container = who
        owner = owners.get((namespace, pod))
        if owner is not None:
            owner = above.get((owner[0], namespace, owner[1])) or owner
        elif owners and (namespace, pod) in started:
            owner = ("Pod", pod)  # its start is known, and that nobody owns it
        key = key_of_pod(namespace, pod, container, images.get(who), owner)
        yield who, PodFacts(key, said.get((namespace, pod)), started.get((namespace, pod)))


def _pod(row: dict[str, str]) -> tuple[str, str]:
    return row.get("namespace", ""), row.get("pod", "")


def _owner(row: dict[str, str]) -> Owner | None:
    kind, name = row.get("owner_kind", ""), row.get("owner_name", "")
    return (kind, name) if kind and name and "<none>" not in (kind, name) else None


def _class(row: dict[str, str]) -> WorkClass | None:
    return next((each for each in CLASSES if each == row.get("annotation_gpuwatch_io_autotune_class")), None)
