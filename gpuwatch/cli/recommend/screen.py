"""Recommendations as text: the table of `gpuwatch recommend`."""

from collections.abc import Iterator

from gpuwatch.cli.console.table import Column, table
from gpuwatch.cli.console.text import Text
from gpuwatch.cli.console.words import Words, wrap
from gpuwatch.cli.recommend.items import RecommendationItem, RecommendationList
from gpuwatch.config import RightsizingConfig
from gpuwatch.rightsizing.findings.text import span
from gpuwatch.rightsizing.model.recommendation import FindingKind, Level, RecommendationTarget, Savings

TITLES = {
    FindingKind.NEVER_USED: "never used",
    FindingKind.IDLE_HOLDER: "idle",
    FindingKind.DUTY_CYCLED: "seldom busy",
    FindingKind.MIG_FIT: "fits MIG",
    FindingKind.GANG_OVERSIZED: "too many GPUs",
    FindingKind.PREALLOCATED: "preallocates",
    FindingKind.CPU_BOUND: "waits for CPU",
    FindingKind.IO_BOUND: "waits for IO",
    FindingKind.QUOTA_SLACK: "large quota",
    FindingKind.STEADY_LOAD: "steady load",
    FindingKind.ENERGY: "saves energy",
    FindingKind.MIG_LAYOUT: "MIG layout",
}
"""Finding -> its name on the screen."""


def who(target: RecommendationTarget) -> str:
    """`namespace/name`, else the nodes or GPUs it is about, else `cluster`."""
    names = [part for part in (target.namespace, target.name) if part]
    return "/".join(names) or _several(target.nodes) or _several(target.gpus) or "cluster"


def whole_name(target: RecommendationTarget) -> str:
    """With its kind and container: `Deployment nlp/chat, container server`."""
    kind = target.kind or ("Namespace" if target.namespace and not target.name else "")
    container = f", container {target.container}" if target.container else ""
    return f"{kind} {who(target)}".lstrip() + container


def short(text: str) -> str:
    """Without the domain of resources, which all of them have, and without a count of one."""
    return text.replace("nvidia.com/", "").removeprefix("1 x ")


def hours(savings: Savings) -> str | None:
    """GPU-hours a day; None where it saves none."""
    value = savings.gpu_hours_per_day
    return None if value <= 0 else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def money(savings: Savings) -> str | None:
    """Money a day, with its currency; None without a price."""
    value = savings.money_per_day
    if value is None:
        return None
    number = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"  # cents where they matter
    return f"{number} {savings.currency}" if savings.currency else number


def is_priced(items: "tuple[RecommendationItem, ...]") -> bool:
    """Whether any item has a price."""
    return any(item.savings.money_per_day is not None for item in items)


def _several(names: tuple[str, ...]) -> str:
    return names[0] + (f" +{len(names) - 1}" if len(names) > 1 else "") if names else ""


SERVING_DAYS = 7
"""A whole week, because some of its days are quieter than others."""

CONFIDENCE_STYLES = {Level.LOW: "yellow", Level.MEDIUM: "", Level.HIGH: "green"}


def lines(found: RecommendationList, words: Words, width: int, *, wide: bool) -> list[Text]:
    """The whole screen."""
    items: tuple[RecommendationItem, ...] = found.items
    head = [Text(line, style="bold") for line in wrap(summary(found), width)]
    if not items:
        return head
    chosen = [column for column in COLUMNS if column.header != MONEY or is_priced(items)]
    return [*head, Text(""), *table(chosen, items, words, width=width, wide=wide)]


def summary(found: RecommendationList) -> str:
    """How many recommendations, what they save together, and how many workloads were observed."""
    count = len(found.items)
    parts = [f"{count or 'no'} recommendation{'' if count == 1 else 's'}"]
    if value := hours(found.total):
        parts.append(f"{value} GPU-hours a day")
    if found.total.watts:
        parts.append(f"{found.total.watts:.0f} W")
    if value := money(found.total):
        parts.append(f"{value} a day")
    learned = f", {found.learning} of them still being learned" if found.learning else ""
    return f"{', '.join(parts)}; {found.workloads} workload{'' if found.workloads == 1 else 's'} seen{learned}"


def hints(found: RecommendationList, config: RightsizingConfig, output: str) -> Iterator[str]:
    """Further explanations and next steps, for people."""
    if found.learning:
        count = "1 workload is" if found.learning == 1 else f"{found.learning} workloads are"
        so_far = f", watched for {span(_seconds(found))} so far" if found.since and found.at else ""
        yield (
            f"{count} still being learned{so_far}: batch jobs and notebooks get a size after "
            f"{config.min_history / 3600:g} h of history, all others after {SERVING_DAYS} days"
        )
    if not found.items and _seconds(found) < 2 * (config.idle_after + config.grace):
        quiet = span(config.idle_after + config.grace)
        yield f"an idle GPU is named after {quiet} without work, later where pauses are usual"
        if not found.source.startswith("Prometheus"):
            yield "a Prometheus that has watched for longer can be asked: gpuwatch recommend --from-prometheus URL"
    if found.items and output in ("table", "wide", "csv"):
        if found.total.gpu_hours_per_day > 0 and not is_priced(found.items):
            yield "no GPU has a price; set rightsizing.prices in the configuration"
        if any(item.apply for item in found.items):
            yield "gpuwatch recommend -o apply prints the commands; nothing is ever applied by itself"


def _seconds(found: RecommendationList) -> float:
    """Seconds for which usage was observed; 0: not known."""
    return (found.at - found.since).total_seconds() if found.since and found.at else 0.0


def _saves(item: RecommendationItem, words: Words) -> str:
    """GPU-hours; watts where it saves only these."""
    if value := hours(item.savings):
        return f"{value} h/d"
    return words.watts(item.savings.watts or None)


MONEY = "MONEY/DAY"

COLUMNS: tuple[Column[RecommendationItem], ...] = (
    Column("FINDING", lambda i, w: TITLES[i.kind]),
    Column("WHO", lambda i, w: who(i.target), shorten="middle", least=22),
    Column("NOW", lambda i, w: short(i.current), shorten="end", least=9, drop=2),
    Column("INSTEAD", lambda i, w: short(i.recommended), shorten="end", least=12),
    Column("SAVES", _saves, right=True),
    Column(MONEY, lambda i, w: w.text(money(i.savings)), right=True, drop=3),
    Column("SURE", lambda i, w: i.confidence, style=lambda i: CONFIDENCE_STYLES[i.confidence]),
    Column("RISK", lambda i, w: i.risk, wide=True),
    Column("WATTS", lambda i, w: w.watts(i.savings.watts), right=True, wide=True),
    Column("DAYS", lambda i, w: f"{i.evidence.days:.1f}", right=True, wide=True),
    Column("WHY", lambda i, w: i.why, wide=True),
    Column("ID", lambda i, w: i.id, wide=True),
)
