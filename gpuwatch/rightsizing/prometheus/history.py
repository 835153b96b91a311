"""A fleet's weeks out of a Prometheus into the ledger that right-sizing judges by, chunk by chunk.

Memory goes with what is asked for at a time, not with the length of the window.
"""

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from gpuwatch.config import RightsizingConfig
from gpuwatch.rightsizing.model.usage import FleetFacts
from gpuwatch.rightsizing.prometheus import facts as fleet_facts
from gpuwatch.rightsizing.prometheus.api import PrometheusApi
from gpuwatch.rightsizing.prometheus.chunk import ChunkReader
from gpuwatch.rightsizing.prometheus.read_plan import HistoryOptions, ReadPlan, read_plan
from gpuwatch.rightsizing.usage.ledger import UsageLedger
from gpuwatch.rightsizing.usage.prometheus_windows import windows

log = logging.getLogger(__name__)

WORKLOADS = 10_000
"""What is kept at least: `max_workloads` is meant for a node."""


class ReadProgress(NamedTuple):
    """How far it is. `done` of `total` steps, up to unix time `at`."""

    done: int
    total: int
    at: float
    windows: int
    requests: int
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
        self._tell, self._now = progress, now
        self._windows = 0
        self.plan: ReadPlan | None = None

    def read(self) -> tuple[UsageLedger, FleetFacts]:
        """The ledger, and what the fleet is at the end of it; the connection is closed then.

        Raises:
            GpuwatchError: Prometheus cannot be reached, refuses, or knows no GPU.
            PermissionMissing: it does not let us in.
        """
        try:
            self.plan = plan = read_plan(self._api, self._options, self._now())
            ledger = UsageLedger(self._config)
            self._read(plan, ledger)
            fleet = fleet_facts.fleet(self._api, plan, ledger.namespaces(plan.end), self._options.namespaces)
            if ledger.rejected:
                log.warning("there are more workloads than rightsizing.max_workloads; nothing is said of some")
            return ledger, fleet
        finally:
            self._api.http.close()

    def _read(self, plan: ReadPlan, ledger: UsageLedger) -> None:
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

    def _report(self, plan: ReadPlan, at: float) -> None:
        traffic, done = self._api.http.traffic, round((at - plan.begin) / plan.step)
        self._tell(ReadProgress(done, plan.total, at, self._windows, traffic.requests, traffic.received))
