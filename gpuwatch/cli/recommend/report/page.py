"""The page: totals, charts, an overview, a card for each recommendation, and how they were judged.

No script, no font, no picture from elsewhere; a policy forbids loading, should a name ever become markup.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from importlib.resources import files

from gpuwatch import __version__
from gpuwatch.cli.console.document import to_yaml
from gpuwatch.cli.recommend.items import ROOM, RecommendationItem, RecommendationList, added, total
from gpuwatch.cli.recommend.report.charts import Bar, Markup, MemoryMark, bars, joined, memory, tag
from gpuwatch.cli.recommend.screen import DAYS_A_MONTH, TITLES, amount, hours, is_priced, money, short, who, whole_name
from gpuwatch.config import RightsizingConfig
from gpuwatch.rightsizing.findings.text import percent, span
from gpuwatch.rightsizing.model.recommendation import Level

DAY = 86400.0

CONFIDENCE_CLASSES = {Level.LOW: "warn", Level.MEDIUM: "soft", Level.HIGH: "good"}
RISK_CLASSES = {Level.LOW: "good", Level.MEDIUM: "warn", Level.HIGH: "bad"}


def card(item: RecommendationItem) -> Markup:
    """The whole card; `id` of the element is that of the recommendation."""
    saved, peaks = item.savings, item.evidence.peaks
    gains = [f"{value} GPU-hours a day"] if (value := hours(saved)) else []
    gains += [f"{saved.watts:.0f} W"] if saved.watts else []
    if saved.money_per_day is not None and saved.money_per_day > 0:
        month = amount(saved.money_per_day * DAYS_A_MONTH, saved.currency)
        gains.append(f"{money(saved)} a day, {month} a month")
    chart = tag("section", tag("h4", "Highest memory of each day"), memory(peaks, _marks(item))) if peaks else None
    steps: list[Markup] = []
    for step in item.apply:
        steps.append(tag("p", step.note))
        steps += [tag("pre", step.command)] if step.command else []
        steps += [tag("pre", to_yaml(step.manifest))] if step.manifest is not None else []
    return tag(
        "article",
        tag(
            "header",
            tag("h3", f"{_sentence(TITLES[item.kind])}: {whole_name(item.target)}"),
            tag("span", f"confidence {item.confidence}", class_=f"badge {CONFIDENCE_CLASSES[item.confidence]}"),
            tag("span", f"risk {item.risk}", class_=f"badge {RISK_CLASSES[item.risk]}"),
        ),
        tag("p", tag("b", item.current), " → ", tag("b", item.recommended), class_="change"),
        tag("p", f"{_sentence(item.why)}. ", *(("Saves ", tag("b", ", ".join(gains)), ".") if gains else ())),
        tag("div", chart, class_="charts") if chart else None,
        tag("p", tag("small", " · ".join(_facts(item)), class_="soft")),
        tag("p", tag("small", f"Risk: {item.risk_text.rstrip('.')}.", class_="soft")) if item.risk_text else None,
        tag("details", tag("summary", "How to do it"), *steps) if steps else None,
        id=item.id,
    )


def _sentence(text: str) -> str:
    """With a capital and without the full stop; names in it stay as they are."""
    return text[:1].upper() + text[1:].rstrip(".")


def _marks(item: RecommendationItem) -> tuple[MemoryMark, ...]:
    """The size offered, and what is needed of it; where nothing is offered, what the GPU has."""
    predicted = item.predicted
    if predicted is not None and predicted.memory_offered is not None:
        offered = MemoryMark("offered", "offered", predicted.memory_offered)
        needed = predicted.memory_needed
        return (offered,) if needed is None else (offered, MemoryMark("needed", "with margin", needed))
    total = item.evidence.memory_total
    return () if total is None else (MemoryMark("total", "of the GPU", total),)


def _facts(item: RecommendationItem) -> Iterator[str]:
    evidence, predicted, target = item.evidence, item.predicted, item.target
    yield f"watched for {span(evidence.days * DAY)}, {percent(evidence.coverage)} of that time observed"
    if evidence.idle_seconds:
        yield f"idle for {span(evidence.idle_seconds)}"
    for label, each in (("any kernel", evidence.busy), ("SMs", evidence.sm), ("memory bus", evidence.dram)):
        if each is not None:
            yield f"{label} {percent(each.mean)}, p95 {percent(each.p95)}"
    if evidence.watts is not None:
        yield f"draws {evidence.watts.mean:.0f} W"
    if evidence.active is not None:
        yield f"GPUs at work at a time: {evidence.active.p50:g} usually, {evidence.active.max:g} at most"
    if predicted is not None and predicted.slowdown_high is not None:
        low = f"{percent(predicted.slowdown_low)} to " if predicted.slowdown_low is not None else "up to "
        yield f"expected to take {low}{percent(predicted.slowdown_high)} longer"
    yield from (each for each in (target.model, target.work_class, target.image) if each)
    if target.nodes:
        yield f"on {', '.join(target.nodes)}"


def method(config: RightsizingConfig) -> Iterator[Markup]:
    """Two headings with a few sentences each."""
    yield tag("h2", "How it was judged")
    yield tag(
        "p",
        "For each workload (owner, container, image) the share of time at work is kept in histograms in which newer "
        "days weigh more, and the highest memory of each day. Idle is a GPU without any kernel for more than "
        f"{config.idle_after / 60:g} minutes, and for longer than its user ever paused before. Memory is judged by the "
        "highest daily peak of eight days, its growth and a margin, against what an instance really offers; compute by "
        "the slowdown that an instance with fewer multiprocessors and less bandwidth would cause, 95 % of the time no "
        f"more than {percent(config.max_mig_slowdown)}. Nothing is said of a size before "
        f"{config.min_history / 3600:g} hours of history with {percent(config.min_coverage)} of them seen, a week "
        "where somebody may wait for the work.",
    )
    yield tag("h2", "What it cannot know")
    yield tag(
        "p",
        "Savings are estimates: GPU-hours that become free, which are money only when somebody else uses them or the "
        "node is given back. A slowdown is computed, not measured: watch the first pod on a smaller GPU. What did not "
        "run in this time was not seen: a yearly report, a failover, tomorrow's larger batch. Several findings about "
        "one workload count once in the sums, and quotas, reserved nodes and MIG layouts not at all, since they are "
        "about the same GPUs.",
    )


FEWEST = 3
"""Fewer need no overview."""

NOTHING_LOADS = "default-src 'none'; style-src 'unsafe-inline'"
"""Content security policy."""

MOST_NAMESPACES = 14
TITLE = "GPU right-sizing"


def report(found: RecommendationList, config: RightsizingConfig) -> str:
    """The whole file."""
    items: tuple[RecommendationItem, ...] = found.items
    head = (
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=NOTHING_LOADS),
        tag("title", TITLE),
        tag("style", Markup(files(__package__).joinpath("style.css").read_text())),
    )
    subject = [found.source]
    subject += [f"node {found.node}"] if found.node else []
    subject += [f"{found.at:%Y-%m-%d %H:%M} UTC"] if found.at else []
    subject += [f"usage since {found.since:%Y-%m-%d %H:%M} UTC"] if found.since and found.at else []
    nothing = "No workload was found to hold more than it uses."
    if found.learning and found.learning == found.workloads:
        nothing = "Nothing can be said yet: all workloads are still being learned."
    body = (
        tag("h1", TITLE),
        tag("p", " · ".join(subject), class_="soft"),
        tag("div", *tiles(found), class_="tiles"),
        totals(items),
        tag("h2", "Recommendations") if items else tag("p", nothing),
        overview(items),
        *(card(item) for item in items),
        *method(config),
        tag("footer", tag("small", f"gpuwatch {__version__}; nothing of this was applied", class_="soft")),
    )
    page = tag("html", tag("head", *head), tag("body", tag("main", *body)), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def tiles(found: RecommendationList) -> Iterator[Markup]:
    """The sums, as large numbers."""
    saved = found.total
    tiles = [(hours(saved) or "0", f"GPU-hours a day, as much as {saved.gpu_hours_per_day / 24:.1f} GPUs")]
    if saved.money_per_day is not None:
        month = amount(saved.money_per_day * DAYS_A_MONTH, saved.currency)
        tiles.append((month, f"a month of {DAYS_A_MONTH} days; {money(saved)} a day"))
    if saved.watts:
        tiles.append((f"{saved.watts:,.0f} W", "less power"))
    learning = f"; {found.learning} still being learned" if found.learning else ""
    tiles += [(str(len(found.items)), "recommendations"), (str(found.workloads), f"workloads observed{learning}")]
    for value, label in tiles:
        yield tag("div", tag("b", value), tag("small", label, class_="soft"), class_="tile")


def totals(items: tuple[RecommendationItem, ...]) -> Markup | None:
    """GPU-hours by finding and by namespace, as bars."""
    findings: defaultdict[str, list[RecommendationItem]] = defaultdict(list)
    namespaces: defaultdict[str, list[RecommendationItem]] = defaultdict(list)
    for item in items:
        namespaces[item.target.namespace or "no namespace"].append(item)
        if item.kind not in ROOM:
            findings[TITLES[item.kind]].append(item)
    sums = [(name, added(item.savings for item in each), f" ({len(each)})") for name, each in findings.items()]
    by_finding = longest_first(Bar(name, sum_.gpu_hours_per_day, f"{hours(sum_)}{count}") for name, sum_, count in sums)
    by_namespace = longest_first(
        Bar(name, sum_.gpu_hours_per_day, hours(sum_) or "")
        for name, each in namespaces.items()
        for sum_ in [total(each)]
    )
    if rest := sum(row.value for row in by_namespace[MOST_NAMESPACES:]):
        others = len(by_namespace) - MOST_NAMESPACES
        by_namespace[MOST_NAMESPACES:] = [Bar(f"{others} others", rest, f"{rest:.1f}")]
    charts = [
        tag("section", tag("h4", heading), bars(heading, rows))
        for heading, rows in (
            ("GPU-hours a day, by finding (how many)", by_finding),
            ("GPU-hours a day, by namespace", by_namespace),
        )
        if rows
    ]
    if not charts:
        return None
    twice = sum(row.value for row in by_finding) > total(items).gpu_hours_per_day * 1.001
    once = "A workload with several findings is in each of their bars, and only once in the sum and in the namespaces."
    note = tag("p", tag("small", once, class_="soft")) if twice else None
    return joined(tag("h2", "Where it is"), tag("div", *charts, class_="charts"), note)


def longest_first(rows: Iterable[Bar]) -> list[Bar]:
    """Those of any length."""
    return sorted((row for row in rows if row.value > 0), key=lambda row: -row.value)


def overview(items: tuple[RecommendationItem, ...]) -> Markup | None:
    """A line for each card, with a link to it; in the order of the cards."""
    if len(items) < FEWEST:
        return None
    names = ["Finding", "Who", "Now", "Instead", "GPU-hours a day", *(["Money a day"] if is_priced(items) else [])]
    head = [tag("th", name, class_="number" if "day" in name else None) for name in names]
    rows = []
    for item in items:
        cells = [
            tag("td", tag("a", TITLES[item.kind], href=f"#{item.id}")),
            tag("td", who(item.target), class_="who"),
            tag("td", short(item.current)),
            tag("td", short(item.recommended)),
            tag("td", hours(item.savings) or "–", class_="number"),
            tag("td", money(item.savings) or "–", class_="number"),
        ]
        rows.append(tag("tr", *cells[: len(names)], tag("td", item.confidence)))
    table = tag("table", tag("thead", tag("tr", *head, tag("th", "Confidence"))), tag("tbody", *rows))
    return tag("div", table, class_="wide")
