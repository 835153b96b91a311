"""What to read of a fleet's history, by few cheap queries: which exporter's metrics, in which steps, how many
at a time.
"""

from statistics import median
from typing import Literal, NamedTuple

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import Record
from gpuwatch.rightsizing.findings.text import span
from gpuwatch.rightsizing.prometheus.api import PrometheusApi
from gpuwatch.rightsizing.prometheus.queries import DIALECTS, NAMES, Dialect

Metrics = Literal["auto", "gpuwatch", "dcgm"]

STEPS = ((500, 300.0), (2500, 900.0), (float("inf"), 3600.0))
"""Up to so many GPUs, steps of so many seconds: a million windows or two in two weeks, whatever the fleet."""

POINTS = 100_000
"""Values of one reading that are asked for at a time; what a reader holds in memory."""

LONGEST_CHUNK = 86400.0
MOST_STEPS = 10_000
"""Prometheus returns 11,000 points of a series at most."""


class HistoryOptions(Record, frozen=True, kw_only=True):
    """What to read. `window`: seconds up to `end` (unix seconds; None: now); `step`: None is auto; `points`: values of
    one reading at a time.
    """

    window: float = 14 * 86400.0
    end: float | None = None
    step: float | None = None
    metrics: Metrics = "auto"
    namespaces: tuple[str, ...] = ()  # empty: all
    points: int = POINTS


class ReadPlan(NamedTuple):
    """`way`: prefix of kube-state-metrics' labels of namespace and pod; None: it is not there. `steps`: of a chunk."""

    dialect: Dialect
    begin: float
    end: float
    step: float
    steps: int
    way: str | None
    gpus: int

    @property
    def total(self) -> int:
        """Steps in all."""
        return round((self.end - self.begin) / self.step)


def read_plan(api: PrometheusApi, options: HistoryOptions, now: float) -> ReadPlan:
    """Make the plan.

    Raises:
        GpuwatchError: there is no metric of a GPU, or Prometheus does not answer.
    """
    end = options.end if options.end is not None else now
    moments = [end - options.window * part for part in (0.0, 0.25, 0.5, 0.75)]
    dialect = _dialect(api, options, end)
    rows = [row for at in moments for row in api.query(dialect.expression("info", 3600.0), at)]
    gpus = len({row.metric.get(dialect.uuid) for row in rows})
    counts = [count for row in rows if (count := row.now())]
    # A step has two scrapes at least: a rate needs two samples.
    least = max(next(step for most, step in STEPS if gpus <= most), 2 * 3600.0 / median(counts) if counts else 0.0)
    step = options.step or next((step for _, step in STEPS if step >= least), STEPS[-1][1])
    end = end // step * step
    begin = end - max(1.0, options.window // step) * step
    steps = int(max(1, min(LONGEST_CHUNK / step, options.points / max(1, gpus), MOST_STEPS)))
    owners = {way: f'count(last_over_time(kube_pod_owner{{{way}pod!=""}}[10m]))' for way in ("exported_", "")}
    way = next((way for at in moments for way, query in owners.items() if api.query(query, at)), None)
    return ReadPlan(dialect, begin, end, step, steps, way, gpus)


def _dialect(api: PrometheusApi, options: HistoryOptions, end: float) -> Dialect:
    choice = ("gpuwatch", "dcgm") if options.metrics == "auto" else (options.metrics,)
    names = api.names(NAMES, end - options.window, end)
    known = [DIALECTS[name].with_metrics(names) for name in choice if not names.isdisjoint(DIALECTS[name].probes)]
    if len(known) > 1:  # where gpuwatch runs on a few nodes only, dcgm-exporter has the other GPUs
        return max(known, key=lambda dialect: _gpus(api, dialect, end))
    if known:
        return known[0]
    wanted = " or ".join(DIALECTS[name].probes[0] for name in choice)
    raise GpuwatchError(
        f"Prometheus at {api.http.name} knows no GPU",
        f"it has no {wanted} in the last {span(options.window)}",
        "scrape gpuwatch, or name another server or tenant",
    )


def _gpus(api: PrometheusApi, dialect: Dialect, end: float) -> int:
    return len({row.metric.get(dialect.uuid) for row in api.query(dialect.expression("info", 3600.0), end)})
