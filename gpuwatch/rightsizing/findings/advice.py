"""How a finding becomes a Recommendation: its identifier, its target, its savings, its expiry."""

import hashlib
from collections import Counter
from fnmatch import fnmatchcase

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.recommendation import (
    Action,
    Change,
    Evidence,
    Finding,
    Level,
    Predicted,
    Recommendation,
    Savings,
)
from gpuwatch.rightsizing.findings.workload import Case
from gpuwatch.rightsizing.model.usage import Hold


def advice(
    case: Case,
    finding: Finding,
    *,
    holds: tuple[Hold, ...],
    action: Action,
    current: str,
    recommended: str,
    why: str,
    evidence: Evidence,
    confidence: Level,
    risk: Level,
    risk_words: str,
    savings: Savings,
    change: Change,
    predicted: Predicted | None = None,
    good_for: float | None = None,
) -> Recommendation:
    """About a workload, by those of its holds that matter; `good_for`: seconds, else as configured."""
    key = case.summary.key
    return Recommendation(
        id=identity(finding, key.namespace, key.kind, key.name, key.container, key.image),
        kind=finding,
        action=action,
        target=case.target(holds),
        current=current,
        recommended=recommended,
        why=why,
        evidence=evidence,
        confidence=confidence,
        risk=risk,
        risk_words=risk_words,
        savings=savings,
        change=change,
        predicted=predicted,
        at=case.ground.now,
        expires=case.ground.now + (case.config.expire if good_for is None else good_for),
    )


def identity(finding: Finding, *target: str | None) -> str:
    """The same for the same finding about the same target, on any machine: `mig-fit-0a1b2c3d4e`."""
    text = "\0".join(part or "" for part in target)
    return f"{finding.value.replace('_', '-')}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def held_words(holds: tuple[Hold, ...]) -> str:
    """`2 x nvidia.com/gpu`."""
    counts = Counter(hold.resource or (f"MIG {hold.profile or 'instance'}" if hold.device else "GPU") for hold in holds)
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items()))


HOURS = 24.0


def savings(config: RightsizingConfig, model: str | None, hours_per_day: float, watts: float | None = None) -> Savings:
    """Of GPUs of that model. Nothing is made up: without a price of the model GPU-hours have none, nor have all."""
    price = 0.0 if hours_per_day == 0 else price_of(config, model)
    power = watts * HOURS / 1000 * config.electricity_price if watts and config.electricity_price else 0.0
    money = None if price is None else hours_per_day * price + power
    is_priced = money is not None and (hours_per_day > 0 or power > 0)
    return Savings(
        gpu_hours_per_day=hours_per_day,
        watts=watts,
        money_per_day=money if is_priced else None,
        currency=config.currency if is_priced else None,
    )


def price_of(config: RightsizingConfig, model: str | None) -> float | None:
    """Of an hour, by the first pattern that fits the model's name."""
    if model is None:
        return None
    return next((price for pattern, price in config.prices.items() if fnmatchcase(model, pattern)), None)
