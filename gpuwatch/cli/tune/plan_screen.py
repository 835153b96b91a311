"""The screen of `gpuwatch tune plan`."""

from typing import TYPE_CHECKING

from gpuwatch.cli.console.table import Column, table
from gpuwatch.cli.console.words import Words
from gpuwatch.cli.tune.plan_items import PlanItem, TunePlan
from gpuwatch.cli.tune.screen import budget_text, wrapped
from gpuwatch.tuning.model.status import Reason

if TYPE_CHECKING:
    from rich.text import Text

KNOBS = {"locked_clocks": "clock", "power_limit": "power"}


def plan_lines(found: TunePlan, words: Words, width: int, *, wide: bool) -> "list[Text]":
    """The whole screen."""
    from rich.text import Text

    items: tuple[PlanItem, ...] = found.items
    tuned = sum(item.would_tune for item in items)
    wish = "" if found.mode == "enforce" else "with enforce, "
    head = f"mode {found.mode}; {wish}{tuned} of {len(items)} GPUs would be tuned now"
    lines = [Text(head, style="bold")]
    if found.budget is not None:
        lines += [Text(line) for line in wrapped(budget_text(found.budget, words), width)]
    lines += [Text(line, style="yellow") for each in _everywhere(items) for line in wrapped(f"! {each}", width)]
    dash = words.glyphs.dash
    columns = [
        column
        for column in COLUMNS
        if wide or column.header not in OPTIONAL or any(column.cell(item, words) != dash for item in items)
    ]
    return [*lines, Text(""), *table(columns, items, words, width=width, wide=wide)]


def _everywhere(items: tuple[PlanItem, ...]) -> list[str]:
    """What stands against all of them alike is said once."""
    return list(dict.fromkeys(each.message for item in items for each in item.obstacles if each.reason in OF_THE_NODE))


def _value(item: PlanItem, value: float | None, words: Words) -> str:
    return words.watts(value) if item.knob == "power_limit" else words.clock(value)


def _first(item: PlanItem, words: Words) -> str:
    return _value(item, item.first if item.would_tune else None, words)


def _gang(item: PlanItem, words: Words) -> str:
    return ",".join(map(str, item.gang)) if len(item.gang) > 1 else words.glyphs.dash


def _why(item: PlanItem, words: Words) -> str:
    """What stands against it, or whose consent it goes by; what is said above the table is not said again."""
    if own := [each.message for each in item.obstacles if each.reason not in OF_THE_NODE]:
        return "; ".join(own)
    if not item.users:
        return "nobody uses it"
    return "nothing but the above" if item.obstacles else item.said_by


OF_THE_NODE = (Reason.STOPPED, Reason.NO_GUARD, Reason.STALE_VIEW, Reason.SLOW_VIEW, Reason.QUARANTINED)

OPTIONAL = ("GANG", "FIRST", "SHARE")

COLUMNS: tuple[Column[PlanItem], ...] = (
    Column("GPU", lambda i, w: str(i.gpu), right=True),
    Column(
        "TUNE",
        lambda i, w: w.flag(i.would_tune),
        style=lambda i: "green" if i.would_tune else "yellow" if i.obstacles else "dim",
    ),
    Column("FIRST", _first, right=True, drop=1),
    Column("BOUND", lambda i, w: w.percent(i.bound), right=True, drop=2),
    Column("CLASS", lambda i, w: w.text(i.work_class), drop=6),
    Column("KNOB", lambda i, w: KNOBS[i.knob] if i.knob else w.glyphs.dash, drop=7),
    Column("GANG", _gang, drop=4),
    Column("SHARE", lambda i, w: w.watts(i.budget_limit), right=True, drop=3),
    Column("USER", lambda i, w: ", ".join(i.users) or w.glyphs.dash, drop=5, shorten="middle"),
    Column("WHY", _why, shorten="end", least=28),
    Column("LOWEST", lambda i, w: _value(i, i.lowest, w), right=True, wide=True),
    Column("TOP", lambda i, w: _value(i, i.top, w), right=True, wide=True),
    Column("SAID BY", lambda i, w: i.said_by, wide=True),
    Column("UUID", lambda i, w: i.uuid, wide=True),
)
