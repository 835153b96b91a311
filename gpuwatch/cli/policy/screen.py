"""What `policy check` and `policy test` print."""

from collections.abc import Collection, Sequence
from datetime import datetime

from gpuwatch.cli.console.table import Column, table
from gpuwatch.cli.console.text import Text
from gpuwatch.cli.console.words import Words
from gpuwatch.cli.look.items import Item
from gpuwatch.config import MaintenanceWindow, RemediationConfig
from gpuwatch.model.finding import Response, Scope
from gpuwatch.model.view import View
from gpuwatch.remediation.planning.policy import Policy, window_text
from gpuwatch.remediation.planning.scope import on_this_node
from gpuwatch.sim.rehearsal import Rehearsal

EVICTED = {"pod": "pods on the sick GPU", "owner-on-node": "pods on the sick GPU and the others of their jobs here"}
"""`remediation.drain.evict`."""

STYLES = {
    Response.IGNORE: "dim",
    Response.OBSERVE: "",
    Response.CONDITION: "yellow",
    Response.TAINT: "red",
    Response.CORDON: "bold red",
    Response.DRAIN: "bold red",
}


class RuleItem(Item, frozen=True, kw_only=True):
    """What is done about a check (or `XID n`), the most that any configuration allows, and the key that sets it.
    `scope`: gpu where only the sick GPU is taken out of service, if the platform keeps work from it.
    """

    subject: str
    response: Response
    most: Response
    origin: str
    scope: Scope


class RehearsedActionItem(Item, frozen=True, kw_only=True):
    """An action that would have been done; `do` is `blocked` for an obstacle."""

    at: datetime
    do: str
    what: str
    why: str


def rule_items(policy: Policy, ignored: Collection[str]) -> tuple[RuleItem, ...]:
    """The effective policy. `ignored` checks make no finding, so nothing is done about them."""
    return tuple(
        RuleItem(
            subject=rule.subject,
            response=Response.IGNORE if rule.subject in ignored else rule.response,
            most=rule.most,
            origin="checks.ignore" if rule.subject in ignored else rule.origin,
            scope=rule.scope,
        )
        for rule in policy.rules()
    )


def rule_table(items: Sequence[RuleItem], words: Words, width: int) -> list[Text]:
    """One line a rule."""
    columns: tuple[Column[RuleItem], ...] = (
        Column("CHECK", lambda item, _: item.subject),
        Column("RESPONSE", lambda item, _: item.response, style=lambda item: STYLES[item.response]),
        Column("MOST", lambda item, _: item.most),
        Column("SCOPE", lambda item, _: item.scope if item.most.reaches(Response.TAINT) else "", drop=2),
        Column("FROM", lambda item, _: item.origin, shorten="middle", drop=1),
    )
    return table(columns, items, words, width=width)


def limits(config: RemediationConfig, view: View | None, words: Words) -> list[Text]:
    """Mode, holds, budget, draining and windows, a line each. `view`: of this node; None: no agent answers."""
    budget, drain = config.budget, config.drain
    rows = {
        "mode": config.mode,
        "taint": f"gpuwatch.io/gpu-fault=CHECK:{config.effect}",
        "before a taint": f"a fault lasts {words.seconds(config.fault_hold)}",
        "released": f"healthy for {words.seconds(config.recovery_hold)}, "
        f"at the earliest after {words.seconds(config.min_quarantine)}",
        "scope gpu": on_this_node(view),
        "held": f"{', '.join(config.held_checks) or 'none'}; the same fault {config.repeats} times in "
        f"{words.seconds(config.repeat_window)}",
        "budget": f"{budget.max_unavailable} of the nodes with {budget.node_selector}; "
        f"{config.max_quarantines_per_day} quarantines a day of this node",
        "drain": f"{EVICTED[drain.evict]}; at most {words.seconds(drain.deadline)}; "
        f"{_windows(drain.windows, 'at any time')}; never {', '.join(drain.protected_namespaces) or 'DaemonSets'}",
        "maintenance": _windows(config.maintenance, "none"),
        "device plugin": f"{config.restart_plugin or 'never'} restarted where it counts out a healthy GPU",
    }
    return [Text(f"{name + ':':<16}{value}", no_wrap=True) for name, value in rows.items()]


def action_table(items: Sequence[RehearsedActionItem], first: float, words: Words, width: int) -> list[Text]:
    """One line for each action, with the time since the recording began."""
    columns: tuple[Column[RehearsedActionItem], ...] = (
        Column("AFTER", lambda item, _: _after(item.at.timestamp() - first), right=True),
        Column("DO", lambda item, _: item.do),
        Column("WHAT", lambda item, _: item.what, shorten="end"),
        Column("WHY", lambda item, _: item.why, shorten="end", drop=1),
    )
    return table(columns, items, words, width=width)


def summary(rehearsal: Rehearsal, words: Words) -> list[Text]:
    """How long the recording is, and for how much of it the node would have been out of service."""
    span = rehearsal.last - rehearsal.first
    spans = [(q.end or rehearsal.last) - q.begin for q in rehearsal.quarantines]
    times = f"{len(spans)} time{'' if len(spans) == 1 else 's'}"
    total = f"quarantined {times}, {words.seconds(sum(spans))} in all" if spans else "never quarantined"
    still = "; still is at the end" if rehearsal.quarantines and rehearsal.quarantines[-1].end is None else ""
    views = f"{rehearsal.views} view{'' if rehearsal.views == 1 else 's'}"
    return [Text(f"{views} over {words.seconds(span)}: {total}{still}", no_wrap=True)]


def _windows(windows: Sequence[MaintenanceWindow], none: str) -> str:
    return "; ".join(map(window_text, windows)) or none


def _after(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"
