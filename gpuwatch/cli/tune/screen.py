"""The screens of `gpuwatch tune status` and `tune plan`: a few lines for the node, and a line for each GPU."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeVar

from gpuwatch.cli.console.table import Column, table
from gpuwatch.cli.console.text import Text
from gpuwatch.cli.console.words import Words, wrap
from gpuwatch.cli.tune.items import BudgetItem, TuneStatus, TuningItem
from gpuwatch.cli.tune.plan_items import PlanItem, TunePlan
from gpuwatch.model.consent import OLD_SECONDS
from gpuwatch.tuning.model.status import ObstacleReason, TuningState

Item = TypeVar("Item", TuningItem, PlanItem)
STOPPED, NO_GUARD = ObstacleReason.STOPPED, ObstacleReason.NO_GUARD

STYLES = {
    TuningState.HOLDING: "green",
    TuningState.RESTING: "green",
    TuningState.OBSERVING: "cyan",
    TuningState.SEARCHING: "cyan",
    TuningState.VERIFYING: "cyan",
    TuningState.ELIGIBLE: "green",
    TuningState.REFUSED: "yellow",
    TuningState.IDLE: "dim",
}

MEASURED = ("SLOWDOWN", "BOUND", "SAVED", "SIGNAL", "LIMIT/DEFAULT")

SHORT = 24
"""A WHY of at most so many characters is repeated for each GPU."""


def status_lines(found: TuneStatus, words: Words, width: int, *, wide: bool) -> list[Text]:
    """The whole screen."""
    items: tuple[TuningItem, ...] = found.items
    head = []
    if found.tuner:
        count = Counter(item.state for item in items)
        states = ", ".join(f"{count[state]} {state}" for state in TuningState if count[state])
        joules = sum(item.joules_saved or 0.0 for item in items)
        saved = f"; {words.joules(joules)} saved" if joules else ""
        head.append(Text(f"mode {found.mode}: {states or 'no GPU'}{saved}", style="bold"))
    if found.budget is not None:
        head += [Text(line) for line in wrapped(budget_text(found.budget, words), width)]
    head += [Text(line, style="yellow") for alarm in _alarms(found, words) for line in wrapped(f"! {alarm}", width)]
    dash = words.glyphs.dash
    columns = [  # measured columns without any value are left out: WHY needs their room
        column
        for column in COLUMNS
        if wide or column.header not in MEASURED or any(column.cell(item, words) != dash for item in items)
    ]
    return [
        *head,
        *([Text("")] if head else []),
        *table(without_repeats(columns, items, words), items, words, width=width, wide=wide),
    ]


def without_repeats(columns: Sequence[Column[Item]], items: Sequence[Item], words: Words) -> list[Column[Item]]:
    """The columns; a long WHY that holds for several GPUs is shown once, the others show `as GPU 0`."""
    (column,) = (each for each in columns if each.header == "WHY")
    first: dict[str, int] = {}
    reasons = {}
    for item in items:
        why = same = column.cell(item, words)
        for user in item.users:
            same = same.replace(user, "USER")
        number = first.setdefault(same, item.gpu)
        reasons[item.gpu] = f"as GPU {number}" if len(why) > SHORT and item.gpu != number else why
    return [each._replace(cell=lambda i, _: reasons[i.gpu]) if each is column else each for each in columns]


def budget_text(found: BudgetItem, words: Words) -> str:
    """The node's power budget in a sentence."""
    sums = f"limits {words.watts(found.limits)}, draw {words.watts(found.draw)}"
    why = found.message if found.message.startswith(found.how) else f"{found.how}: {found.message}"
    return f"budget {words.watts(found.budget)}: {sums}; {why}"


def wrapped(text: str, width: int) -> list[str]:
    """Lines of a sentence. It is wrapped, not cut off: what remains of a cut one can look complete."""
    return wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)


def _alarms(found: TuneStatus, words: Words) -> Iterator[str]:
    if found.stopped:
        yield f"{found.stopped}; to continue: gpuwatch tune resume"
    if found.guard is False and found.mode == "enforce":
        yield "no guard answers, nothing is set without one; start it: gpuwatch tuner --guard"
    if found.consents is not None and words.age(found.consents) > OLD_SECONDS:
        yield f"consents were last read {words.ago(found.consents.timestamp())}; check gpuwatch tuner --consents"
    elif found.consents is None and any(item.reason is ObstacleReason.NO_CONSENT for item in found.items):
        yield "no process reads the pods' consents, so their GPUs are left alone; start it: gpuwatch tuner --consents"
    if found.trouble:
        yield found.trouble


def _cap(item: TuningItem, words: Words) -> str:
    """The cap in force; where no tuner answers, what is recorded."""
    texts = [
        *([words.clock(item.clock_cap)] if item.clock_cap is not None else []),
        *([words.watts(item.power_cap)] if item.power_cap is not None else []),
    ]
    if item.joules_saved is None:
        texts = [
            words.watts(each.applied) if each.knob == "power_limit" else words.clock(each.applied)
            for each in item.settings
        ]
    return ", ".join(texts) or words.glyphs.dash


def _slowdown(item: TuningItem, words: Words) -> str:
    if item.slowdown is None:
        return words.glyphs.dash
    return f"{words.percent(item.slowdown)} <= {words.percent(item.slowdown_upper)}"


