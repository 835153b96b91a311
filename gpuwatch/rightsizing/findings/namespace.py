"""Quotas larger than what a namespace ever uses, and namespaces that keep whole nodes at work all the time."""

from collections import Counter
from math import ceil

from gpuwatch.model.work import Distribution
from gpuwatch.rightsizing.findings.advice import recommendation_id
from gpuwatch.rightsizing.findings.text import some
from gpuwatch.rightsizing.findings.workload import WEEK_DAYS, FleetContext, level_of
from gpuwatch.rightsizing.model.recommendation import (
    Evidence,
    FindingKind,
    Level,
    Recommendation,
    RecommendationTarget,
    RecommendedAction,
    RecommendedChange,
    Savings,
)
from gpuwatch.rightsizing.model.usage import DeviceAllocation, NamespaceUsage

HEADROOM = 1.15
"""Times the most GPUs that were at work at a time."""

SURE_DAYS = (14.0, 10.0)


def quota_slack(use: NamespaceUsage, context: FleetContext) -> Recommendation | None:
    """A lower `hard`, never below what is used now nor below what is held. A quota is never raised."""
    if not context.fleet.whole or use.hard is None or use.used is None or not _is_known(use):
        return None
    most = max(use.active)
    least = max(
        use.used,
        use.held,
        ceil(HEADROOM * most * (use.used / use.held if use.used and 0 < use.held < use.used else 1.0) - 1e-9),
        1,
    )
    if least >= use.hard:
        return None
    return Recommendation(
        id=recommendation_id(FindingKind.QUOTA_SLACK, use.namespace, use.resource, use.quota),
        kind=FindingKind.QUOTA_SLACK,
        action=RecommendedAction.CHANGE_QUOTA,
        target=RecommendationTarget(namespace=use.namespace),
        current=f"{use.hard} x {use.resource}",
        recommended=f"{least} x {use.resource}",
        why=f"At most {most:g} at work in any five minutes of {len(use.active)} days; {use.used} of {use.hard} are "
        f"used now. {use.hard - least} could be promised to others.",
        evidence=_evidence(use),
        confidence=level_of(use.days, SURE_DAYS),
        risk=Level.LOW if least >= 2 * most else Level.MEDIUM,
        risk_text="Pods beyond the quota are refused, also where work comes seldom, as before a deadline.",
        savings=Savings(gpu_hours_per_day=0.0),
        change=RecommendedChange(resource=use.resource, hard={use.resource: least}, quota=use.quota),
        at=context.now,
        expires=context.now + context.config.expire,
    )


def steady_load(
    use: NamespaceUsage, context: FleetContext, holds: tuple[DeviceAllocation, ...]
) -> Recommendation | None:
    """Nodes to reserve: the namespace holds all their GPUs, together `steady` at most. `holds`: its own."""
    if not context.fleet.whole or use.resource != "nvidia.com/gpu" or not _is_known(use):
        return None
    sizes = Counter(gpu.node for gpu in context.fleet.gpus)
    held = {hold.gpu for hold in holds if hold.present and not hold.device and hold.holders == 1}
    own = [node for node in sizes if all(gpu.uuid in held for gpu in context.fleet.gpus if gpu.node == node)]
    chosen, left = list[str](), use.steady
    for node in sorted(own, key=lambda node: (-sizes[node], node)):  # the largest first
        if sizes[node] <= left:
            chosen.append(node)
            left -= sizes[node]
    if not chosen:
        return None
    nodes = tuple(sorted(chosen))
    gpus = tuple(sorted(gpu.uuid for gpu in context.fleet.gpus if gpu.node in nodes))
    return Recommendation(
        id=recommendation_id(FindingKind.STEADY_LOAD, use.namespace, use.resource),
        kind=FindingKind.STEADY_LOAD,
        action=RecommendedAction.RESERVE,
        target=RecommendationTarget(namespace=use.namespace, nodes=nodes, gpus=gpus),
        current=f"{use.held} x {use.resource}",
        recommended=f"reserve {len(nodes)} node{'s' if len(nodes) > 1 else ''}",
        why=f"{use.steady} GPUs were at work in 95 % of all time of {use.days:.0f} days. It holds every GPU of "
        f"{some(nodes)} ({len(gpus)} in all).",
        evidence=_evidence(use),
        confidence=level_of(use.days, SURE_DAYS),
        risk=Level.MEDIUM,
        risk_text="Reserved nodes stand idle when its load ends: take the reservation back then.",
        savings=Savings(gpu_hours_per_day=0.0),
        at=context.now,
        expires=context.now + context.config.expire,
    )


def _is_known(use: NamespaceUsage) -> bool:
    return use.days >= WEEK_DAYS and len(use.active) >= WEEK_DAYS


def _evidence(use: NamespaceUsage) -> Evidence:
    days = sorted(use.active)
    place = ceil(0.95 * len(days)) - 1
    mean = sum(days) / len(days)
    spread = Distribution(mean=mean, p50=days[(len(days) - 1) // 2], p95=days[place], max=days[-1])
    return Evidence(days=use.days, coverage=min(1.0, len(days) / ceil(use.days)), active=spread)
