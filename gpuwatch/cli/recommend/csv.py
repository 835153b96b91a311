"""`gpuwatch recommend -o csv`: one line an item, for a spreadsheet (RFC 4180).

A cell that a spreadsheet would take for a formula begins with an apostrophe: names of pods and images are not ours.
"""

import csv
import io
from collections.abc import Callable, Iterable

from gpuwatch.cli.recommend.items import RecommendationItem
from gpuwatch.model.recommendation import Predicted

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What begins a formula (OWASP, CSV injection)."""

Cell = str | float | None

COLUMNS: dict[str, Callable[[RecommendationItem], Cell]] = {
    "id": lambda i: i.id,
    "finding": lambda i: i.kind,
    "action": lambda i: i.action,
    "namespace": lambda i: i.target.namespace,
    "kind": lambda i: i.target.kind,
    "name": lambda i: i.target.name,
    "container": lambda i: i.target.container,
    "image": lambda i: i.target.image,
    "class": lambda i: i.target.work_class,
    "pods": lambda i: " ".join(i.target.pods),
    "nodes": lambda i: " ".join(i.target.nodes),
    "gpus": lambda i: " ".join(i.target.gpus),
    "model": lambda i: i.target.model,
    "current": lambda i: i.current,
    "recommended": lambda i: i.recommended,
    "why": lambda i: i.why,
    "confidence": lambda i: i.confidence,
    "risk": lambda i: i.risk,
    "risk_words": lambda i: i.risk_words,
    "gpu_hours_per_day": lambda i: i.savings.gpu_hours_per_day,
    "watts": lambda i: i.savings.watts,
    "money_per_day": lambda i: i.savings.money_per_day,
    "currency": lambda i: i.savings.currency,
    "days": lambda i: i.evidence.days,
    "coverage": lambda i: i.evidence.coverage,
    "idle_seconds": lambda i: i.evidence.idle_seconds,
    "busy_mean": lambda i: i.evidence.busy.mean if i.evidence.busy else None,
    "busy_p95": lambda i: i.evidence.busy.p95 if i.evidence.busy else None,
    "memory_peak_bytes": lambda i: i.evidence.memory_peak,
    "memory_total_bytes": lambda i: i.evidence.memory_total,
    "memory_needed_bytes": lambda i: _predicted(i).memory_needed,
    "memory_offered_bytes": lambda i: _predicted(i).memory_offered,
    "slowdown_low": lambda i: _predicted(i).slowdown_low,
    "slowdown_high": lambda i: _predicted(i).slowdown_high,
    "commands": lambda i: "\n".join(each.command for each in i.apply if each.command),
    "at": lambda i: f"{i.at:%Y-%m-%dT%H:%M:%SZ}",
    "expires": lambda i: f"{i.expires:%Y-%m-%dT%H:%M:%SZ}",
}
"""The header, and what stands below it; only added to."""


def to_csv(items: Iterable[RecommendationItem]) -> str:
    """Header and lines, each ended by CR LF. What is unknown is empty."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows([_safe(cell(item)) for cell in COLUMNS.values()] for item in items)
    return text.getvalue()


def _predicted(item: RecommendationItem) -> Predicted:
    return item.predicted or Predicted()


def _safe(value: Cell) -> Cell:
    """Numbers stay numbers; text stays text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
