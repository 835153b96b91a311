"""The page: totals, charts, an overview, a card for each recommendation, and how they were judged.

No script, no font, no picture from elsewhere; a policy forbids loading, should a name ever become markup.
"""

from collections import defaultdict
from collections.abc import Iterator
from importlib.resources import files

from gpuwatch import __version__
from gpuwatch.cli.recommend.items import ROOM, RecommendationItem, RecommendationList, added, total
from gpuwatch.cli.recommend.report.card import card
from gpuwatch.cli.recommend.report.charts import Bar, Markup, bars, joined, tag
from gpuwatch.cli.recommend.screen import DAYS_A_MONTH, TITLES, amount, hours, is_priced, money, short, who
from gpuwatch.config import RightsizingConfig
from gpuwatch.rightsizing.findings.text import percent


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
    yield tag("h2", "What it cannot tell")
    yield tag(
        "p",
        "Savings are estimates: GPU-hours that become free, which are money only when somebody else uses them or the "
        "node is given back. A slowdown is computed, not measured: watch the first pod on a smaller GPU. What did not "
        "run in this time was not seen: a yearly report, a failover, tomorrow's larger batch. Several findings about "
        "one workload count once in the sums, and quotas, reserved nodes and MIG layouts not at all, since they are "
        "about the same GPUs.",
    )


FEWEST = 3
"""Fewer are seen at a glance."""


def overview(items: tuple[RecommendationItem, ...]) -> Markup | None:
    """In the order of the cards."""
    if len(items) < FEWEST:
        return None
    priced = is_priced(items)
    numbers = ["GPU-hours a day", "Money a day"] if priced else ["GPU-hours a day"]
    head = tag(
        "tr",
        *(tag("th", name) for name in ("Finding", "Who", "Now", "Instead")),
        *(tag("th", name, class_="number") for name in numbers),
        tag("th", "Confidence"),
    )
    rows = (_row(item, priced=priced) for item in items)
    return tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="wide")


def _row(item: RecommendationItem, *, priced: bool) -> Markup:
    cells = [
        tag("td", tag("a", TITLES[item.kind], href=f"#{item.id}")),
        tag("td", who(item.target), class_="who"),
        tag("td", short(item.current)),
        tag("td", short(item.recommended)),
        tag("td", hours(item.savings) or "–", class_="number"),
    ]
    if priced:
        cells.append(tag("td", money(item.savings) or "–", class_="number"))
    return tag("tr", *cells, tag("td", item.confidence))


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
    body = (
        tag("h1", TITLE),
        tag("p", _subject(found), class_="soft"),
        tag("div", *_tiles(found), class_="tiles"),
        _where(items),
        tag("h2", "Recommendations") if items else tag("p", _nothing(found)),
        overview(items),
        *(card(item) for item in items),
        *method(config),
        tag("footer", tag("small", f"gpuwatch {__version__}; nothing of this was applied", class_="soft")),
    )
    page = tag("html", tag("head", *head), tag("body", tag("main", *body)), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def _subject(found: RecommendationList) -> str:
    """Whose usage, when, and how long it was watched."""
    parts = [f"{found.source}"]
    if found.node:
        parts.append(f"node {found.node}")
    if found.at:
        parts.append(f"{found.at:%Y-%m-%d %H:%M} UTC")
    if found.since and found.at:
        parts.append(f"usage since {found.since:%Y-%m-%d %H:%M} UTC")
    return " · ".join(parts)


def _nothing(found: RecommendationList) -> str:
    if found.learning and found.learning == found.workloads:
        return "Nothing can be said yet: all workloads are still being learned."
    return "Nobody was found to hold more than they use."


def _tiles(found: RecommendationList) -> Iterator[Markup]:
    saved = found.total
    yield _tile(hours(saved) or "0", f"GPU-hours a day, as much as {saved.gpu_hours_per_day / 24:.1f} GPUs")
    if saved.money_per_day is not None:
        month = amount(saved.money_per_day * DAYS_A_MONTH, saved.currency)
        yield _tile(month, f"a month of {DAYS_A_MONTH} days; {money(saved)} a day")
    if saved.watts:
        yield _tile(f"{saved.watts:,.0f} W", "less power")
    yield _tile(str(len(found.items)), "recommendations")
    learning = f"; {found.learning} still being learned" if found.learning else ""
    yield _tile(str(found.workloads), f"workloads seen{learning}")


def _tile(value: str, words: str) -> Markup:
    return tag("div", tag("b", value), tag("small", words, class_="soft"), class_="tile")


def _where(items: tuple[RecommendationItem, ...]) -> Markup | None:
    charts = [
        tag("section", tag("h4", heading), bars(heading, rows))
        for heading, rows in (
            ("GPU-hours a day, by finding (how many)", _by_finding(items)),
            ("GPU-hours a day, by namespace", _by_namespace(items)),
        )
        if rows
    ]
    if not charts:
        return None
    twice = sum(row.value for row in _by_finding(items)) > total(items).gpu_hours_per_day * 1.001
    once = "Who has several findings is in each of their bars, and only once in the sum and in the namespaces."
    note = tag("p", tag("small", once, class_="soft")) if twice else None
    return joined(tag("h2", "Where it is"), tag("div", *charts, class_="charts"), note)


def _by_finding(items: tuple[RecommendationItem, ...]) -> list[Bar]:
    found: defaultdict[str, list[RecommendationItem]] = defaultdict(list)
    for item in items:
        if item.kind not in ROOM:
            found[TITLES[item.kind]].append(item)
    return _longest_first(
        Bar(title, sums.gpu_hours_per_day, f"{hours(sums)} ({len(each)})")
        for title, each in found.items()
        for sums in [added(item.savings for item in each)]
    )


def _by_namespace(items: tuple[RecommendationItem, ...]) -> list[Bar]:
    found: defaultdict[str, list[RecommendationItem]] = defaultdict(list)
    for item in items:
        found[item.target.namespace or "no namespace"].append(item)
    rows = _longest_first(
        Bar(name, sums.gpu_hours_per_day, hours(sums) or "") for name, each in found.items() for sums in [total(each)]
    )
    rest = sum(row.value for row in rows[MOST_NAMESPACES:])
    others = [Bar(f"{len(rows) - MOST_NAMESPACES} others", rest, f"{rest:.1f}")] if rest else []
    return rows[:MOST_NAMESPACES] + others


def _longest_first(rows: Iterator[Bar]) -> list[Bar]:
    return sorted((row for row in rows if row.value > 0), key=lambda row: -row.value)
