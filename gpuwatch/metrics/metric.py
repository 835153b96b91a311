"""One row of a table of metrics, and the samples that it gives for one View.

A sample's labels come in two parts: the text of its subject (a GPU, a GPU instance or nothing), made once for a View,
and the values of the row's own labels. So a profile is another way to name subjects, and the encoder can cache by both.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import repeat
from operator import attrgetter, lt
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from gpuwatch.model.pci import pci_key
from gpuwatch.model.snapshot import Gpu, GpuStatus, Identity, MigInstance, NvLink
from gpuwatch.model.text import visible
from gpuwatch.model.view import View
from gpuwatch.model.workload import Workload
from gpuwatch.model.xid import XidCount

Key = tuple[str, tuple[str | None, ...]]
"""Label text of the subject, and values of the row's own labels; a label whose value is None is left out."""
SubjectKey = tuple[str, tuple[()]]
"""The key of a sample without labels of its own; made once, so that most samples cost no new tuple."""
LinkKey = tuple[str, tuple[str | None]]
"""The key of a sample whose only label of its own is the NVLink."""
Naming = Callable[[Identity, MigInstance | None, Workload | None], str]
"""The label text of a GPU or GPU instance, with the workload that alone holds it."""

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\""})


def label_text(**labels: Any) -> str:
    """`name="value",...` in the given order, without unknown and empty ones; control characters show as escapes."""
    known = ((name, str(value)) for name, value in labels.items() if value is not None)
    return ",".join(f'{name}="{visible(value).translate(_ESCAPES)}"' for name, value in known if value)


def native(identity: Identity, mig: MigInstance | None, workload: Workload | None) -> str:
    """The labels of gpuwatch's own series."""
    return label_text(
        gpu=identity.index,
        uuid=identity.uuid,
        gi=mig.gi if mig else None,
        profile=mig.profile if mig else None,
        namespace=workload.namespace if workload else None,
        pod=workload.pod if workload else None,
        container=workload.container if workload else None,
    )


TRAFFIC = ("transmit_bytes", "receive_bytes")
"""Counters of an NVLink beside its errors."""


Counts = dict[int, dict[str, int]]
"""NVLink -> its counters by name."""


def _counts(gpu: Gpu) -> Counts:
    counts: Counts = {}
    for link in gpu.nvlinks:
        counts[link.link] = known = dict(link.errors)
        if link.transmit_bytes is not None:
            known["transmit_bytes"] = link.transmit_bytes
        if link.receive_bytes is not None:
            known["receive_bytes"] = link.receive_bytes
    return counts


def _has_fallen(counts: dict[str, int], past: dict[str, int]) -> bool:
    """Whether any count fell. It runs for every link at every View, hence without a loop in Python."""
    return any(map(lt, counts.values(), map(past.get, counts, repeat(0))))


def _totals(now: Counts, known: Counts) -> dict[str, int]:
    """The sums over the links of `known`, of counters that at least one link reports `now`."""
    totals = {name: 0 for counts in now.values() for name in counts}
    for counts in known.values():
        for name, count in counts.items():
            if name in totals:
                totals[name] += count
    return totals


class NvlinkCounters:
    """The last counters of every NVLink. A link that is down may not report them, and without them the sum over a GPU's
    links would fall: Prometheus takes this for a counter reset and adds the whole sum again. Not thread-safe.
    """

    def __init__(self) -> None:
        self._known: dict[str, Counts] = {}
        self._totals: dict[str, dict[str, int]] = {}

    def observe(self, view: View) -> None:
        """Take in a View. Drops the counters of GPUs that it does not name, and of GPUs whose counters fell."""
        self._known = {s.identity.uuid: self._known.get(s.identity.uuid, {}) for s in view.snapshot.statuses}
        self._totals = {}
        for gpu in view.snapshot.gpus:
            if not gpu.nvlinks:
                continue
            uuid, now = gpu.identity.uuid, _counts(gpu)
            before = self._known.get(uuid, {})
            is_reset = any(_has_fallen(now.get(link, {}), past) for link, past in before.items())
            kept = {} if is_reset else {link: past | now.get(link, {}) for link, past in before.items()}
            self._known[uuid] = now | kept
            self._totals[uuid] = _totals(now, self._known[uuid])

    def totals(self, gpu: Gpu) -> dict[str, int]:
        """Counter -> sum over the links, of counters that at least one link reports now."""
        uuid = gpu.identity.uuid
        if (totals := self._totals.get(uuid)) is None:  # the View is older than the newest, which lacks this GPU
            totals = _totals(found := _counts(gpu), self._known.get(uuid) or found)
        return totals