def _saved(item: TuningItem, words: Words) -> str:
    if not item.joules_saved and item.saved is None:
        return words.glyphs.dash
    share = "" if item.saved is None else f" {words.ratio(item.saved)}"
    return f"{words.watt_hours(item.joules_saved)}{share}"


def _hindered(item: TuningItem, words: Words) -> str:
    """The obstacles, else the tuner's note; what is shown above the table is not repeated."""
    if own := [each.message for each in item.obstacles if each.reason not in (STOPPED, NO_GUARD)]:
        return "; ".join(own)
    return "nothing but the above" if item.obstacles else words.text(item.note)


COLUMNS: tuple[Column[TuningItem], ...] = (
    Column("GPU", lambda i, w: str(i.gpu), right=True),
    Column("STATE", lambda i, w: i.state, style=lambda i: STYLES[i.state]),
    Column("CAP", _cap, right=True, drop=1),
    Column("SLOWDOWN", _slowdown, right=True, drop=2),
    Column("BOUND", lambda i, w: w.percent(i.slowdown_bound), right=True, drop=5),
    Column("SAVED", _saved, right=True, drop=3),
    Column("SIGNAL", lambda i, w: w.text(i.signal), drop=7),
    Column("LIMIT/DEFAULT", lambda i, w: w.draw(i.power_limit, i.power_limit_default), right=True, drop=6),
    Column("USER", lambda i, w: ", ".join(i.users) or w.glyphs.dash, drop=4, shorten="middle"),
    Column("WHY", _hindered, shorten="end", least=25),
    Column("SINCE", lambda i, w: w.ago(i.since.timestamp() if i.since else None), wide=True),
    Column("UUID", lambda i, w: i.uuid, wide=True),
)


KNOB_LABELS = {"locked_clocks": "clock", "power_limit": "power"}


def plan_lines(found: TunePlan, words: Words, width: int, *, wide: bool) -> list[Text]:
    """The whole screen."""
    items: tuple[PlanItem, ...] = found.items
    tuned = sum(item.would_tune for item in items)
    prefix = "" if found.mode == "enforce" else "with enforce, "
    head = f"mode {found.mode}; {prefix}{tuned} of {len(items)} GPUs would be tuned now"
    lines = [Text(head, style="bold")]
    if found.budget is not None:
        lines += [Text(line) for line in wrapped(budget_text(found.budget, words), width)]
    # obstacles that concern the whole node are shown once
    of_all = dict.fromkeys(each.message for item in items for each in item.obstacles if each.reason in OF_THE_NODE)
    lines += [Text(line, style="yellow") for each in of_all for line in wrapped(f"! {each}", width)]
    dash = words.glyphs.dash
    columns = [
        column
        for column in PLAN_COLUMNS
        if wide or column.header not in OPTIONAL or any(column.cell(item, words) != dash for item in items)
    ]
    return [*lines, Text(""), *table(without_repeats(columns, items, words), items, words, width=width, wide=wide)]


def _value(item: PlanItem, value: float | None, words: Words) -> str:
    return words.watts(value) if item.knob == "power_limit" else words.clock(value)


def _why(item: PlanItem, words: Words) -> str:
    """The obstacles, else what decides the consent; what is shown above the table is not repeated."""
    if own := [each.message for each in item.obstacles if each.reason not in OF_THE_NODE]:
        return "; ".join(own)
    if not item.users:
        return "no workload uses it"
    return "nothing but the above" if item.obstacles else item.decided_by


OF_THE_NODE = (
    ObstacleReason.STOPPED,
    ObstacleReason.NO_GUARD,
    ObstacleReason.STALE_VIEW,
    ObstacleReason.SLOW_VIEW,
    ObstacleReason.QUARANTINED,
)

OPTIONAL = ("GANG", "FIRST", "SHARE")

PLAN_COLUMNS: tuple[Column[PlanItem], ...] = (
    Column("GPU", lambda i, w: str(i.gpu), right=True),
    Column(
        "TUNE",
        lambda i, w: w.flag(i.would_tune),
        style=lambda i: "green" if i.would_tune else "yellow" if i.obstacles else "dim",
    ),
    Column("FIRST", lambda i, w: _value(i, i.first if i.would_tune else None, w), right=True, drop=1),
    Column("BOUND", lambda i, w: w.percent(i.bound), right=True, drop=2),
    Column("CLASS", lambda i, w: w.text(i.work_class), drop=6),
    Column("KNOB", lambda i, w: KNOB_LABELS[i.knob] if i.knob else w.glyphs.dash, drop=7),
    Column("GANG", lambda i, w: ",".join(map(str, i.gang)) if len(i.gang) > 1 else w.glyphs.dash, drop=4),
    Column("SHARE", lambda i, w: w.watts(i.budget_limit), right=True, drop=3),
    Column("USER", lambda i, w: ", ".join(i.users) or w.glyphs.dash, drop=5, shorten="middle"),
    Column("WHY", _why, shorten="end", least=28),
    Column("LOWEST", lambda i, w: _value(i, i.lowest, w), right=True, wide=True),
    Column("TOP", lambda i, w: _value(i, i.top, w), right=True, wide=True),
    Column("DECIDED BY", lambda i, w: i.decided_by, wide=True),
    Column("UUID", lambda i, w: i.uuid, wide=True),
)
