"""A View as dcgm-exporter would write it: its labels, its names, the last XID as a gauge, and values that need several
Views: rates of byte counters, and events in a sliding window.
"""

from collections import Counter, deque
from typing import NamedTuple

from gpuwatch.metrics.dcgm_names import CLOCK_EVENTS, DCGM, UNITS, DcgmRow, DcgmSource, Rates, number
from gpuwatch.metrics.metric import Family, MetricContext, Naming, Sample, Type, label_text
from gpuwatch.model.snapshot import Gpu, Identity, MigInstance
from gpuwatch.model.view import View
from gpuwatch.model.workload import Workload
from gpuwatch.model.xid_catalogue import explain

WINDOW_SECONDS = 300
"""dcgm-exporter's default window for XIDs and clock events."""

SLOT_SECONDS = 5
"""Events within so long share a slot, so that a short interval costs no more memory than a long one."""


class _Totals(NamedTuple):
    at: float
    nvlink: int | None
    pcie_transmit: int | None
    pcie_receive: int | None


class _Slot:
    """Events within SLOT_SECONDS; `last` is the time of the newest."""

    __slots__ = ("counts", "first", "last")

    def __init__(self, now: float) -> None:
        self.first = self.last = now
        self.counts: Counter[tuple[str, str]] = Counter()


class SlidingWindow:
    """Counts events of the last WINDOW_SECONDS, to within SLOT_SECONDS, by (GPU uuid, kind)."""

    def __init__(self) -> None:
        self._slots: deque[_Slot] = deque()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, now: float, uuid: str, kind: str, count: int = 1) -> None:
        """Count `count` events."""
        if not self._slots or now - self._slots[-1].first >= SLOT_SECONDS:
            self._slots.append(_Slot(now))
        slot = self._slots[-1]
        slot.last = now
        slot.counts[uuid, kind] += count
        self._counts[uuid, kind] += count

    def expire(self, now: float) -> None:
        """Drop events that are too old."""
        while self._slots and now - self._slots[0].last > WINDOW_SECONDS:
            self._counts -= self._slots.popleft().counts  # drops counts that fall to 0

    def of(self, uuid: str) -> list[tuple[str | None, int]]:
        """(kind, count) of one GPU; a single (None, 0) when nothing happened, as dcgm-exporter writes it."""
        found: list[tuple[str | None, int]] = [(k, count) for (gpu, k), count in self._counts.items() if gpu == uuid]
        return sorted(found) or [(None, 0)]


class DcgmHistory:
    """Fed with every View; `now` is monotonic. Not thread-safe."""

    def __init__(self) -> None:
        self.rates: dict[str, Rates] = {}
        self.clock_events = SlidingWindow()
        self.xids = SlidingWindow()
        self._totals: dict[str, _Totals] = {}
        self._xid_counts: dict[tuple[str, int], int] = {}

    def observe(self, view: View, now: float) -> None:
        """Take in a View."""
        self.clock_events.expire(now)
        self.xids.expire(now)
        fresh = {gpu.identity.uuid: gpu for gpu in view.snapshot.gpus}
        for gone in self._totals.keys() - fresh.keys():
            del self._totals[gone]
            self.rates.pop(gone, None)
        for uuid, gpu in fresh.items():
            totals, previous = _totals(gpu), self._totals.get(uuid)
            if previous is not None and totals.at <= previous.at:
                continue  # the sample of the View before
            self._totals[uuid] = totals
            if previous is not None:
                seconds = totals.at - previous.at
                pairs = zip(previous[1:], totals[1:], strict=True)
                self.rates[uuid] = Rates(
                    *(None if old is None or new is None or new < old else (new - old) / seconds for old, new in pairs)
                )
            for reason, active in gpu.clock_events.active.items():
                if active:
                    self.clock_events.add(now, uuid, reason)
        for row in view.xids:
            if row.uuid is not None:
                new = row.count - self._xid_counts.get((row.uuid, row.xid), 0)
                self._xid_counts[row.uuid, row.xid] = row.count
                if new > 0:
                    self.xids.add(now, row.uuid, str(row.xid), new)


def _totals(gpu: Gpu) -> _Totals:
    traffic = [
        count for link in gpu.nvlinks for count in (link.transmit_bytes, link.receive_bytes) if count is not None
    ]
    return _Totals(gpu.at, sum(traffic) if traffic else None, gpu.pcie.transmit_bytes, gpu.pcie.receive_bytes)


HOST_LABEL = {"dcgm-4.8": "Hostname", "dcgm-4.9": "hostname"}
DRIVER_LABEL = {"dcgm-4.8": "DCGM_FI_DRIVER_VERSION", "dcgm-4.9": "DCGM_FI_SYSTEM_DRIVER_VERSION"}
XID_NAME = {"dcgm-4.8": "DCGM_FI_DEV_XID_ERRORS", "dcgm-4.9": "DCGM_FI_DEV_XID_ERROR"}

