"""One recommendation of the report: what to change, why, what was measured, and how to do it."""

from collections.abc import Iterator

from gpuwatch.cli.console.document import to_yaml
from gpuwatch.cli.recommend.items import RecommendationItem
from gpuwatch.cli.recommend.report.charts import Markup, MemoryMark, memory, tag
from gpuwatch.cli.recommend.screen import DAYS_A_MONTH, TITLES, amount, hours, money, whole_name
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
