"""Recommendations in words: whom, what now, what instead, and what that saves. For screen, CSV and report alike."""

from gpuwatch.cli.recommend.items import RecommendationItem
from gpuwatch.model.recommendation import Finding, Savings, Target

TITLES = {
    Finding.NEVER_USED: "never used",
    Finding.IDLE_HOLDER: "idle",
    Finding.DUTY_CYCLED: "seldom busy",
    Finding.MIG_FIT: "fits MIG",
    Finding.GANG_OVERSIZED: "too many GPUs",
    Finding.PREALLOCATED: "preallocates",
    Finding.CPU_BOUND: "waits for CPU",
    Finding.IO_BOUND: "waits for IO",
    Finding.QUOTA_SLACK: "large quota",
    Finding.STEADY_LOAD: "steady load",
    Finding.ENERGY: "saves energy",
    Finding.MIG_LAYOUT: "MIG layout",
}
"""Every finding as people call it."""

DAYS_A_MONTH = 30


def who(target: Target) -> str:
    """`namespace/name`, or the nodes it is about."""
    names = [part for part in (target.namespace, target.name) if part]
    return "/".join(names) or _several(target.nodes) or _several(target.gpus) or "cluster"


def whole_name(target: Target) -> str:
    """Also what kind it is, and which container: `Deployment nlp/chat, container server`."""
    kind = target.kind or ("Namespace" if target.namespace and not target.name else "")
    container = f", container {target.container}" if target.container else ""
    return f"{kind} {who(target)}".lstrip() + container


def short(text: str) -> str:
    """Without the domain of resources, which all of them have, and without saying that it is one."""
    return text.replace("nvidia.com/", "").removeprefix("1 x ")


def hours(savings: Savings) -> str | None:
    """GPU-hours a day; None where it saves none."""
    value = savings.gpu_hours_per_day
    return None if value <= 0 else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def money(savings: Savings) -> str | None:
    """Of a day, with its currency; None without a price."""
    return None if savings.money_per_day is None else amount(savings.money_per_day, savings.currency)


def amount(value: float, currency: str | None) -> str:
    """With cents where they matter."""
    number = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
    return f"{number} {currency}" if currency else number


def is_priced(items: "tuple[RecommendationItem, ...]") -> bool:
    """Whether any of them is."""
    return any(item.savings.money_per_day is not None for item in items)


def _several(names: tuple[str, ...]) -> str:
    return names[0] + (f" +{len(names) - 1}" if len(names) > 1 else "") if names else ""
