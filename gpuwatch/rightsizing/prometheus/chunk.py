"""Reads one stretch of a fleet's history: one query for each reading, split where the server finds it too large.

The owners of its pods come from kube-state-metrics.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from gpuwatch.rightsizing.prometheus.api import PrometheusApi, Series, TooLarge, number
from gpuwatch.rightsizing.prometheus.queries import GPU_LABELS, KUBERNETES, Dialect, kubernetes, throttled
from gpuwatch.rightsizing.usage.prometheus_windows import (
    OF_BOARD,
    OF_DEVICE,
    Chunk,
    Device,
    GpuRow,
    HolderRow,
    PodFacts,
)
from gpuwatch.workloads.workload_key import CLASSES, MODES, Owner, key_of_pod

PodKey = tuple[str, str, str]
"""Namespace, pod, container."""

Choice = TypeVar("Choice", bound=str)

QueryRows = dict[str, list[tuple[dict[str, str], float | None]]]
"""By query: labels and value of each row."""

_NAMESPACE = re.compile(r"[a-z0-9-]{1,63}")


def either(names: set[PodKey]) -> str:
    """A regular expression for their namespaces. A name that is no DNS label is no namespace, and needs escaping."""
    return "|".join(sorted({namespace for namespace, _, _ in names if _NAMESPACE.fullmatch(namespace)}))


def pod_facts(names: set[PodKey], rows: QueryRows) -> Iterator[tuple[PodKey, PodFacts]]:
    """Of these containers, by the rows of each query."""
    owners = {_pod(row): owner for row, _ in rows["pod_owner"] if (owner := _owner(row))}
    above = {
        (kind, row.get("namespace", ""), row.get(name, "")): _owner(row)
        for kind, query, name in (("ReplicaSet", "replicaset_owner", "replicaset"), ("Job", "job_owner", "job_name"))
        for row, _ in rows[query]
    }
    images = {(*_pod(row), row.get("container")): row.get("image") for row, _ in rows["image"]}
    declared_class = {_pod(row): row for row, _ in rows["annotations"]}
    started = {_pod(row): value for row, value in rows["start"]}
    for who in names:
        namespace, pod, container = who
        owner = owners.get((namespace, pod))
        if owner is not None:
            owner = above.get((owner[0], namespace, owner[1])) or owner
        elif owners and (namespace, pod) in started:
            owner = ("Pod", pod)  # its start is known, and that it has no owner
        key = key_of_pod(namespace, pod, container, images.get(who), owner)
        row = declared_class.get((namespace, pod), {})
        yield (
            who,
            PodFacts(
                key,
                declared_class=_one_of(CLASSES, row.get("annotation_gpuwatch_io_autotune_class")),
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


SHARDS = 4
"""How often one step is split by uuid before the reader gives up: into sixteenths of the fleet."""

BORDER = 1.0
"""A query looks back one step minus so many seconds: before Prometheus 3 both ends counted, a border sample twice."""

SHORTEST = 300.0
"""Seconds, at least, of one query for Kubernetes' facts."""

Expression = Callable[[str], str]
"""From matchers to the query that is sent."""

Matrix = list[tuple[dict[str, str], list[float | None]]]


