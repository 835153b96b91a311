"""All that is known of what workloads do with the GPUs they hold: statistics of each, in bounded memory.

Windows come in order of time. Those that were added before are dropped, so that a source may repeat itself after a
restart. One thread at a time may use it.
"""

from collections import OrderedDict
from collections.abc import Iterator

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.snapshot import Record
from gpuwatch.model.work import WorkloadKey
from gpuwatch.rightsizing.model import mig_profiles
from gpuwatch.rightsizing.model.usage import NamespaceUsage, UsageWindow, WorkloadSummary
from gpuwatch.rightsizing.usage.allocation import activity
from gpuwatch.rightsizing.usage.namespace import BIN, BINS_A_DAY, DAY, MAX_DAYS, NamespaceStats
from gpuwatch.rightsizing.usage.workload_stats import WorkloadRecord, WorkloadStats
from gpuwatch.workloads.workload_key import work_class

SET_BACK_SECONDS = 3600.0
"""A window so far ahead of now shows that the clock has been set back."""

MANY_NODES = 64
"""Nodes that are kept before those without windows for a day are removed."""

LONGEST_SECONDS = 7.0 * DAY
LATEST = 1e11
"""A longer window, or one that begins later than unix time can be, is invalid."""


class LedgerState(Record, frozen=True, kw_only=True):
    """A UsageLedger in a checkpoint. `at`: the end of its newest window. `nodes`: when their newest window began, and
    the one before. `observed`: bins of five minutes by day.
    """

    since: float | None = None
    at: float | None = None
    workloads: tuple[WorkloadRecord, ...] = ()
    namespaces: tuple[NamespaceStats, ...] = ()
    nodes: dict[str, tuple[float, float]] = {}
    observed: dict[int, int] = {}
    bins_until: int = 0


