"""Advice of each kind, as the rules give it, for those who test what is made of it."""

from typing import Any

from gpuwatch.rightsizing.apply import all_applied
from gpuwatch.rightsizing.model.recommendation import (
    Evidence,
    FindingKind,
    Layout,
    Level,
    Placement,
    Recommendation,
    RecommendationTarget,
    RecommendedAction,
    RecommendedChange,
    Savings,
)
from gpuwatch.rightsizing.model.usage import FleetFacts

A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"


def advice(action: RecommendedAction, change: RecommendedChange | None = None, **target: Any) -> Recommendation:
    """About the Deployment `nlp/server`, unless `target` says otherwise."""
    about = {"namespace": "nlp", "kind": "Deployment", "name": "server", "container": "main", **target}
    return Recommendation(
        id=f"{action.value}-0",
        kind=FindingKind.MIG_FIT,
        action=action,
        target=RecommendationTarget(**about),
        current="1 x nvidia.com/gpu",
        recommended="less",
        why="It does little.",
        evidence=Evidence(days=14.0, coverage=1.0),
        confidence=Level.HIGH,
        risk=Level.LOW,
        risk_text="None.",
        savings=Savings(gpu_hours_per_day=20.0),
        change=change or RecommendedChange(),
        at=0.0,
        expires=1.0,
    )


def resized(**target: Any) -> Recommendation:
    """A whole GPU to an instance with the media engines, whose resource has a dot for the plus."""
    change = RecommendedChange(resource="nvidia.com/gpu", count=1, to_resource="nvidia.com/mig-1g.10gb.me", to_count=1)
    return advice(RecommendedAction.RESIZE, change, **target)


def shared(strategy: str, replicas: int = 4, **target: Any) -> Recommendation:
    """A whole GPU to a slot of one."""
    change = RecommendedChange(
        resource="nvidia.com/gpu",
        count=1,
        to_resource="nvidia.com/gpu.shared",
        to_count=1,
        strategy=strategy,
        replicas=replicas,
    )
    return advice(RecommendedAction.SHARE, change, **{"nodes": ("gpu-1", "gpu-2"), **target})


def cut(*layouts: Layout) -> Recommendation:
    """Free GPUs to instances."""
    nodes = tuple(sorted({layout.node for layout in layouts}))
    nobody = {"namespace": None, "kind": None, "name": None, "container": None}
    return advice(RecommendedAction.REPARTITION, RecommendedChange(layouts=layouts), nodes=nodes, **nobody)


def layout(node: str, index: int | None, *profiles: str, model: str = A100) -> Layout:
    """One GPU; where its instances begin does not matter to mig-parted."""
    placements = tuple(Placement(profile=name, start=start, size=1) for start, name in enumerate(profiles))
    return Layout(node=node, gpu=f"GPU-{node}-{index}", index=index, model=model, placements=placements)


def applied(recommendation: Recommendation, fleet: FleetFacts | None = None) -> Recommendation:
    """Advice that is given alone, with what carries it out."""
    return all_applied((recommendation,), fleet)[0]