EXP_NAMES = ("DCGM_EXP_XID_ERRORS_COUNT", "DCGM_EXP_CLOCK_EVENTS_COUNT")
DCGM_FAMILIES = frozenset(
    (*(f"DCGM_FI_{row.column(profile).name}" for row in DCGM for profile in XID_NAME), *XID_NAME.values(), *EXP_NAMES)
)
"""Names of all families of the DCGM profiles."""

_WINDOW = str(WINDOW_SECONDS * 1000)
_NO_RATES = Rates()


def dcgm_families(
    view: View, profile: str, history: DcgmHistory, node: str, *, owned_only: bool = False
) -> list[Family]:
    """The families of one DCGM profile. `owned_only`: the View is stale, see `metrics.native.collect`."""
    driver = view.snapshot.driver.version if view.snapshot.driver else None
    context = MetricContext(view, _naming(profile, view.snapshot.node or node, driver), inline=True)
    xid = _family(
        XID_NAME[profile], "Value of the last XID error encountered.", _last_xids(context), "err_code", "err_msg"
    )
    if owned_only:
        return [xid]
    return [
        *(_row_family(row, profile, context, history) for row in DCGM),
        xid,
        _family(
            EXP_NAMES[0],
            "XID errors within the window.",
            [
                ((subject, (_WINDOW, xid)), count)
                for uuid, subject in _subjects(context).items()
                for xid, count in history.xids.of(uuid)
            ],
            "window_size_in_ms",
            "xid",
        ),
        _family(
            EXP_NAMES[1],
            "Samples within the window in which the reason held clocks down.",
            [
                ((subject, (_WINDOW, CLOCK_EVENTS[reason][1] if reason else None)), count)
                for (subject, _), gpu in context.gpus
                if gpu.clock_events.active
                for reason, count in history.clock_events.of(gpu.identity.uuid)
                if reason is None or reason in CLOCK_EVENTS
            ],
            "window_size_in_ms",
            "clock_event",
        ),
    ]


def _naming(profile: str, node: str, driver: str | None) -> Naming:
    """The labels dcgm-exporter gives a GPU or GPU instance, in its order."""

    def naming(identity: Identity, mig: MigInstance | None, workload: Workload | None) -> str:
        labels = {
            "gpu": identity.index,
            "UUID": identity.uuid,
            "pci_bus_id": identity.pci_bus_id,
            "device": f"nvidia{identity.index}",
            "modelName": identity.name,
            "GPU_I_PROFILE": mig.profile if mig else None,
            "GPU_I_ID": mig.gi if mig else None,
            HOST_LABEL[profile]: node,
            DRIVER_LABEL[profile]: driver,
            "container": workload.container if workload else None,
            "namespace": workload.namespace if workload else None,
            "pod": workload.pod if workload else None,
        }
        return label_text(**labels)

    return naming


def _family(name: str, help_: str, samples: list[Sample], *labels: str, type_: Type = "gauge") -> Family:
    return Family(name, type_, help_, labels, samples, number)


def _row_family(row: DcgmRow, profile: str, context: MetricContext, history: DcgmHistory) -> Family:
    column = row.column(profile)
    convert = UNITS[column.unit]
    readings = [(key, DcgmSource(gpu, history.rates.get(gpu.identity.uuid, _NO_RATES))) for key, gpu in context.gpus]
    if row.mig:
        readings += [(key, DcgmSource(mig, _NO_RATES)) for key, mig in context.instances]
    samples: list[Sample] = [
        (key, convert(value)) for key, reading in readings if (value := row.source(reading)) is not None
    ]
    help_ = f"{row.help} (in {column.unit})." if column.unit else f"{row.help}."
    return _family(f"DCGM_FI_{column.name}", help_, samples, type_=column.type)


def _subjects(context: MetricContext) -> dict[str, str]:
    """Label text by GPU uuid: also of lost GPUs, because XIDs are about them; with workloads where the GPU is fresh."""
    lost = {identity.uuid: subject for subject, identity in context.identities}
    return lost | {gpu.identity.uuid: subject for (subject, _), gpu in context.gpus}


def _last_xids(context: MetricContext) -> list[Sample]:
    """The last XID of each GPU; 0 before the first one, so that a rule can detect the change."""
    newest: dict[str, tuple[float, int]] = {}
    for row in context.view.xids:
        if row.uuid is not None and row.last is not None:
            newest[row.uuid] = max(newest.get(row.uuid, (0.0, 0)), (row.last, row.xid))
    codes = [(subject, newest.get(uuid, (0.0, 0))[1]) for uuid, subject in _subjects(context).items()]
    found: list[Sample] = []
    for subject, code in codes:
        info = explain(code)
        meaning = "No Error" if code == 0 else info.description if info else "Unknown Error"
        found.append(((subject, (str(code), meaning)), code))
    return found
