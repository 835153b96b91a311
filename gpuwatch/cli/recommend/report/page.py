"""The page: totals, charts, an overview, a card for each recommendation, and how they were judged.

No script, no font, no picture from elsewhere; a policy forbids loading, should a name ever become markup.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
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
