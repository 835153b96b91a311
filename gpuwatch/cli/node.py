"""`gpuwatch node`: what gpuwatch holds on a Kubernetes Node, what it would do, and a person's word on both."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuwatch.cli.lazy import Entry, LazyGroup
from gpuwatch.cli.options import option, output
from gpuwatch.cli.session import Session, pass_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.cli.node_hand import Act
    from gpuwatch.cli.node_reach import Reach
    from gpuwatch.model.remediation import NodeObject, Plan
    from gpuwatch.model.view import View
    from gpuwatch.rules.budget import Slots

ENTRIES = (
    Entry("status", "Show what gpuwatch holds on the node, and why.", "node:status", "Commands"),
    Entry("plan", "Show what would be done now, as a diff; change nothing.", "node:plan", "Commands"),
    Entry("quarantine", "Take the node out of use until it is released.", "node:quarantine", "Commands"),
    Entry("release", "Give back all that gpuwatch holds on the node.", "node:release", "Commands"),
)

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(cls=LazyGroup, entries=ENTRIES)
def node() -> None:
    """Show, plan, quarantine and release a Kubernetes Node."""


def reach_options(command: Command) -> Command:
    """Which Node, and how to get there."""
    options = (
        option("--node", "node_name", metavar="NAME", help="The Node. Default: the configuration's, else NODE_NAME."),
        option("--kubeconfig", metavar="FILE", help="Default: service account, KUBECONFIG or ~/.kube/config."),
        option("--agent", metavar="URL|none", help="Agent of that node. Default: the one here, if it is of that node."),
    )
    for decorate in reversed(options):
        command = decorate(command)
    return command


@click.command(short_help="Show what gpuwatch holds on the node, and why.")
@reach_options
@output("table", "wide", "json", "yaml", "name", "schema")
@pass_session
@click.pass_context
def status(ctx: click.Context, session: Session, /, output: str, **where: str | None) -> None:
    """Show what gpuwatch holds on the node, and why.

    The exit code is the state: 0 in use, 3 a fault or a recovery, 4 out of use, 1 unknown.

    \b
    Examples:
      gpuwatch node status --node gpu-1
      gpuwatch node status --node gpu-1 -o json
    """
    from gpuwatch.cli.document import schema
    from gpuwatch.cli.gather import by_index
    from gpuwatch.cli.node_items import EXIT_CODES, NodeItem, node_item
    from gpuwatch.cli.node_screen import node_lines
    from gpuwatch.cli.words import Words

    if output == "schema":
        click.echo(schema("NodeStatus", NodeItem))
        return
    with _reach(session, where) as reach:
        live = reach.reader.node()
        slots = _slots(session, reach)
        view = reach.view_of(live)
        if view is None:
            session.terminal.hint("hint: no agent of this node answers here; this is what the Node itself tells")
        item = node_item(live, reach.policy, _planned(reach, live, view, slots) if view else None, slots)
    if output in ("table", "wide"):
        terminal = session.terminal
        words = Words(terminal.glyphs, time.time())
        terminal.show(*node_lines(item, words, terminal.width, by_index(view), wide=output == "wide"))
    else:
        _document("NodeStatus", live.name, (item,), output)
    ctx.exit(EXIT_CODES.get(item.stage, 4))


@click.command(short_help="Show what would be done now, as a diff; change nothing.")
@reach_options
@output("table", "json", "yaml", "schema")
@pass_session
def plan(session: Session, /, output: str, **where: str | None) -> None:
    """Show what would be done now, as a diff; change nothing.

    Asks the agent, the live Node and the policy, as the remediator does, whatever the mode is.

    \b
    Examples:
      gpuwatch node plan --node gpu-1
      gpuwatch node plan --node gpu-1 -o json
    """
    from gpuwatch.cli.document import schema
    from gpuwatch.cli.gather import by_index
    from gpuwatch.cli.node_changes import ChangeItem, changes
    from gpuwatch.cli.node_screen import plan_lines
    from gpuwatch.model.errors import GpuwatchError
    from gpuwatch.model.remediation import Announce

    if output == "schema":
        click.echo(schema("NodePlan", ChangeItem))
        return
    with _reach(session, where) as reach:
        live = reach.reader.node()
        view = reach.view_of(live)
        if view is None:
            raise GpuwatchError(
                f"nothing is known about the GPUs of {live.name}", "no agent of it answers here", "give --agent URL"
            )
        found = _planned(reach, live, view, _slots(session, reach))
    also = (reach.config.remediation.handover.annotation,)
    if output == "table":
        terminal = session.terminal
        mode = reach.policy.config.mode
        terminal.show(*plan_lines(live, found, mode, by_index(view), terminal.glyphs, terminal.width, also))
        if any(isinstance(step, Announce) and step.pod for step in found.steps):
            terminal.hint("hint: only the remediator knows which Events have been told; none is told twice")
    else:
        _document("NodePlan", live.name, tuple(changes(live, found.steps, also)), output)


@click.command(short_help="Take the node out of use until it is released.")
@reach_options
@option("--reason", default="by hand", metavar="TEXT", help="Why; others read it on the Node. Default: by hand.")
@option("--cordon", is_flag=True, help="Also make the node unschedulable for everybody.")
@option("--drain", is_flag=True, help="Also ask pods with GPUs to leave. Never by force.")
@option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="For --drain. Default: the policy's.")
@option("--ignore-budget", is_flag=True, help="Do so even if the budget has no slot left.")
@option("--yes", is_flag=True, help="Do not ask.")
@pass_session
def quarantine(
    session: Session,
    /,
    reason: str,
    timeout: float | None,
    *,
    cordon: bool,
    drain: bool,
    ignore_budget: bool,
    yes: bool,
    **where: str | None,
) -> None:
    """Take the node out of use until it is released.

    Pods with GPUs get no place on it; only `gpuwatch node release` ends that. Works in every mode.

    \b
    Examples:
      gpuwatch node quarantine --node gpu-1 --reason "fan replaced tomorrow"
      gpuwatch node quarantine --node gpu-1 --cordon --drain --yes
    """
    from gpuwatch.rules.by_hand import Wish
    from gpuwatch.rules.by_hand import quarantine as planned

    with _reach(session, where) as reach, _hand(reach) as hand:
        view = reach.view_of(hand.writer.node())
        also = [words for flag, words in ((cordon, "cordon it"), (drain, "evict its GPU pods")) if flag]
        _confirm(session, f"take node {reach.name} out of use{''.join(f', {words}' for words in also)}", yes=yes)
        if ignore_budget:
            session.terminal.hint("the fleet's budget is ignored: more nodes than it allows may be out of use")
        wish = Wish(
            at=reach.clock.time(),
            reason=reason,
            effect=reach.config.remediation.effect,
            cordon=cordon,
            drain=drain,
        )
        made, acts = hand.act(lambda live: planned(live, wish, None if ignore_budget else hand.slot(live)))
        _tell(session, made, acts)
        if drain:
            seconds = reach.config.remediation.drain.deadline if timeout is None else timeout
            _drain(session, hand.drain(wish, view, seconds, time.sleep))
    session.terminal.hint(f"give it back with: gpuwatch node release --node {reach.name}")


@click.command(short_help="Give back all that gpuwatch holds on the node.")
@reach_options
@option("--reason", default="by hand", metavar="TEXT", help="Why; said in the Event. Default: by hand.")
@option(
    "--acknowledge/--forget",
    default=True,
    help="Whether the faults of now are overruled until they happen again, or nothing is kept, as for an uninstall.",
)
@option("--yes", is_flag=True, help="Do not ask.")
@pass_session
def release(session: Session, /, reason: str, *, acknowledge: bool, yes: bool, **where: str | None) -> None:
    """Give back all that gpuwatch holds on the node.

    Takes away its own taint, cordon, labels, annotations, condition and slot, also those that an uninstalled gpuwatch
    left behind; needs no agent. What is not gpuwatch's stays.

    \b
    Examples:
      gpuwatch node release --node gpu-1
      gpuwatch node release --node gpu-1 --forget --yes
    """
    from gpuwatch.model.remediation import Response
    from gpuwatch.rules.by_hand import Wish
    from gpuwatch.rules.by_hand import release as planned
    from gpuwatch.rules.evidence import in_force

    with _reach(session, where) as reach, _hand(reach) as hand:
        view = reach.view_of(hand.writer.node())
        present = in_force(view, reach.policy, Response.TAINT) if view else ()
        _confirm(session, f"give node {reach.name} back", yes=yes)
        wish = Wish(at=reach.clock.time(), reason=reason)
        made, acts = hand.act(lambda live: planned(live, wish, hand.leases(live), present, forget=not acknowledge))
        _tell(session, made, acts)
    if not acts:
        session.terminal.hint(f"nothing on node {reach.name} is gpuwatch's")


def _reach(session: Session, where: dict[str, str | None]) -> Any:
    from gpuwatch.cli.node_reach import reach

    return reach(session, where["node_name"], where["kubeconfig"], where["agent"])


def _hand(reach: "Reach") -> Any:
    from gpuwatch.cli.node_hand import hand

    return hand(reach)


def _slots(session: Session, reach: "Reach") -> "Slots":
    """The budget; what cannot be read is said."""
    from gpuwatch.roles.slots import SlotReader

    reader = SlotReader(reach.reader, reach.clock, reach.config.remediation.budget, reach.namespace)
    slots = reader.read()
    if reader.trouble is not None:
        session.terminal.hint(f"hint: the budget is not known; {reader.trouble}")
    return slots


def _planned(reach: "Reach", live: "NodeObject", view: "View", slots: "Slots") -> "Plan":
    """What the remediator would plan now, but for what only it remembers."""
    from gpuwatch.model.remediation import Memory
    from gpuwatch.rules.remediation import Evictions, Sight, plan

    now = reach.clock.time()
    sight = Sight(view=view, age=max(0.0, now - view.snapshot.at))
    return plan(
        sight=sight,
        node=live,
        policy=reach.policy,
        memory=Memory(),
        slots=slots,
        pods=reach.reader.pods(),
        now=now,
        jitter=0.0,
        evictions=Evictions(),
    )


def _confirm(session: Session, what: str, *, yes: bool) -> None:
    """Ask a person; nobody else is believed without --yes."""
    import sys

    from gpuwatch.model.errors import GpuwatchError, UsageError

    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"will not {what} without being asked to twice", "stdin is no terminal", "give --yes")
    if not click.confirm(f"{what[:1].upper()}{what[1:]}?", err=True):
        raise GpuwatchError(f"did not {what}", "the answer was no")


def _tell(session: Session, plan: "Plan", acts: "Sequence[Act]") -> None:
    """What was done to stdout, what was left out to stderr."""
    from gpuwatch.model.event import Result

    for change, done in acts:
        if done.result is Result.DONE:
            click.echo(f"{change.target}: {change.words}")
        elif done.error is not None:
            session.terminal.hint(f"not done: {change.target}: {done.error}")
    for one in plan.blocked:
        session.terminal.hint(f"left alone: {one.words}")


def _drain(session: Session, progress: Any) -> None:
    for seen in progress:
        if seen.waiting:
            click.echo(f"waiting for {', '.join(pod.path for pod in seen.waiting)}")
        for one in seen.blocked:
            session.terminal.hint(one.words)
    click.echo("no pod that has to leave is left")


def _document(kind: str, node: str, items: tuple[Any, ...], output: str) -> None:
    from gpuwatch.cli.document import Envelope, to_json, to_yaml
    from gpuwatch.cli.words import utc

    if output == "name":
        click.echo(f"node/{node}")
        return
    document = Envelope(kind=kind, node=node, at=utc(time.time()), items=items)
    click.echo(to_json(document) if output == "json" else to_yaml(document))
