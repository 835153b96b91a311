"""Reads weeks of a fleet's usage from a Prometheus into the usage ledger, chunk by chunk; and the fleet at the end of
them: its GPUs, how they are cut, quotas of namespaces.

The memory it takes grows with the size of a chunk, not with the length of the window.
"""

import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from gpuwatch.config import RightsizingConfig
from gpuwatch.rightsizing.model.usage import FleetFacts, GpuFacts, NamespaceUsage
from gpuwatch.rightsizing.prometheus.api import PrometheusApi, Series, TooLarge
from gpuwatch.rightsizing.prometheus.chunk import ChunkReader, gpu_row
from gpuwatch.rightsizing.prometheus.queries import QUOTA, QUOTA_USED, filled
from gpuwatch.rightsizing.prometheus.read_plan import HistoryOptions, ReadPlan, read_plan
from gpuwatch.rightsizing.usage.ledger import UsageLedger
from gpuwatch.rightsizing.usage.prometheus_windows import windows

log = logging.getLogger(__name__)

WORKLOADS = 10_000
"""Workloads that are kept at least: `max_workloads` is meant for a node."""


LATELY = 900.0
"""Seconds for which a GPU, or a holder of one, counts as present after its last scrape."""

AT_WORK = 0.01
DRIVER_BYTES = 2**30
"""A GPU with as much work, or more memory than the driver itself takes, has a holder, known or not."""

Quotas = dict[str, dict[str, int]]
"""By name of the ResourceQuota: `hard` and `used`."""


class ReadProgress(NamedTuple):
    """How far it is: `done` of `total` steps."""

    done: int
    total: int
    windows: int
    received: int


class FleetHistory:
    """Reads what `options` names."""

    def __init__(
        self,
        api: PrometheusApi,
        config: RightsizingConfig,
        options: HistoryOptions,
        progress: Callable[[ReadProgress], None] = lambda _: None,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._api, self._options = api, options
        most = max(config.max_workloads, WORKLOADS)
        self._config = msgspec.structs.replace(config, max_workloads=most)
        self._progress, self._now = progress, now
        self._windows = 0
        self.plan: ReadPlan | None = None

    def read(self) -> tuple[UsageLedger, FleetFacts]:
        """The ledger, and what the fleet is at the end of it; the connection is closed afterwards.

        Raises:
            GpuwatchError: Prometheus cannot be reached, refuses a query, or has no metric of a GPU.
            PermissionMissing: it refuses the credentials.
        """
        try:
            self.plan = plan = read_plan(self._api, self._options, self._now())
            ledger = UsageLedger(self._config)
            reader = ChunkReader(self._api, plan.dialect, self._options.namespaces, plan.way)
            at, wanted = plan.begin, self._options.namespaces
            while at < plan.end:
                self._report(plan, at)
                steps = min(plan.steps, round((plan.end - at) / plan.step))
                for window in windows(reader.read(at, plan.step, steps)):
                    if not wanted or window.key.namespace in wanted:
                        ledger.add(window)
                        self._windows += 1
                at += steps * plan.step
            self._report(plan, at)
            fleet = fleet_facts(self._api, plan, ledger.namespaces(plan.end), self._options.namespaces)
            if ledger.rejected:
                log.warning("there are more workloads than rightsizing.max_workloads; some are left out")
            return ledger, fleet
        finally:
            self._api.http.close()

    def _report(self, plan: ReadPlan, at: float) -> None:
        done, received = round((at - plan.begin) / plan.step), self._api.http.traffic.received
        self._progress(ReadProgress(done, plan.total, self._windows, received))


def fleet_facts(
    api: PrometheusApi, plan: ReadPlan, namespaces: Iterable[NamespaceUsage], wanted: tuple[str, ...]
) -> FleetFacts:
    """At the end of the plan. `wanted`: only quotas of these namespaces are read; empty: of all.

    Raises as `PrometheusApi.query` does.
    """
    lately = max(LATELY, plan.step)
    quotas = [row for row in api.query(filled(QUOTA, lately), plan.end) if not wanted or _namespace(row) in wanted]
    most: dict[tuple[str, str], float] = {}
    if quotas:  # by namespace and resource: the most they counted as used at a time; unknown where that is too large
        with contextlib.suppress(TooLarge):
            for row in api.query(filled(QUOTA_USED, plan.end - plan.begin), plan.end):
                key = _namespace(row), _resource(row)
                most[key] = max(most.get(key, 0.0), row.now() or 0.0)
    days = (plan.end - plan.begin) / 86400
    used = tuple(_with_quotas(tuple(namespaces), quotas, most, days))
    return FleetFacts(gpus=tuple(_gpus(api, plan, lately)), namespaces=used, whole=not wanted)


def _gpus(api: PrometheusApi, plan: ReadPlan, lately: float) -> Iterator[GpuFacts]:
    def asked(name: str) -> list[Series]:
        if name not in plan.dialect.queries:
            return []
        return api.query(plan.dialect.expression(name, lately), plan.end)

    uuid, gi = plan.dialect.uuid, plan.dialect.gi
    holders, used = asked("holders"), asked("memory")
    held = {
        row.metric.get(uuid)
        for row in holders
        if (plan.dialect.name == "gpuwatch" or bool(row.metric.get("exported_pod") or row.metric.get("pod")))
    }
    held |= {row.metric.get(uuid) for row in asked("busy_high") if (row.now() or 0.0) >= AT_WORK}
    held |= {row.metric.get(uuid) for row in asked("processes") if row.now()}
    held |= {row.metric.get(uuid) for row in used if (row.now() or 0.0) >= DRIVER_BYTES}
    known = {row.metric.get(uuid) for row in used}
    memory = {row.metric.get(uuid): row.now() for row in asked("memory_total") if not row.metric.get(gi)}
    mig = {row.metric.get(uuid): row.now() for row in asked("mig_enabled")}
    cut = _instances(asked("instances") or holders, plan)
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
            mig_enabled=(name in cut or None) if enabled is None else enabled > 0,
            layout=tuple(sorted(cut.get(name, {}).values())),
            held=name in held or name not in known,  # also by work outside pods, and where it is not known
        )