class MetricContext:
    """A View prepared for the rows: every GPU and GPU instance with its label text in one profile.

    `gpus` and `instances` carry workload labels when `inline`; `subject` never does. `counters`: of the NVLinks, if
    earlier Views were observed.
    """

    def __init__(
        self, view: View, naming: Naming = native, *, inline: bool = False, counters: NvlinkCounters | None = None
    ) -> None:
        self.view = view
        self._counters = counters or NvlinkCounters()
        self._naming = naming
        snapshot = view.snapshot
        self._identities = {status.identity.uuid: status.identity for status in snapshot.statuses}
        self._identities |= {gpu.identity.uuid: gpu.identity for gpu in snapshot.gpus}
        self._by_pci = {pci_key(identity.pci_bus_id): uuid for uuid, identity in self._identities.items()}
        # the first of several compute instances in one GPU instance: they share memory and counters
        self._mig: dict[tuple[str, int], MigInstance] = {}
        for gpu in snapshot.gpus:
            for mig in gpu.mig:
                self._mig.setdefault((gpu.identity.uuid, mig.gi), mig)
        holders: defaultdict[tuple[str, int | None], set[Workload]] = defaultdict(set)
        for device in view.attribution.devices if inline else ():
            holders[device.gpu, device.gi].update(holder.workload for holder in device.holders)
        sole = {device: next(iter(workloads)) for device, workloads in holders.items() if len(workloads) == 1}
        self.gpus: list[tuple[SubjectKey, Gpu]] = [
            ((naming(gpu.identity, None, sole.get((gpu.identity.uuid, None))), ()), gpu) for gpu in snapshot.gpus
        ]
        self.instances: list[tuple[SubjectKey, MigInstance]] = [
            ((naming(self._identities[uuid], mig, sole.get((uuid, gi))), ()), mig)
            for (uuid, gi), mig in self._mig.items()
        ]

        self._subjects: dict[tuple[str, int | None], str] = {}

    def subject(self, uuid: str, gi: int | None = None) -> str:
        """Label text of a GPU or GPU instance by name, also when it is lost; never with a workload."""
        known = self._subjects.get((uuid, gi))
        if known is None:
            identity, mig = self._identities.get(uuid), None if gi is None else self._mig.get((uuid, gi))
            if gi is not None and mig is None:
                mig = MigInstance(index=0, uuid="", gi=gi, ci=0)
            known = label_text(uuid=uuid, gi=gi) if identity is None else self._naming(identity, mig, None)
            self._subjects[uuid, gi] = known
        return known

    @cached_property
    def links(self) -> list[tuple[LinkKey, NvLink]]:
        """Every NVLink of every fresh GPU."""
        return [((subject, (str(link.link),)), link) for (subject, _), gpu in self.gpus for link in gpu.nvlinks]

    @cached_property
    def nvlink_totals(self) -> list[tuple[SubjectKey, dict[str, int]]]:
        """Every fresh GPU with NVLinks, and their counters added up."""
        return [(key, self._counters.totals(gpu)) for key, gpu in self.gpus if gpu.nvlinks]

    @cached_property
    def xids(self) -> list[tuple[Key, XidCount]]:
        """Every XID counted so far, with the key of its samples."""
        found: list[tuple[Key, XidCount]] = []
        for row in self.view.xids:
            uuid = row.uuid or self._by_pci.get(pci_key(row.pci))  # it may have only the GPU's address, or neither
            subject = self.subject(uuid) if uuid else label_text(pci_bus_id=row.pci)
            found.append(((subject, (str(row.xid),)), row))
        return found

    @property
    def identities(self) -> list[tuple[str, Identity]]:
        """Every GPU found since the agent started, fresh or not."""
        return [(self.subject(uuid), identity) for uuid, identity in self._identities.items()]

    @property
    def statuses(self) -> list[tuple[str, GpuStatus]]:
        """The status of every GPU."""
        return [(self.subject(status.identity.uuid), status) for status in self.view.snapshot.statuses]


