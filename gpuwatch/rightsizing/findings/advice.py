"""How a finding becomes an advice: its name, its target, its end."""

import hashlib
from collections import Counter

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