class ChunkReader:
    """Reads with one dialect. `namespaces`: only devices that pods of these hold; `way`: see `kubernetes`."""

    def __init__(self, api: PrometheusApi, dialect: Dialect, namespaces: tuple[str, ...], way: str | None) -> None:
        self._api, self._dialect, self._way = api, dialect, way
        self._namespaces = "|".join(namespaces)
        self._own_labels = {"uuid": dialect.uuid, "gi": dialect.gi, "profile": dialect.profile}
        self._devices: dict[Device, Device] = {}

    def read(self, start: float, step: float, steps: int) -> Chunk:
        """All that Prometheus has of `steps` steps from `start` on. Raises as `PrometheusApi.query` does."""
        about = (start, step, steps)
        holders = [
            HolderRow(
                device=(labels["uuid"], labels["gi"]),
                namespace=labels["namespace"],
                pod=labels["pod"],
                container=labels["container"],
                profile=labels["profile"] or None,
                resource=labels["resource"] or None,
                samples=row,
            )
            for labels, row in self._holders(*about)
        ]
        names = {(row.namespace, row.pod, row.container) for row in holders}
        return Chunk(
            start=start,
            step=step,
            steps=steps,
            gpus=self._gpus(*about) if holders else {},
            holders=holders,
            grids={
                name: self._grid(name, *about)
                for name in (*OF_DEVICE, *OF_BOARD)
                if name in self._dialect.queries and holders
            },
            own_memory=self._own("pod_memory", *about) if holders else {},
            own_busy=self._own("pod_busy", *about) if holders else {},
            throttled=self._throttled(names, *about),
            pods=self._pods(names, start, step * steps),
        )

    def _holders(self, start: float, step: float, steps: int) -> Matrix:
        found = self._matrix(self._expression("holders", step), start - step, step, steps + 2)
        # of a job that renames, dcgm-exporter's series of a free GPU have the exporter's own pod
        renaming = {labels["job"] for labels, _ in found if labels.get("exported_pod") and "job" in labels}
        named: dict[tuple[tuple[str, str], ...], list[float | None]] = {}
        for labels, row in found:
            way = "exported_" if labels.get("exported_pod") or labels.get("job") in renaming else ""
            if not labels.get(f"{way}pod"):
                continue
            keep = ("uuid", "gi", "profile", "resource")
            who = {name: labels.get(f"{way}{name}", "") for name in ("namespace", "pod", "container")}
            key = tuple(({name: self._label(labels, name) for name in keep} | who).items())
            named[key] = _highest(named.get(key), row)
        return [(dict(key), row) for key, row in named.items()]

    def _gpus(self, start: float, step: float, steps: int) -> dict[str, GpuRow]:
        """By uuid. The labels of a GPU may change; the newest count."""
        expression = self._expression("info", step, all_namespaces=True)
        found: dict[str, GpuRow] = {}
        newest: dict[str, int] = {}
        for labels, row in self._matrix(expression, start - step, step, steps + 2):
            uuid = labels.get(self._dialect.uuid, "")
            last = max((at for at, count in enumerate(row) if count), default=-1)
            before = found.get(uuid)
            if before is None or last >= newest[uuid]:
                newest[uuid] = last
                found[uuid] = gpu_row(labels, self._dialect, _highest(before and before.samples, row))
            else:
                found[uuid] = before._replace(samples=_highest(before.samples, row))
        return found

    def _grid(self, name: str, start: float, step: float, steps: int) -> dict[Device, list[float | None]]:
        rows = self._matrix(self._expression(name, step), start, step, steps)
        found: dict[Device, list[float | None]] = {}
        for labels, row in rows:
            device = self._label(labels, "uuid"), self._label(labels, "gi")
            found[self._devices.setdefault(device, device)] = row  # one key in memory, not one for each reading
        return found

    def _own(self, name: str, start: float, step: float, steps: int) -> dict[Any, list[float | None]]:
        if name not in self._dialect.queries:
            return {}
        found: dict[Any, list[float | None]] = {}
        for labels, row in self._matrix(self._expression(name, step), start, step, steps):
            way = "exported_" if labels.get("exported_pod") else ""
            device = self._label(labels, "uuid"), self._label(labels, "gi")
            who = (device, *(labels.get(f"{way}{each}", "") for each in ("namespace", "pod", "container")))
            found[who] = _highest(found.get(who), row)
        return found

    def _throttled(
        self, names: set[tuple[str, str, str]], start: float, step: float, steps: int
    ) -> dict[tuple[str, str, str], list[float | None]]:
        if not names:
            return {}
        expression = throttled(step - BORDER, either(names))
        try:
            # its series have no uuid, so shards would be the same query again
            rows = self._matrix(lambda _: expression, start, step, steps, SHARDS)
        except TooLarge:  # one step of it is: the rest of the answer is worth more
            return {}
        found = (
            (tuple(labels.get(name, "") for name in ("namespace", "pod", "container")), row) for labels, row in rows
        )
        return {who: row for who, row in found if who in names}

    def _expression(self, name: str, step: float, *, all_namespaces: bool = False) -> Expression:
        """`all_namespaces`: those that were not chosen too."""
        chosen = "" if all_namespaces else self._namespaces
        on = self._dialect.uuid if name in OF_BOARD else f"{self._dialect.uuid}, {self._dialect.gi}"

        def made(matchers: str) -> str:
            wanted = self._dialect.expression(name, step - BORDER, matchers)
            if not chosen:
                return wanted
            ways = (f'exported_namespace=~"{chosen}"', f'exported_namespace="",namespace=~"{chosen}"')
            held = (self._dialect.expression("holders", step - BORDER, way) for way in ways)
            return f"({wanted}) and on ({on}) ({' or '.join(held)})"

        return made

    def _label(self, labels: dict[str, str], name: str) -> str:
        return labels.get(self._own_labels.get(name, name)) or labels.get(name, "")

    def _matrix(self, expression: Expression, start: float, step: float, steps: int, depth: int = 0) -> Matrix:
        """Rows of values by step; the value of a step is that of the query at the step's end."""
        first, last = start + step, start + steps * step
        merged: dict[tuple[tuple[str, str], ...], tuple[dict[str, str], list[float | None]]] = {}
        for series in self._fetch(expression, first, last, step, depth=depth):
            key = tuple(sorted(series.metric.items()))
            _, row = merged.setdefault(key, (series.metric, [None] * steps))
            for at, text in series.values:
                if first - step / 2 < at < last + step / 2:
                    row[round((at - first) / step)] = number(text)
        return list(merged.values())

    def _fetch(
        self, expression: Expression, first: float, last: float, step: float, matchers: str = "", depth: int = 0
    ) -> Iterator[Series]:
        try:
            yield from self._api.query_range(expression(matchers), first, last, step)
            return
        except TooLarge:
            if last <= first and depth == SHARDS:
                raise
        if last > first:
            middle = first + int((last - first) / step / 2) * step
            yield from self._fetch(expression, first, middle, step, matchers, depth)
            yield from self._fetch(expression, middle + step, last, step, matchers, depth)
            return
        for way in ("=~", "!~"):
            half = f'{self._dialect.uuid}{way}"GPU-.{{{depth}}}[0-7].*"'
            both = f"{matchers},{half}" if matchers else half
            yield from self._fetch(expression, first, last, step, both, depth + 1)

    def _pods(self, names: set[tuple[str, str, str]], start: float, length: float) -> dict[Any, PodFacts]:
        if self._way is None or not names:
            return {who: PodFacts(key_of_pod(*who)) for who in names}
        rows = {name: self._kubernetes_rows(name, names, start + length, length) for name in KUBERNETES}
        return dict(pod_facts(names, rows))

    def _kubernetes_rows(
        self, name: str, names: set[tuple[str, str, str]], at: float, length: float
    ) -> list[tuple[dict[str, str], float | None]]:
        way = self._way or ""
        try:
            found = self._api.query(kubernetes(name, length, way, either(names)), at)
        except TooLarge:
            half = length / 2
            if half < SHORTEST:
                raise
            return self._kubernetes_rows(name, names, at - half, half) + self._kubernetes_rows(name, names, at, half)
        return [({key.removeprefix(way): value for key, value in row.metric.items()}, row.now()) for row in found]


def gpu_row(labels: dict[str, str], dialect: Dialect, samples: list[float | None]) -> GpuRow:
    """From the labels of an info metric."""
    node = next((labels[name] for name in GPU_LABELS if labels.get(name)), "")
    if node == labels.get("instance"):
        node = node.rpartition(":")[0] or node
    index = labels.get("gpu", "")
    return GpuRow(node, int(index) if index.isdecimal() else None, labels.get(dialect.model) or None, samples)


def _highest(one: Any, other: list[float | None]) -> list[float | None]:
    """Of two rows of the same series, the larger value in each step."""
    if one is None:
        return other
    return [max((v for v in pair if v is not None), default=None) for pair in zip(one, other, strict=True)]
