"""Quotas larger than what a namespace ever uses, and namespaces that keep whole nodes at work all the time."""

from collections import Counter
from math import ceil

from gpuwatch.model.recommendation import Action, Change, Evidence, Finding, Level, Recommendation, Savings, Target
from gpuwatch.model.work import Distribution
from gpuwatch.rightsizing.findings.advice import identity
from gpuwatch.rightsizing.findings.text import some
from gpuwatch.rightsizing.findings.workload import WEEK_DAYS, Ground, graded
from gpuwatch.rightsizing.model.usage import Hold, NamespaceUse

HEADROOM = 1.15
"""Times the most GPUs that were at work at a time."""

SURE_DAYS = (14.0, 10.0)


def quota_slack(use: NamespaceUse, ground: Ground) -> Recommendation | None:
    """A lower `hard`, never below what is used now nor below what is held. A quota is never raised."""
    if not ground.fleet.whole or use.hard is None or use.used is None or not _is_known(use):
        return None
    most = max(use.active)
    least = max(use.used, use.held, ceil(HEADROOM * most * _unseen(use) - 1e-9), 1)
    if least >= use.hard:
        return None
    return Recommendation(
        id=identity(Finding.QUOTA_SLACK, use.namespace, use.resource, use.quota),
        kind=Finding.QUOTA_SLACK,
        action=Action.CHANGE_QUOTA,
        target=Target(namespace=use.namespace),
        current=f"{use.hard} x {use.resource}",
        recommended=f"{least} x {use.resource}",
        why=f"At most {most:g} at work in any five minutes of {len(use.active)} days; {use.used} of {use.hard} are "
        f"used now. {use.hard - least} could be promised to others.",
        evidence=_evidence(use),
        confidence=graded(use.days, SURE_DAYS),
        risk=Level.LOW if least >= 2 * most else Level.MEDIUM,
        risk_words="Pods beyond the quota are refused, also where work comes seldom, as before a deadline.",
        savings=Savings(gpu_hours_per_day=0.0),
        change=Change(resource=use.resource, hard={use.resource: least}, quota=use.quota),
        at=ground.now,
        expires=ground.now + ground.config.expire,
    )


def steady_load(use: NamespaceUse, ground: Ground, holds: tuple[Hold, ...]) -> Recommendation | None:
    """Nodes to reserve: those of which it holds every GPU, at most as many as are always at work. `holds`: its own."""
    if not ground.fleet.whole or use.resource != "nvidia.com/gpu" or not _is_known(use):
        return None
    nodes = _reservable(use.steady, ground, holds)
    if not nodes:
        return None
    gpus = tuple(sorted(gpu.uuid for gpu in ground.fleet.gpus if gpu.node in nodes))
    return Recommendation(
        id=identity(Finding.STEADY_LOAD, use.namespace, use.resource),
        kind=Finding.STEADY_LOAD,
        action=Action.RESERVE,
        target=Target(namespace=use.namespace, nodes=nodes, gpus=gpus),
        current=f"{use.held} x {use.resource}",
        recommended=f"reserve {len(nodes)} node{'s' if len(nodes) > 1 else ''}",
        why=f"{use.steady} GPUs were at work in 95 % of all time of {use.days:.0f} days. It holds every GPU of "
        f"{some(nodes)} ({len(gpus)} in all).",
        evidence=_evidence(use),
        confidence=graded(use.days, SURE_DAYS),
        risk=Level.MEDIUM,
        risk_words="Reserved nodes stand idle when its load ends: take the reservation back then.",
        savings=Savings(gpu_hours_per_day=0.0),
        at=ground.now,
        expires=ground.now + ground.config.expire,
    )


def _reservable(steady: int, ground: Ground, holds: tuple[Hold, ...]) -> tuple[str, ...]:
    """The largest first; together no more GPUs than are always at work."""
    sizes = Counter(gpu.node for gpu in ground.fleet.gpus)
    held = {hold.gpu for hold in holds if hold.present and not hold.device and hold.holders == 1}
    own = [node for node in sizes if all(gpu.uuid in held for gpu in ground.fleet.gpus if gpu.node == node)]
    chosen: list[str] = []
    for node in sorted(own, key=lambda node: (-sizes[node], node)):
        if sizes[node] <= steady:
            chosen.append(node)
            steady -= sizes[node]
    return tuple(sorted(chosen))


def _unseen(use: NamespaceUse) -> float:
    """Times what is seen, where more is promised than anybody sees held: on nodes that are not scraped, or several pods
    on one GPU of which an exporter names one. The rest is taken to work as much.
    """
    return use.used / use.held if use.used and 0 < use.held < use.used else 1.0


def _is_known(use: NamespaceUse) -> bool:
    return use.days >= WEEK_DAYS and len(use.active) >= WEEK_DAYS


def _evidence(use: NamespaceUse) -> Evidence:
    days = sorted(use.active)
    place = ceil(0.95 * len(days)) - 1
    mean = sum(days) / len(days)
    spread = Distribution(mean=mean, p50=days[(len(days) - 1) // 2], p95=days[place], max=days[-1])
    return Evidence(days=use.days, coverage=min(1.0, len(days) / ceil(use.days)), active=spread)
