"""Whose the pods of a fleet's history are, by what kube-state-metrics says of them."""

import re
from collections.abc import Iterator
from typing import TypeVar

from gpuwatch.rightsizing.usage.prometheus_windows import PodFacts
from gpuwatch.workloads.workload_key import CLASSES, MODES, Owner, key_of_pod

Who = tuple[str, str, str]
"""Namespace, pod, container."""

Choice = TypeVar("Choice", bound=str)

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
    said = {_pod(row): row for row, _ in told["annotations"]}
    started = {_pod(row): value for row, value in told["start"]}
    for who in names:
        namespace, pod, container = who
        owner = owners.get((namespace, pod))
        if owner is not None:
            owner = above.get((owner[0], namespace, owner[1])) or owner
        elif owners and (namespace, pod) in started:
            owner = ("Pod", pod)  # its start is known, and that nobody owns it
        key = key_of_pod(namespace, pod, container, images.get(who), owner)
        row = said.get((namespace, pod), {})
        yield (
            who,
            PodFacts(
                key,
                said=_one_of(CLASSES, row.get("annotation_gpuwatch_io_autotune_class")),
                autotune=_one_of(MODES, row.get("annotation_gpuwatch_io_autotune")),
                started=started.get((namespace, pod)),
            ),
        )


def _pod(row: dict[str, str]) -> tuple[str, str]:
    return row.get("namespace", ""), row.get("pod", "")


def _owner(row: dict[str, str]) -> Owner | None:
    kind, name = row.get("owner_kind", ""), row.get("owner_name", "")
    return (kind, name) if kind and name and "<none>" not in (kind, name) else None


def _one_of(choices: tuple[Choice, ...], text: str | None) -> Choice | None:
    return next((each for each in choices if each == text), None)
