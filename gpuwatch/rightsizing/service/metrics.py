"""Metrics about right-sizing: what an agent recommends, and of how many workloads it knows enough to judge their size.

At most `rightsizing.top` recommendations, those that save most, have series of their own: a cluster's work comes and
goes, and Prometheus keeps a series for every name.
"""

from collections import Counter
from functools import partial
from typing import NamedTuple

from gpuwatch.metrics.metric import Family, Metric, Parts, distinct, node, summed
from gpuwatch.rightsizing.model.recommendation import FindingKind, Recommendation, Recommendations

TARGET = ("kind", "action", "namespace", "workload", "container", "confidence")


class AdviceSnapshot(NamedTuple):
    """The newest recommendations; the first `top` items become series."""

    body: Recommendations
    top: int


_row = partial(Metric[AdviceSnapshot], scope="node", owned=True)


def rightsizing_families(body: Recommendations | None, top: int) -> list[Family]:
    """For the agent's page of metrics; none while there are no recommendations."""
    return [] if body is None else [row.family(AdviceSnapshot(body, top)) for row in RIGHTSIZING_METRICS]


def _target(item: Recommendation) -> tuple[str, tuple[str | None, ...]]:
    target = item.target
    return "", (item.kind, item.action, target.namespace, target.name, target.container, item.confidence)


def _counts(advice: AdviceSnapshot) -> Parts:
    """All kinds: a series that was 0 shows when the first was found."""
    found = Counter(item.kind for item in advice.body.items)
    return (((kind,), found[kind]) for kind in FindingKind)


def _workloads(advice: AdviceSnapshot) -> Parts:
    yield ("known",), advice.body.workloads - advice.body.learning
    yield ("learning",), advice.body.learning


RIGHTSIZING_METRICS: tuple[Metric[AdviceSnapshot], ...] = (
    _row(
        "rightsizing_workloads",
        "Workloads seen, by whether enough is known of them to judge their size (`known`) or not yet (`learning`).",
        node(_workloads),
        ("state",),
    ),
    _row("recommendations", "Recommendations of right-sizing, by what was found.", node(_counts), ("kind",)),
    _row(
        "recommendation",
        "A recommendation of right-sizing; those that save most, `rightsizing.top` at most.",
        lambda s: distinct(map(_target, s.body.items[: s.top])),
        TARGET,
    ),
    _row(
        "recommendation_gpu_hours_per_day",
        "GPU-hours a day that following the recommendation would free, estimated.",
        lambda s: summed((_target(item), item.savings.gpu_hours_per_day) for item in s.body.items[: s.top]),
        TARGET,
    ),
)
"""No series while `rightsizing.enabled` is false, nor before the first advice, about a minute after the start."""
