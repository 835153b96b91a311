"""Recommendations in which everything is known, for tests of what leaves through /metrics."""

from gpuwatch.rightsizing.model.recommendation import (
    Evidence,
    FindingKind,
    Level,
    Recommendation,
    Recommendations,
    RecommendationTarget,
    RecommendedAction,
    Savings,
)

AT = 1_790_000_000.0


def recommendation(
    name: str, hours: float, kind: FindingKind = FindingKind.IDLE_HOLDER, image: str = "a:1"
) -> Recommendation:
    return Recommendation(
        id=f"{kind}-{name}-{image}",
        kind=kind,
        action=RecommendedAction.ASK_OWNER,
        target=RecommendationTarget(namespace="ml", kind="Deployment", name=name, container="main", image=image),
        current="1 GPU",
        recommended="none",
        why="no workload uses it",
        evidence=Evidence(days=2.0, coverage=1.0),
        confidence=Level.HIGH,
        risk=Level.LOW,
        risk_text="somebody may come back",
        savings=Savings(gpu_hours_per_day=hours),
        at=AT,
        expires=AT + 86400,
    )


def advice(*items: Recommendation, workloads: int = 5, learning: int = 3) -> Recommendations:
    return Recommendations(at=AT, since=AT - 86400, node="node-1", workloads=workloads, learning=learning, items=items)
