"""One recommendation of the report: what to change, why, what was measured, and how to do it."""

from collections.abc import Iterator

from gpuwatch.cli.console.document import to_yaml
from gpuwatch.cli.recommend.items import RecommendationItem
from gpuwatch.cli.recommend.report.charts import Mark, Markup, memory, spread, tag
from gpuwatch.cli.recommend.screen import DAYS_A_MONTH, TITLES, amount, hours, money, whole_name
from gpuwatch.model.recommendation import Apply, Level
from gpuwatch.rightsizing.findings.text import percent, span

DAY = 86400.0

SURE = {Level.LOW: "warn", Level.MEDIUM: "soft", Level.HIGH: "good"}
RISKY = {Level.LOW: "good", Level.MEDIUM: "warn", Level.HIGH: "bad"}


def card(item: RecommendationItem) -> Markup:
    """The whole card; `id` of the element is that of the recommendation."""
    return tag(
        "article",
        tag(
            "header",
            tag("h3", f"{_sentence(TITLES[item.kind])}: {whole_name(item.target)}"),
            tag("span", f"confidence {item.confidence}", class_=f"badge {SURE[item.confidence]}"),
            tag("span", f"risk {item.risk}", class_=f"badge {RISKY[item.risk]}"),
        ),
        tag("p", tag("b", item.current), " → ", tag("b", item.recommended), class_="change"),
        tag("p", f"{_sentence(item.why)}. ", *_saves(item)),
        _charts(item),
        tag("p", tag("small", " · ".join(_facts(item)), class_="soft")),
        tag("p", tag("small", f"Risk: {item.risk_words.rstrip('.')}.", class_="soft")) if item.risk_words else None,
        _how(item),
        id=item.id,
    )


def _sentence(text: str) -> str:
    """Begun like one, names in it as they are."""
    return text[:1].upper() + text[1:].rstrip(".")


def _saves(item: RecommendationItem) -> Iterator[Markup | str]:
    saved, parts = item.savings, []
    if value := hours(saved):
        parts.append(f"{value} GPU-hours a day")
    if saved.watts:
        parts.append(f"{saved.watts:.0f} W")
    if saved.money_per_day is not None and saved.money_per_day > 0:
        parts.append(f"{money(saved)} a day, {amount(saved.money_per_day * DAYS_A_MONTH, saved.currency)} a month")
    if parts:
        yield "Saves "
        yield tag("b", ", ".join(parts))
        yield "."


def _charts(item: RecommendationItem) -> Markup | None:
    seen, charts = item.evidence, []
    if seen.peaks:
        charts.append(tag("section", tag("h4", "Highest memory of each day"), memory(seen.peaks, _marks(item))))
    named = (("any kernel", seen.busy), ("SMs", seen.sm), ("memory bus", seen.dram))
    rows = [(label, each) for label, each in named if each is not None]
    if rows:
        words = "How busy: median to 95th percentile; ○ mean, | highest"
        charts.append(tag("section", tag("h4", words), spread(rows)))
    return tag("div", *charts, class_="charts") if charts else None


def _marks(item: RecommendationItem) -> tuple[Mark, ...]:
    """The size offered, and what is needed of it; where nothing is offered, what the GPU has."""
    told = item.predicted
    if told is not None and told.memory_offered is not None:
        needed = () if told.memory_needed is None else (Mark("needed", "with margin", told.memory_needed),)
        return Mark("offered", "offered", told.memory_offered), *needed
    return () if item.evidence.memory_total is None else (Mark("total", "of the GPU", item.evidence.memory_total),)


def _facts(item: RecommendationItem) -> Iterator[str]:
    seen, told, target = item.evidence, item.predicted, item.target
    yield f"watched for {span(seen.days * DAY)}, {percent(seen.coverage)} of that time seen"
    if seen.idle_seconds:
        yield f"idle for {span(seen.idle_seconds)}"
    if seen.watts is not None:
        yield f"draws {seen.watts.mean:.0f} W"
    if seen.active is not None:
        yield f"GPUs at work at a time: {seen.active.p50:g} usually, {seen.active.max:g} at most"
    if told is not None and told.slowdown_high is not None:
        low = f"{percent(told.slowdown_low)} to " if told.slowdown_low is not None else "up to "
        yield f"expected to take {low}{percent(told.slowdown_high)} longer"
    yield from (each for each in (target.model, target.work_class, target.image) if each)
    if target.nodes:
        yield f"on {', '.join(target.nodes)}"


def _how(item: RecommendationItem) -> Markup | None:
    if not item.apply:
        return None
    steps = (part for each in item.apply for part in _step(each))
    return tag("details", tag("summary", "How to do it"), *steps)


def _step(step: Apply) -> Iterator[Markup]:
    yield tag("p", step.note)
    if step.command:
        yield tag("pre", step.command)
    if step.manifest is not None:
        yield tag("pre", to_yaml(step.manifest))