class UsageLedger:
    """Statistics by workload, the one with the newest addition at the end."""

    def __init__(self, config: RightsizingConfig) -> None:
        """An empty one."""
        self.since: float | None = None
        """Unix seconds of the first window; None: there was none."""
        self.at: float | None = None
        """End of the newest window."""
        self.rejected = 0
        """Windows of workloads for which there was no room, because all others still have pods."""
        self._config = config
        self._workloads: OrderedDict[WorkloadKey, WorkloadStats] = OrderedDict()
        self._namespaces: dict[tuple[str, str], NamespaceStats] = {}
        self._nodes: dict[str, tuple[float, float]] = {}
        self._many_nodes = MANY_NODES
        self._observed: dict[int, int] = {}
        self._bins_until = 0

    @classmethod
    def restored(cls, state: LedgerState, config: RightsizingConfig) -> "UsageLedger":
        """Continue from `state`, which changes from now on; workloads above `max_workloads` are dropped.

        Raises ArithmeticError, LookupError, TypeError, ValueError: it holds impossible values.
        """
        if not 0 <= (at := state.at or 0.0) < LATEST:
            raise ValueError(f"it ends at unix time {at}")
        ledger = cls(config)
        ledger.since, ledger.at = state.since, state.at
        ledger._workloads = OrderedDict((each.key, WorkloadStats(each)) for each in state.workloads)
        ledger._namespaces = {(each.namespace, each.resource): each for each in state.namespaces}
        ledger._nodes, ledger._observed = dict(state.nodes), dict(state.observed)
        ledger._bins_until = min(state.bins_until, -int(-at // BIN))
        ledger.configure(config)
        list(ledger.summaries(at))
        ledger.namespaces(at)
        return ledger

    def __len__(self) -> int:
        """Workloads that are known."""
        return len(self._workloads)

    def configure(self, config: RightsizingConfig) -> None:
        """Use other settings from now on."""
        self._config = config
        while len(self._workloads) > config.max_workloads:
            self._workloads.popitem(last=False)
        for stats in self._workloads.values():
            stats.set_class(work_class(stats.record.key, stats.record.declared_class, config.work_classes))

    def add(self, window: UsageWindow) -> bool:
        """Add a window. False: it was added before, there is no room for its workload, or it is invalid."""
        if not (0 < window.span < LONGEST_SECONDS and window.covered >= 0 and 0 <= window.at < LATEST):
            return False
        watched = self._previous_window_of_node(window)
        stats = self._workloads.get(window.key) or self._begin(window)
        if stats is None:
            self.rejected += 1
            return False
        is_work = activity(window)
        total = None if window.device else window.memory_total
        declared = stats.record.declared_class
        if not stats.add(window, mig_profiles.of(window.model, total), is_work, watched):
            return False
        self._workloads.move_to_end(window.key)
        if stats.record.declared_class != declared:
            stats.set_class(work_class(window.key, stats.record.declared_class, self._config.work_classes))
        end = window.at + window.span
        self.since = window.at if self.since is None else min(self.since, window.at)
        self.at = end if self.at is None else max(self.at, end)
        until = -int(-end // BIN)
        for number in range(max(self._bins_until, int(window.at // BIN)), until):
            day = number // BINS_A_DAY
            self._observed[day] = self._observed.get(day, 0) + 1
        self._bins_until = max(until, self._bins_until)
        while len(self._observed) > MAX_DAYS:
            del self._observed[min(self._observed)]
        if window.key.namespace:
            self._namespace(window).add(window, is_work)
        return True

    def summaries(self, now: float) -> Iterator[WorkloadSummary]:
        """Of each workload, at unix time `now`."""
        self._notice_clock(now)
        rules = self._config.work_classes
        for stats in self._workloads.values():
            yield stats.summary(now, work_class(stats.record.key, stats.record.declared_class, rules))

    def namespaces(self, now: float) -> tuple[NamespaceUsage, ...]:
        """Of each namespace and resource, at unix time `now`."""
        self._notice_clock(now)
        complete = dict(self._observed)
        for number in range(int(now // BIN), self._bins_until):
            complete[number // BINS_A_DAY] = complete.get(number // BINS_A_DAY, 1) - 1
        return tuple(each.use(now, complete) for each in self._namespaces.values())

    def state(self) -> LedgerState:
        """For the checkpoint, which must be written before the next window is added."""
        return LedgerState(
            since=self.since,
            at=self.at,
            workloads=tuple(each.state() for each in self._workloads.values()),
            namespaces=tuple(self._namespaces.values()),
            nodes=dict(self._nodes),
            observed=dict(self._observed),
            bins_until=self._bins_until,
        )

    def _begin(self, window: UsageWindow) -> WorkloadStats | None:
        """Statistics of a new workload. None: there are as many as may be, and all still have pods."""
        if len(self._workloads) >= self._config.max_workloads:
            longest_gone = next(iter(self._workloads.values()), None)
            if longest_gone is None or longest_gone.is_present(window.at):
                return None
            del self._workloads[longest_gone.record.key]
        stats = self._workloads[window.key] = WorkloadStats.begun(window)
        stats.set_class(work_class(window.key, window.declared_class, self._config.work_classes))
        return stats

    def _previous_window_of_node(self, window: UsageWindow) -> float:
        """When the node's windows before this one began; 0: it is new."""
        known = self._nodes.get(window.node)
        if known is None:
            self._nodes[window.node] = window.at, 0.0
            if len(self._nodes) > self._many_nodes:
                self._nodes = {name: times for name, times in self._nodes.items() if times[0] > window.at - DAY}
                self._many_nodes = max(MANY_NODES, 2 * len(self._nodes))
            return 0.0
        newest, before = known
        if window.at > newest:
            before = newest
            self._nodes[window.node] = window.at, before
        return before

    def _namespace(self, window: UsageWindow) -> NamespaceStats:
        resource = window.resource
        if resource is None:
            resource = f"nvidia.com/mig-{window.profile.replace('+', '.')}" if window.profile else "nvidia.com/gpu"
        key = window.key.namespace, resource
        found = self._namespaces.get(key)
        if found is None:
            oldest = window.at - MAX_DAYS * DAY
            self._namespaces = {name: each for name, each in self._namespaces.items() if each.last >= oldest}
            found = NamespaceStats(namespace=key[0], resource=resource, first=window.at, last=window.at)
            self._namespaces[key] = found
        return found

    def _notice_clock(self, now: float) -> None:
        """After the clock was set back, times in the future must not make all new windows look old."""
        if self.at is None or self.at - now <= SET_BACK_SECONDS:
            return
        self.at, self.since = now, min(self.since or now, now)
        self._bins_until = min(self._bins_until, int(now // BIN))
        self._observed = {day: bins for day, bins in self._observed.items() if day <= now // DAY}
        self._nodes = {name: (min(at, now), min(before, now)) for name, (at, before) in self._nodes.items()}
        for stats in self._workloads.values():
            stats.clip(now)
        for namespace in self._namespaces.values():
            namespace.clip(now)