def _instances(rows: list[Series], plan: ReadPlan) -> dict[str, dict[str, str]]:
    """Of each GPU: by number of its GPU instance, the profile. dcgm-exporter's series of an instance name it, too."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for row in rows:
        number, profile = row.metric.get(plan.dialect.gi), row.metric.get(plan.dialect.profile)
        if number and profile:
            found[row.metric.get(plan.dialect.uuid, "")][number] = profile
    return found


def _namespace(row: Series) -> str:
    return row.metric.get("exported_namespace") or row.metric.get("namespace", "")


def _with_quotas(
    used: tuple[NamespaceUsage, ...], rows: list[Series], most: Mapping[tuple[str, str], float], days: float
) -> Iterator[NamespaceUsage]:
    """Each namespace with its quota. Where a quota has no windows, the most that it counted as used stands for them:
    that may be MIG instances or shares under another resource name, or on nodes that are not scraped.
    """
    quotas: dict[tuple[str, str], Quotas] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if (value := row.now()) is not None:
            of_name = quotas[_namespace(row), _resource(row)][row.metric.get("resourcequota", "")]
            of_name[row.metric.get("type", "")] = int(value)
    for each in used:
        yield _bound(each, quotas.pop((each.namespace, each.resource), {}))
    for (namespace, resource), known in quotas.items():
        active = (most[namespace, resource],) * int(days) if (namespace, resource) in most else ()
        unseen = NamespaceUsage(namespace=namespace, resource=resource, active=active, days=days)
        yield _bound(unseen, known)


def _resource(row: Series) -> str:
    return row.metric.get("resource", "").removeprefix("requests.")


def _bound(use: NamespaceUsage, known: Quotas) -> NamespaceUsage:
    """Of several quotas, the smallest counts."""
    hard = {name: of["hard"] for name, of in known.items() if "hard" in of}
    if not hard:
        return use
    quota = min(hard, key=lambda name: (hard[name], name))
    return msgspec.structs.replace(use, quota=quota, hard=hard[quota], used=known[quota].get("used"))
