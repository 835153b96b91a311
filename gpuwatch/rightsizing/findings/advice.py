"""How a finding becomes a Recommendation: its identifier, its target, its savings, its expiry."""

import hashlib
from collections import Counter
from fnmatch import fnmatchcase

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.snapshot import Record
from gpuwatch.rightsizing.findings.workload import WorkloadFacts
from gpuwatch.rightsizing.model.recommendation import (
    Evidence,
    FindingKind,
    Level,
    Predicted,
    Recommendation,
    RecommendedAction,
    RecommendedChange,
    Savings,
)
from gpuwatch.rightsizing.model.usage import DeviceAllocation


class Proposal(Record, frozen=True, kw_only=True):
    """What to do: `current` and `recommended` are for people, `change` is for programs."""

    action: RecommendedAction
    current: str
    recommended: str
    change: RecommendedChange


class Risk(Record, frozen=True, kw_only=True):
    """What may go wrong, and how bad it is."""

    level: Level
    text: str


def advice(
    facts: WorkloadFacts,
    kind: FindingKind,
    proposal: Proposal,
    risk: Risk,
    *,
    why: str,
    savings: Savings,
    holds: tuple[DeviceAllocation, ...] | None = None,
    evidence: Evidence | None = None,
    confidence: Level | None = None,
    predicted: Predicted | None = None,
    good_for: float | None = None,
) -> Recommendation:
    """About a workload. None: the workload's own; `holds`: its present ones; `good_for`: seconds, else `expire`."""
    key, context = facts.summary.key, facts.context
    return Recommendation(
        id=recommendation_id(kind, key.namespace, key.kind, key.name, key.container, key.image),
        kind=kind,
        action=proposal.action,
        target=facts.target(facts.present if holds is None else holds),
        current=proposal.current,
        recommended=proposal.recommended,
        why=why,
        evidence=facts.evidence() if evidence is None else evidence,
        confidence=facts.confidence if confidence is None else confidence,
        risk=risk.level,
        risk_text=risk.text,
        savings=savings,
        change=proposal.change,
        predicted=predicted,
        at=context.now,
        expires=context.now + (facts.config.expire if good_for is None else good_for),
    )


def recommendation_id(finding: FindingKind, *target: str | None) -> str:
    """Equal for the same finding about the same target, on any machine: `mig-fit-0a1b2c3d4e`."""
    text = "\0".join(part or "" for part in target)
    return f"{finding.value.replace('_', '-')}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def allocation_text(holds: tuple[DeviceAllocation, ...]) -> str:
    """`2 x nvidia.com/gpu`."""
    counts = Counter(hold.resource or (f"MIG {hold.profile or 'instance'}" if hold.device else "GPU") for hold in holds)
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items()))


HOURS = 24.0


def savings(config: RightsizingConfig, model: str | None, hours_per_day: float, watts: float | None = None) -> Savings:
    """Of GPUs of that model. Money is None where GPU-hours have no price, or nothing that is saved has one."""
    price = 0.0 if hours_per_day == 0 else None
    if price is None and model is not None:  # of an hour, by the first pattern that matches
        price = next((each for pattern, each in config.prices.items() if fnmatchcase(model, pattern)), None)
    power = watts * HOURS / 1000 * config.electricity_price if watts and config.electricity_price else 0.0
    money = None if price is None else hours_per_day * price + power
    is_priced = money is not None and (hours_per_day > 0 or power > 0)
    return Savings(
        gpu_hours_per_day=hours_per_day,
        watts=watts,
        money_per_day=money if is_priced else None,
        currency=config.currency if is_priced else None,
    )
