"""The screens of `node status` and `node plan`: what gpuwatch holds, faults with their remedies, obstacles."""

from collections.abc import Callable, Iterator, Sequence

from gpuwatch.cli.console.remedies import ADVICE
from gpuwatch.cli.console.terminal import Glyphs
from gpuwatch.cli.console.text import Text
from gpuwatch.cli.console.words import Words, wrap
from gpuwatch.cli.node.items import NodeItem, changes, diff, stage_now
from gpuwatch.config import Mode
from gpuwatch.kube.objects import NodeObject
from gpuwatch.remediation.model import Blocked, BlockReason, NodeStage, Plan
from gpuwatch.remediation.planning.inputs import CONFINED
from gpuwatch.remediation.planning.ownership import ClaimState

LABEL = 14
INDENT = 6

STYLES = {
    NodeStage.HEALTHY: "green",
    NodeStage.SUSPECT: "yellow",
    NodeStage.RECOVERING: "yellow",
    NodeStage.QUARANTINED: "bold red",
    NodeStage.DRAINING: "bold red",
    NodeStage.DRAINED: "bold red",
    NodeStage.UNKNOWN: "dim",
}


def node_lines(
    item: NodeItem, words: Words, width: int, named: Callable[[str], str], *, wide: bool = False
) -> list[Text]:
    """Head, what gpuwatch holds, faults with their remedies, obstacles. `named` replaces uuids by GPU indexes."""
    head = Text.assemble(
        ("NODE ", "dim"),
        (item.node, "bold"),
        "   ",
        (item.stage.upper(), STYLES[item.stage]),
        f"   {mode_text(item.mode)}",
    )
    lines = [head, *_in_short(item.message, item.blocked, width, named)]
    lines.append(Text(""))
    for label, text in _facts(item, words, wide):
        body = wrap(named(text), max(width - LABEL, 40)) or [""]
        lines += [Text(f"{label if not n else '':<{LABEL}}{part}") for n, part in enumerate(body)]
    for fault in item.faults:
        where = named(fault.gpu) if fault.gpu else "the node"
        xid = "" if fault.xid is None else f"  XID {fault.xid}"
        since = (f"  {words.ago(fault.since)}" if fault.since else "", "dim")
        check = (fault.check, "bold")
        lines += [Text(""), Text.assemble(("! ", "bold red"), check, f"{xid}  {where}  {fault.response}", since)]
        more = f"gpuwatch xid explain {fault.xid}" if fault.xid is not None else ""
        advice = (f"{words.glyphs.arrow} {text}" for text in (ADVICE[fault.remedy], more) if text)
        lines += [line for text in (fault.message, *advice) for line in _indented(named(text), width)]
    lines += [line for one in item.blocked for line in _blocked(one, width, named)]
    return lines


def mode_text(mode: Mode | None) -> str:
    """The mode of the running remediator; a configuration that no process uses decides nothing."""
    return f"mode {mode}" if mode else "no remediator runs here"


def _facts(item: NodeItem, words: Words, wide: bool) -> Iterator[tuple[str, str]]:
    yield "taint", _taint(item)
    yield "condition", _condition(item, words)
    by_gpuwatch = item.owner is not None and item.owner.cordoned
    cordon = "yes, by gpuwatch" if by_gpuwatch else "yes, not by gpuwatch, which leaves it"
    yield "cordon", cordon if item.unschedulable else "no"
    if item.owner is not None:
        who = "a person" if item.owner.by == "operator" else "the remediator"
        began = "since" if item.owner.state == "applied" else "about to, but not yet, since"
        yield "owner", f"{who}, {began} {words.clock_time(item.owner.since)} ({words.ago(item.owner.since)})"
        if wide:
            yield "id", item.owner.id
    if item.owner is not None and item.owner.held and item.owner.state == "applied":
        yield "held", f"only an operator releases it: {item.owner.held}"
    if item.budget is not None:
        total = words.text(item.budget.slots)
        yield (
            "budget",
            f"{item.budget.used} of {total} slots used" + (f", {item.slot} by this node" if item.slot else ""),
        )
    if item.release_at is not None:
        yield "release", f"{words.clock_time(item.release_at.timestamp())} if it stays well"
    if item.pods:
        yield "to leave", ", ".join(item.pods)
    if item.opt_out:
        yield "opt-out", "this node is to be left alone"
    if item.other and not item.blocked:
        yield "others", item.other
    if item.overruled and wide:
        yield "overruled", ", ".join(sorted(item.overruled))


def _taint(item: NodeItem) -> str:
    if item.taint is None:
        return f"none: {CONFINED}" if item.scope == "gpu" else "none"
    text = f"{item.taint.key}={item.taint.value}:{item.taint.effect}"
    if item.claim is not ClaimState.APPLIED:
        return f"{text} (not put there by gpuwatch)"
    return f"{text}; not the GPU alone: {item.scope_reason}" if item.scope_reason else text


def _condition(item: NodeItem, words: Words) -> str:
    if item.condition is None:
        return "none"
    since = f" since {item.condition.last_transition.replace('T', ' ')}" if item.condition.last_transition else ""
    return f"{item.condition.type}={item.condition.status}{since} {words.glyphs.dot} {item.condition.message}"


def _blocked(one: Blocked, width: int, named: Callable[[str], str]) -> list[Text]:
    style = "dim" if one.reason in (BlockReason.MODE, BlockReason.HOLD) else "yellow"
    return [Text(""), Text.assemble(("blocked: ", style), one.reason.value), *_indented(one.message, width)]


def _in_short(text: str, blocked: Sequence[Blocked], width: int, named: Callable[[str], str]) -> list[Text]:
    """The plan in words; `with mode enforce:` comes before it where the mode keeps the plan from being carried out."""
    only_observed = any(one.reason is BlockReason.MODE for one in blocked)
    lines = wrap(f"with mode enforce: {named(text)}" if only_observed else named(text), width)
    return [Text(line) for line in lines]


def _indented(text: str, width: int) -> list[Text]:
    blank = " " * INDENT
    return [Text(line) for line in wrap(text, width, initial_indent=blank, subsequent_indent=blank)]


def plan_lines(
    node: NodeObject,
    plan: Plan,
    mode: Mode | None,
    named: Callable[[str], str],
    glyphs: Glyphs,
    width: int,
    also: Sequence[str],
) -> list[Text]:
    """What would be done, why not (all of) it, and the Node's change as a unified diff."""
    now = stage_now(node, plan)
    change = Text(f" {glyphs.arrow} {plan.stage.upper()}" if plan.stage is not now else "", STYLES[plan.stage])
    head = Text.assemble(("NODE ", "dim"), (node.name, "bold"), "   ", (now.upper(), STYLES[now]), change)
    lines = [head.append(f"   {mode_text(mode)}")]
    lines += _in_short(plan.message, plan.blocked, width, named)
    lines += [line for one in plan.blocked for line in _blocked(one, width, named)]
    lines.append(Text(""))
    if not plan.steps:
        return [*lines, Text("nothing would be done")]
    for number, item in enumerate(changes(node, plan.steps, also), 1):
        text = named(f"{number}. {item.target}: {item.message}")
        lines += [Text(line) for line in wrap(text, width, subsequent_indent="   ")]
    shown = diff(node, plan.steps)
    return [*lines, *([Text(""), *shown] if shown else [])]
