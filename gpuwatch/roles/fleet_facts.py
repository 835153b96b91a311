"""What a fleet is at the end of its history, for those who advise: its GPUs, how they are cut, quotas of namespaces."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from gpuwatch.model.usage import Fleet, GpuFacts, NamespaceUse
from gpuwatch.roles.fleet_chunk import gpu_row
from gpuwatch.roles.fleet_plan import Plan
from gpuwatch.sources.prometheus_api import PrometheusApi, Series
from gpuwatch.sources.prometheus_queries import QUOTA, filled

LATELY = 900.0
"""Seconds in which whoever holds a GPU, or a GPU itself, was scraped."""


def fleet(api: PrometheusApi, plan: Plan, namespaces: Iterable[NamespaceUse], wanted: tuple[str, ...]) -> Fleet:
    """At the end of the plan. `wanted`: namespaces, of which alone quotas are told; empty: all.

    Raises as `PrometheusApi.query` does.
    """
    lately = max(LATELY, plan.step)
    quotas = [row for row in api.query(filled(QUOTA, lately), plan.end) if not wanted or _namespace(row) in wanted]
    used = tuple(_with_quotas(tuple(namespaces), quotas, (plan.end - plan.begin) / 86400))
    return Fleet(gpus=tuple(_gpus(api, plan, lately)), namespaces=used, whole=not wanted)


def _gpus(api: PrometheusApi, plan: Plan, lately: float) -> Iterator[GpuFacts]:
    def asked(name: str) -> list[Series]:
        if name not in plan.dialect.queries:
            return []
        return api.query(plan.dialect.expression(name, lately), plan.end)

    uuid, gi = plan.dialect.uuid, plan.dialect.gi
    held = {row.metric.get(uuid) for row in asked("holders") if _is_held(row, plan)}
    memory = {row.metric.get(uuid): row.now() for row in asked("memory_total") if not row.metric.get(gi)}
    mig = {row.metric.get(uuid): row.now() for row in asked("mig_enabled")}
    cut: dict[str, list[str]] = defaultdict(list)
    for row in asked("instances"):
        cut[row.metric.get(uuid, "")].append(row.metric.get("profile", ""))
    seen: set[str] = set()
    for row in sorted(asked("info"), key=lambda row: sorted(row.metric.items())):
        name = row.metric.get(uuid, "")
        if not name or name in seen:
            continue
        seen.add(name)
        gpu, total, enabled = gpu_row(row.metric, plan.dialect, []), memory.get(name), mig.get(name)
        yield GpuFacts(
            node=gpu.node,
            uuid=name,
            index=gpu.gpu,
            model=gpu.model,
            memory_total=None if total is None else int(total),
            mig_enabled=None if enabled is None else enabled > 0,
            layout=tuple(sorted(cut.get(name, ()))),
            held=name in held,
        )


def _is_held(row: Series, plan: Plan) -> bool:
    """dcgm-exporter has the same series for GPUs that nobody holds, its own pod in the place of the holder's."""
    return plan.dialect.name == "gpuwatch" or bool(row.metric.get("exported_pod") or row.metric.get("pod"))


def _namespace(row: Series) -> str:
    return row.metric.get("exported_namespace") or row.metric.get("namespace", "")


def _with_quotas(used: tuple[NamespaceUse, ...], rows: list[Series], days: float) -> Iterator[NamespaceUse]:
    """Each namespace with its quota. One that has a quota and was never seen used nothing."""
    quotas: dict[tuple[str, str], dict[str, tuple[str, int]]] = defaultdict(dict)
    for row in rows:
        value, resource = row.now(), row.metric.get("resource", "").removeprefix("requests.")
        if value is None:
            continue
        known, kind = quotas[_namespace(row), resource], row.metric.get("type", "")
        name = row.metric.get("resourcequota", "")
        if kind not in known or value < known[kind][1]:  # of several quotas the tightest binds
            known[kind] = (name, int(value))
    for each in used:
        yield _bound(each, quotas.pop((each.namespace, each.resource), {}))
    for (namespace, resource), known in quotas.items():
        idle = NamespaceUse(namespace=namespace, resource=resource, active=(0.0,) * int(days), days=days)
        yield _bound(idle, known)


def _bound(use: NamespaceUse, known: dict[str, tuple[str, int]]) -> NamespaceUse:
    if "hard" not in known:
        return use
    quota, hard = known["hard"]
    spent = known["used"][1] if "used" in known else None
    return msgspec.structs.replace(use, quota=quota, hard=hard, used=spent)
