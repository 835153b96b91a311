"""Who uses what, from Views that were recorded or played: what an agent would know that had seen them."""

from collections.abc import Iterable
from typing import NamedTuple

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.view import View
from gpuwatch.rightsizing.model.usage import Fleet
from gpuwatch.rightsizing.usage.ledger import Ledger
from gpuwatch.rightsizing.usage.node_facts import fleet_of
from gpuwatch.rightsizing.usage.windows import Windows
from gpuwatch.workloads.workload_key import Tenants


class Recollected(NamedTuple):
    """`at`: unix seconds of the last View; None: there was none."""

    ledger: Ledger
    fleet: Fleet
    at: float | None


def usage_of_views(views: Iterable[View], config: RightsizingConfig, tenants: Tenants | None = None) -> Recollected:
    """Views of one node or of several, in the order of their times. `tenants`: what is known of their pods."""
    ledger = Ledger(config)
    nodes: dict[str, Windows] = {}
    last: dict[str, View] = {}
    for view in views:
        name = view.snapshot.node or ""
        windows = nodes.setdefault(name, Windows(tenants))
        last[name] = view
        for window in windows.take(view):
            ledger.add(window)
    for windows in nodes.values():
        for window in windows.end():
            ledger.add(window)
    at = max((view.snapshot.at for view in last.values()), default=None)
    gpus = tuple(facts for view in last.values() for facts in fleet_of(view).gpus)
    namespaces = () if at is None else ledger.namespaces(at)
    return Recollected(ledger, Fleet(gpus=gpus, namespaces=namespaces, alone=True), at)
