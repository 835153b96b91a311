"""Rows of METRICS about right-sizing: what an agent recommends, and of how much work it knows enough to say anything.

Of recommendations with series of their own there are `rightsizing.top` at most, the dearest: a cluster's work comes and
goes, and every name is a series for ever in a Prometheus.
"""

from collections import Counter
from functools import partial
from typing import NamedTuple

from gpuwatch.metrics.labelled_view import Scene
from gpuwatch.metrics.metric import Metric, Parts, Sample, distinct, node, summed
from gpuwatch.model.recommendation import Finding, Recommendation, Recommendations

Row = Metric[Scene]
_row = partial(Row, scope="node", owned=True)
TARGET = ("kind", "action", "namespace", "workload", "container", "confidence")


class Told(NamedTuple):
    """The newest advice; the first `top` items become series."""

    body: Recommendations
    top: int


def _dearest(scene: Scene) -> tuple[Recommendation, ...]:
    return scene.advice.body.items[: scene.advice.top] if scene.advice else ()


def _target(item: Recommendation) -> tuple[str, tuple[str | None, ...]]:
    target = item.target
    return "", (item.kind, item.action, target.namespace, target.name, target.container, item.confidence)


def _info(scene: Scene) -> list[Sample]:
    return distinct(map(_target, _dearest(scene)))


def _gpu_hours(scene: Scene) -> list[Sample]:
    return summed((_target(item), item.savings.gpu_hours_per_day) for item in _dearest(scene))


def _counts(scene: Scene) -> Parts:
    """All kinds, also those that nothing is said of: of zero one can tell since when."""
    if scene.advice is not None:
        found = Counter(item.kind for item in scene.advice.body.items)
        yield from (((kind,), found[kind]) for kind in Finding)


def _workloads(scene: Scene) -> Parts:
    if scene.advice is not None:
        body = scene.advice.body
        yield ("known",), body.workloads - body.learning
        yield ("learning",), body.learning


RIGHTSIZING: tuple[Row, ...] = (
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
        _info,
        TARGET,
    ),
    _row(
        "recommendation_gpu_hours_per_day",
        "GPU-hours a day that following the recommendation would free, estimated.",
        _gpu_hours,
        TARGET,
    ),
)
"""Nothing while `rightsizing.enabled` is false, and before the first advice, a minute after the start."""
