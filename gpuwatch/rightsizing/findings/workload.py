"""One workload as the rules of right-sizing use it: what it has now, how well it is known, what its device is."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.snapshot import Record
from gpuwatch.model.work import WorkloadKey
from gpuwatch.rightsizing.findings.preallocators import is_server
from gpuwatch.rightsizing.model import mig_profiles
from gpuwatch.rightsizing.model.recommendation import Evidence, Level, RecommendationTarget
from gpuwatch.rightsizing.model.usage import DeviceAllocation, FleetFacts, WorkloadSummary
from gpuwatch.rightsizing.usage.memory_demand import MemoryDemand, memory_demand

DAY_SECONDS = 86400.0
WEEK_DAYS = 7.0

PREALLOCATED = 0.7
"""Of the device, within two minutes of the start."""

FLAT = 0.01
"""Standard deviation over mean."""

MIG_RESOURCE = re.compile(r"nvidia\.com/mig-\d+g\.\d+gb(\.me)?")

NOTEBOOK_MARGIN = 1.0
"""Above its peak: what its author will try tomorrow does not follow from what he tried today."""

KNOWN_HOLDS = 64
"""The ledger keeps no more: where there are so many, there may be others."""

LEAST_SHARE = 0.125
"""Of a GPU: a MIG instance that is not in the table takes at least so much."""


class FleetContext(Record, frozen=True, kw_only=True):
    """What all workloads share. `working`: namespace and name of pods of which any container may be working."""

    fleet: FleetFacts
    config: RightsizingConfig
    now: float
    working: frozenset[tuple[str, str]] = frozenset()


class WorkloadFacts(Record, frozen=True, kw_only=True):
    """A workload. `present`: its holds now; `all_images`: it, and the same container with other images; `part`:
    share of its time that advice on size may count, where other advice frees some of its holds.
    """

    summary: WorkloadSummary
    context: FleetContext
    present: tuple[DeviceAllocation, ...]
    all_images: tuple[WorkloadSummary, ...]
    part: float = 1.0

    @property
    def config(self) -> RightsizingConfig:
        """The settings."""
        return self.context.config

    @property
    def may_serve(self) -> bool:
        """Whether it may be answering requests: also where its class is unknown, and where a Job runs a server."""
        is_batch_or_notebook = self.summary.work_class in ("batch", "notebook")
        return not is_batch_or_notebook or is_server(self.summary.programs, self.summary.key.image)

    @property
    def coverage(self) -> float:
        """Share of its time that was observed."""
        return min(1.0, self.summary.covered / self.summary.held) if self.summary.held > 0 else 0.0

    @property
    def is_known(self) -> bool:
        """Whether its size may be judged: work that may be serving must be known for a week."""
        least = self.config.min_history / DAY_SECONDS
        days = max(WEEK_DAYS, least) if self.may_serve else least
        return self.summary.days >= days and self.coverage >= self.config.min_coverage

    @property
    def is_lasting(self) -> bool:
        """Whether advice on its size still applies: it runs, or is a CronJob that ran within `expire` seconds."""
        is_recent = self.context.now - self.summary.last <= self.config.expire
        return bool(self.present) or (is_recent and self.summary.key.kind == "CronJob")

    @property
    def model(self) -> str | None:
        """Of its GPUs; None: they differ, or it is not known."""
        return self.summary.models[0] if len(self.summary.models) == 1 else None

    @property
    def shared(self) -> bool:
        """Whether it has, or lately had, only a part of a GPU or of a MIG instance, as far as is known."""
        return any(hold.holders > 1 or hold.replicas > 1 for hold in self.summary.holds)

    @property
    def resource(self) -> str | None:
        """The extended resource of its devices; None: they differ, or it is not known."""
        kinds = {hold.resource for hold in self.present or self.summary.holds}
        return kinds.pop() if len(kinds) == 1 else None

    @property
    def is_single(self) -> bool:
        """One device of its own for each pod, from the device plugin: another size changes one line."""
        own = self.summary.gpus_per_pod == 1 and not self.shared and bool(self.summary.key.namespace)
        return own and all(
            (hold.resource is None or hold.resource == "nvidia.com/gpu" or bool(MIG_RESOURCE.fullmatch(hold.resource)))
            for hold in self.present or self.summary.holds
        )

    @property
    def is_preallocating(self) -> bool:
        """Any of its pods took most of its device as it began, and kept it: what it needs cannot be measured."""
        total = self.summary.memory_total
        return total is not None and any(
            hold.memory_at_start is not None
            and hold.memory_later is not None
            and hold.memory_spread is not None
            and min(hold.memory_at_start, hold.memory_later) >= PREALLOCATED * total
            and hold.memory_spread < FLAT
            for hold in self.summary.holds
        )

    @property
    def profile(self) -> str | None:
        """Of its MIG instances, `?` if unknown; empty: it has whole GPUs; None: they differ, or no hold is known."""
        kinds = {hold.profile or ("?" if hold.device else "") for hold in self.present or self.summary.holds}
        return kinds.pop() if len(kinds) == 1 else None

    @property
    def hours_per_day(self) -> float:
        """Device-hours that it holds on a day, over all days that are known."""
        return self.part * self.summary.held / 3600 / max(1.0, self.summary.days)

    @property
    def confidence(self) -> Level:
        """How well its size is known: by the days, less the time that was not observed."""
        return level_of(self.summary.days * self.coverage, (14.0, 8.0) if self.may_serve else (7.0, 2.0))

    def memory(self) -> MemoryDemand | None:
        """Of each of its devices, until the advice expires."""
        margin = self.config.memory_margin
        if self.summary.work_class == "notebook":
            margin = max(margin, NOTEBOOK_MARGIN)
        return memory_demand(self.summary.peaks, margin, self.config.expire)

    def evidence(self, *, held: float | None = None, idle: float | None = None) -> Evidence:
        """What was measured; `held` and `idle` seconds of the holds that it is about."""
        summary = self.summary
        return Evidence(
            days=summary.days,
            coverage=self.coverage,
            held_seconds=summary.held if held is None else held,
            idle_seconds=idle,
            busy=summary.busy,
            sm=summary.sm,
            dram=summary.dram,
            pcie=summary.pcie,
            watts=summary.watts,
            memory_peak=max((peak.bytes for peak in summary.peaks), default=None),
            peaks=summary.peaks,
            memory_total=summary.memory_total,
        )

    def target(self, holds: tuple[DeviceAllocation, ...]) -> RecommendationTarget:
        """The workload; of its pods those of `holds`."""
        key = self.summary.key
        return RecommendationTarget(
            namespace=key.namespace or None,
            kind=key.kind,
            name=key.name,
            container=key.container or None,
            image=key.image,
            work_class=self.summary.work_class,
            pods=tuple(sorted({hold.pod for hold in holds})),
            nodes=tuple(sorted({hold.node for hold in holds if hold.node})),
            gpus=tuple(sorted({hold.gpu for hold in holds})),
            model=self.model,
        )


def workload_facts(summaries: Iterable[WorkloadSummary], context: FleetContext) -> list[WorkloadFacts]:
    """Each with its present holds. A new image usually does the same work, and pauses as the old one did."""
    known = tuple(summaries)
    all_images: dict[WorkloadKey, list[WorkloadSummary]] = defaultdict(list)
    for summary in known:
        all_images[replace(summary.key, image=None)].append(summary)
    return [
        WorkloadFacts(
            summary=summary,
            context=context,
            present=tuple(hold for hold in summary.holds if hold.present),
            all_images=tuple(all_images[replace(summary.key, image=None)]),
        )
        for summary in known
    ]


def level_of(value: float, bars: tuple[float, float]) -> Level:
    """High from the first of `bars` on, medium from the second on."""
    high, medium = bars
    return Level.HIGH if value >= high else Level.MEDIUM if value >= medium else Level.LOW


def share_of(hold: DeviceAllocation) -> float:
    """How much of a GPU would be free without it: of a MIG instance its slices, of a shared device its part."""
    profile, whole = mig_profiles.instance(hold.model, None, hold.profile), mig_profiles.model_of(hold.model)
    share = 1.0
    if hold.device or hold.profile:
        share = whole.share(profile) if profile and whole else LEAST_SHARE
    return share / max(1, hold.holders)


def by_pod(holds: tuple[DeviceAllocation, ...]) -> Iterator[tuple[str, tuple[DeviceAllocation, ...]]]:
    """The holds of each pod."""
    for pod in sorted({hold.pod for hold in holds}):
        yield pod, tuple(hold for hold in holds if hold.pod == pod)
