"""How to cut free GPUs, for work that would do as well on a MIG instance.

A GPU that a pod holds, or may hold, is never cut again. A GPU whose instances serve the demand stays as it is, as long
as that serves no less; for the rest the fewest GPUs are cut.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from gpuwatch.config import RightsizingConfig
from gpuwatch.rightsizing.findings.advice import recommendation_id
from gpuwatch.rightsizing.findings.mig_packing import GpuLayout, pack
from gpuwatch.rightsizing.model import mig_profiles
from gpuwatch.rightsizing.model.mig_profiles import GpuModel
from gpuwatch.rightsizing.model.recommendation import (
    Evidence,
    FindingKind,
    Layout,
    Level,
    Recommendation,
    RecommendationTarget,
    RecommendedAction,
    RecommendedChange,
    Savings,
)
from gpuwatch.rightsizing.model.usage import FleetFacts, GpuFacts

NAMED = 3
"""Workloads that the text names at most; it counts the others."""

RISK = (
    "Keep pods off these GPUs until it is done: reserve them, or cordon the node. MIG mode ends NVLink and "
    "peer-to-peer there. To turn it on, all clients of the GPU must stop; A30 and A100 need a GPU reset, too. "
    "The placements are from a table: what `nvidia-smi mig -lgipp` says on the node counts."
)

Cutting = tuple[GpuFacts, GpuLayout]


def layouts(
    fits: Iterable[Recommendation], fleet: FleetFacts, config: RightsizingConfig, now: float
) -> tuple[Recommendation, ...]:
    """One advice for each node and model with GPUs to cut. `fits`: findings `mig_fit`; others are ignored."""
    small = [fit for fit in fits if fit.kind is FindingKind.MIG_FIT and fit.change.to_resource]
    found: list[Recommendation] = []
    used = frozenset(gpu.node for gpu in fleet.gpus if gpu.held)
    for model in mig_profiles.table().gpus:
        theirs = [fit for fit in small if mig_profiles.model_of(fit.target.model) is model]
        free = [
            gpu for gpu in fleet.gpus if not gpu.held and mig_profiles.model_of(gpu.model, gpu.memory_total) is model
        ]
        if not theirs or not free:
            continue
        cut = sorted(
            cuttings(demand(theirs, model), free, model, used), key=lambda each: (each[0].node, _place(each[0]))
        )
        for node, group in groupby(cut, key=lambda each: each[0].node):
            found.append(_advice(node, list(group), theirs, config, now))
    return tuple(found)


def demand(fits: Iterable[Recommendation], model: GpuModel) -> Counter[str]:
    """Instances that `fits` need, by profile: one a pod, and one for a workload that has no pod now."""
    names = {profile.resource: profile.name for profile in model.plain()}
    wanted: Counter[str] = Counter()
    for fit in fits:
        name = names.get(fit.change.to_resource or "")
        if name:
            wanted[name] += max(1, len(fit.target.pods)) * (fit.change.to_count or 1)
    return wanted


def cuttings(
    wanted: Counter[str], free: Sequence[GpuFacts], model: GpuModel, used: frozenset[str] = frozenset()
) -> list[Cutting]:
    """GPUs of `free`, which are of `model` and not held, to cut again, and how. `used`: nodes with a held GPU; their
    free GPUs come later than others, as they cannot be cut before no pod uses a GPU of the node.
    """
    serving: list[GpuFacts] = []  # without being cut again; those that serve most first, no more than are wanted
    left = Counter(wanted)
    for gpu in sorted(free, key=lambda gpu: (-_slices(Counter(gpu.layout) & wanted, model), _readiest(gpu))):
        serves = Counter(gpu.layout) & left
        if serves:
            serving.append(gpu)
            left -= serves
    keep, best, chosen = len(serving), -1, []
    while best < _slices(wanted, model):
        kept = {gpu.uuid for gpu in serving[:keep]}
        there = Counter(profile for gpu in free if gpu.uuid in kept for profile in gpu.layout)
        others = sorted(
            (gpu for gpu in free if gpu.uuid not in kept),
            key=lambda gpu: (bool(gpu.layout), gpu.node in used, _readiest(gpu)),
        )
        packed = pack(wanted - there, model.plain(), len(others))
        served = _slices(wanted & there, model) + sum(each.size for layout in packed for each in layout)
        if served > best:
            best, chosen = served, list(zip(others, packed, strict=False))
        if keep == 0:
            break
        keep //= 2
    return chosen


def _advice(
    node: str, cut: Sequence[Cutting], fits: Sequence[Recommendation], config: RightsizingConfig, now: float
) -> Recommendation:
    gpus = [gpu for gpu, _ in cut]
    model = gpus[0].model or ""
    instances = sum(len(layout) for _, layout in cut)
    names = [f"{fit.target.namespace}/{fit.target.name}" for fit in fits]
    others = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    whole = f"{len(cut)} GPU{'s' if len(cut) > 1 else ''}"
    gain = "What they save is counted with them." if instances > len(cut) else "It pays when others move in, too."
    return Recommendation(
        id=recommendation_id(FindingKind.MIG_LAYOUT, node, model),
        kind=FindingKind.MIG_LAYOUT,
        action=RecommendedAction.REPARTITION,
        target=RecommendationTarget(nodes=(node,), gpus=tuple(gpu.uuid for gpu in gpus), model=model),
        current="; ".join(f"{_name(gpu)}: {_words(gpu.layout) or 'not cut'}, free" for gpu in gpus),
        recommended="; ".join(f"{_name(gpu)}: {_words(each.profile for each in layout)}" for gpu, layout in cut),
        why=f"Place for {instances} instance{'s' if instances > 1 else ''} on {whole} that no pod holds, for "
        f"{', '.join(names[:NAMED])}{others}. {gain}",
        evidence=Evidence(
            days=min(fit.evidence.days for fit in fits), coverage=min(fit.evidence.coverage for fit in fits)
        ),
        confidence=min((fit.confidence for fit in fits), key=list(Level).index),
        risk=Level.MEDIUM,
        risk_text=RISK,
        savings=Savings(gpu_hours_per_day=0.0),
        change=RecommendedChange(
            layouts=tuple(
                Layout(node=node, gpu=gpu.uuid, index=gpu.index, model=model, placements=layout) for gpu, layout in cut
            )
        ),
        at=now,
        expires=now + config.expire,
    )


def _words(profiles: Iterable[str]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in sorted(Counter(profiles).items(), reverse=True))


def _name(gpu: GpuFacts) -> str:
    return gpu.uuid if gpu.index is None else f"GPU {gpu.index}"


def _readiest(gpu: GpuFacts) -> tuple[bool, bool, str, int, str]:
    """Sort key: without instances to lose first, then in MIG mode, then by node and index."""
    return (bool(gpu.layout), not gpu.mig_enabled, gpu.node, *_place(gpu))


def _place(gpu: GpuFacts) -> tuple[int, str]:
    return (0 if gpu.index is None else gpu.index, gpu.uuid)


def _slices(counts: Counter[str], model: GpuModel) -> int:
    """Memory slices of instances."""
    sizes = {profile.name: profile.size for profile in model.profiles}
    return sum(sizes[name] * count for name, count in counts.items())
