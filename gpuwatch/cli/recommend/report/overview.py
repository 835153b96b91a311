"""All recommendations of the report on a line each, with a way to the card; who reads on paper sees what comes."""

from gpuwatch.cli.recommend.items import RecommendationItem
from gpuwatch.cli.recommend.report.markup import Markup, tag
from gpuwatch.cli.recommend.text import TITLES, hours, is_priced, money, short, who

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
