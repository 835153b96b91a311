"""The usage ledger and the GPUs of a node, from Views: live ones, recorded ones or simulated ones."""

from collections.abc import Iterable
from typing import NamedTuple

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.view import View
from gpuwatch.rightsizing.model.usage import FleetFacts, GpuFacts, NamespaceUsage
from gpuwatch.rightsizing.usage.ledger import UsageLedger
from gpuwatch.rightsizing.usage.windows import WindowCollector
from gpuwatch.workloads.workload_key import Tenants


def fleet_of(view: View, namespaces: tuple[NamespaceUsage, ...] = ()) -> FleetFacts:
    """Of one node: never `whole`, as other nodes may have GPUs."""
    held = {
        use.gpu
        for use in view.attribution.devices
        if use.holders or use.allocated is not False  # not known where there is no kubelet to ask
    }
    gpus = []
    for gpu in view.snapshot.gpus:
        is_held = gpu.identity.uuid in held or bool(gpu.processes)
        facts = GpuFacts(
            node=view.snapshot.node or "",
            uuid=gpu.identity.uuid,
            index=gpu.identity.index,
            model=gpu.identity.name,
            memory_total=gpu.memory.total,
            mig_enabled=gpu.mig_enabled,
            layout=tuple(mig.profile for mig in gpu.mig if mig.profile),
            held=is_held,
            idle_watts=None if is_held else gpu.power.mean or gpu.power.average,
        )
        gpus.append(facts)
    return FleetFacts(gpus=tuple(gpus), namespaces=namespaces, alone=True)


class RecordedUsage(NamedTuple):
    """`at`: unix seconds of the last View; None: there was none."""

    ledger: UsageLedger
    fleet: FleetFacts
    at: float | None


def usage_of_views(views: Iterable[View], config: RightsizingConfig, tenants: Tenants | None = None) -> RecordedUsage:
    """Views of one node or of several, in the order of their times. `tenants`: what is known of their pods."""
    ledger = UsageLedger(config)
    nodes: dict[str, WindowCollector] = {}
    last: dict[str, View] = {}
    for view in views:
        name = view.snapshot.node or ""
        windows = nodes.setdefault(name, WindowCollector(tenants))
        last[name] = view
        for window in windows.take(view):
            ledger.add(window)
    for windows in nodes.values():
        for window in windows.end():
            ledger.add(window)
    at = max((view.snapshot.at for view in last.values()), default=None)
    gpus = tuple(facts for view in last.values() for facts in fleet_of(view).gpus)
    namespaces = () if at is None else ledger.namespaces(at)
    return RecordedUsage(ledger, FleetFacts(gpus=gpus, namespaces=namespaces, alone=True), at)