Type = Literal["gauge", "counter", "info", "stateset"]
Scope = Literal["node", "gpu", "instance", "any"]
"""What samples are about: the node; a GPU; a GPU or a GPU instance; a GPU or the node."""
Sample = tuple[Key, float]
T = TypeVar("T")
Samples = Callable[[T], list[Sample]]
Parts = Iterable[tuple[tuple[str | None, ...], float | None]]
"""Values of a row's own labels, and the number; None where it is not known."""

PREFIX = "gpuwatch_"
UNITS = ("bytes_per_second", "bytes", "watts", "joules", "celsius", "hertz", "seconds", "ratio")


class Family(NamedTuple):
    """A named group of samples, ready to be encoded. `style` writes a number."""

    name: str
    type: Type
    help: str
    labels: tuple[str, ...]
    samples: list[Sample]
    style: Callable[[float], str] = repr


class Metric(msgspec.Struct, Generic[T], frozen=True, eq=False, dict=True):
    """One row: `name` without the prefix, `labels` beyond the subject's, `samples` from a `T`.

    `states`: exactly one sample of a subject is 1. `owned`: gpuwatch keeps this value itself, so it stays when the data
    are stale. `is_gauge`: an `_info` whose stem is a family, too; OpenMetrics gives an info the name of its stem.
    """

    name: str
    help: str
    samples: Samples[T]
    labels: tuple[str, ...] = ()
    scope: Scope = "gpu"
    states: bool = False
    is_gauge: bool = False
    owned: bool = False

    @cached_property
    def full_name(self) -> str:
        """With the prefix."""
        return PREFIX + self.name

    @cached_property
    def type(self) -> Type:
        """From the name, by Prometheus' naming rules."""
        if self.states:
            return "stateset"
        if self.name.endswith("_info") and not self.is_gauge:
            return "info"
        return "counter" if self.name.endswith("_total") else "gauge"

    def family(self, subject: T) -> Family:
        """The samples of this row about `subject`; none where nothing is known."""
        return Family(self.full_name, self.type, self.help, self.labels, self.samples(subject))


def unit(name: str) -> str:
    """The base unit at the end of a family's name, as OpenMetrics requires it; empty when there is none."""
    stem = name.removesuffix("_total")
    return next((unit for unit in UNITS if stem.endswith("_" + unit)), "")


def read(path: str, *, mig: bool = False) -> Samples[MetricContext]:
    """A value of every GPU by its path in `model.snapshot.Gpu`; with `mig` of every GPU instance too."""
    get = attrgetter(path)

    def samples(context: MetricContext) -> list[Sample]:
        sources: list[tuple[SubjectKey, Any]] = [*context.gpus, *context.instances] if mig else context.gpus
        return [(key, value) for key, source in sources if (value := get(source)) is not None]

    return samples


def split(**paths: str) -> Samples[MetricContext]:
    """Several values of every GPU under one label: label value -> path."""
    getters = [((value,), attrgetter(path)) for value, path in paths.items()]
    return each(lambda gpu: ((own, get(gpu)) for own, get in getters))


def each(rows: Callable[[Gpu], Parts]) -> Samples[MetricContext]:
    """One value for each part of every GPU: links, reasons, counters."""

    def samples(context: MetricContext) -> list[Sample]:
        return [
            ((subject, own), value)
            for (subject, _), gpu in context.gpus
            for own, value in rows(gpu)
            if value is not None
        ]

    return samples


def entries(path: str) -> Samples[MetricContext]:
    """The entries of a mapping: its key is the label."""
    get = attrgetter(path)
    return each(lambda gpu: (((name,), value) for name, value in get(gpu).items()))


def node(rows: Callable[[T], Parts]) -> Samples[T]:
    """Values of the node as a whole, without a subject."""

    def samples(source: T) -> list[Sample]:
        return [(("", own), value) for own, value in rows(source) if value is not None]

    return samples


def summed(samples: Iterable[Sample]) -> list[Sample]:
    """Add up samples that carry the same labels, since a series may appear once only."""
    totals: dict[Key, float] = {}
    for key, value in samples:
        totals[key] = totals[key] + value if key in totals else value
    return list(totals.items())


def distinct(keys: Iterable[Key]) -> list[Sample]:
    """Each key once, with the value 1."""
    return [(key, 1) for key in dict.fromkeys(keys)]
