"""`gpuwatch node`: what gpuwatch holds on a Kubernetes Node, and what it would do."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpuwatch.cli.console.commands import Entry
from gpuwatch.cli.console.lazy import LazyGroup
from gpuwatch.cli.console.options import KUBECONFIG, NODE_NAME, keeps_state, option, output
from gpuwatch.cli.console.session import Session, pass_session

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from gpuwatch.cli.node.access import NodeAccess
    from gpuwatch.kube.objects import NodeObject, PodObject
    from gpuwatch.model.view import View
    from gpuwatch.remediation.model import Plan
    from gpuwatch.remediation.planning.slots import Slots

ENTRIES = (
    Entry("status", "Show what gpuwatch holds on the node, and why.", "node.node:status", "Commands"),
    Entry("plan", "Show what would be done now, as a diff; change nothing.", "node.node:plan", "Commands"),
    Entry("quarantine", "Take the node out of use until it is released.", "node.orders:quarantine", "Commands"),
    Entry("validate", "Put idle GPUs to work, as proof that they are healthy.", "node.validate:validate", "Commands"),
    Entry("release", "Release all that gpuwatch holds on the node.", "node.orders:release", "Commands"),
)

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(cls=LazyGroup, entries=ENTRIES)
def node() -> None:
    """Show, plan, quarantine, validate and release a Kubernetes Node."""


def reach_options(command: Command) -> Command:
    """Add the options that name the Node, its API server and its agent."""
    options = (
        option(
            "--node",
            "node_name",
            metavar="NAME",
            envvar=NODE_NAME,
            help="The Node. Default: the configuration's, else NODE_NAME.",
        ),
        option(
            "--kubeconfig",
            metavar="FILE",
            envvar=KUBECONFIG,
            help="Default: service account, KUBECONFIG or ~/.kube/config.",
        ),
        option(
            "--agent",
            metavar="URL|none",
            envvar="GPUWATCH_NODE_AGENT",
            help="Agent of that node. Default: the one here, if it is of that node.",
        ),
        keeps_state("Where the remediator keeps its state."),
    )
    for decorate in reversed(options):
        command = decorate(command)
    return command


@click.command(short_help="Show what gpuwatch holds on the node, and why.")
@reach_options
@output(schema=("NodeStatus", "cli.node.items:NodeItem"))
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
    from gpuwatch.cli.console.words import Words
    from gpuwatch.cli.look.gather import by_index
    from gpuwatch.cli.node.items import EXIT_CODES, node_item
    from gpuwatch.cli.node.screen import node_lines

    with reach_of(session, where) as access:
        live = access.reader.node()
        slots = _slots(session, access)
        view = access.view_of(live)
        if view is None:
            session.terminal.hint("hint: no agent of this node answers here; this is what the Node itself has")
        item = node_item(
            live, access.policy, _planned(session, access, live, view, slots) if view else None, slots, access.mode
        )
    if output in ("table", "wide"):
        terminal = session.terminal
        words = Words(terminal.glyphs, time.time())
        terminal.show(*node_lines(item, words, terminal.width, by_index(view), wide=output == "wide"))
    else:
        _document(session, "NodeStatus", live.name, (item,), output)
    ctx.exit(EXIT_CODES.get(item.stage, 4))


@click.command(short_help="Show what would be done now, as a diff; change nothing.")
@reach_options
@output("table", "json", "yaml", schema=("NodePlan", "cli.node.items:ChangeItem"))
@pass_session
def plan(session: Session, /, output: str, **where: str | None) -> None:
    """Show what would be done now, as a diff; change nothing.

    Asks agent, Node and policy as the remediator does, whatever the mode.

    \b
    Examples:
      gpuwatch node plan --node gpu-1
      gpuwatch node plan --node gpu-1 -o json
    """
    from gpuwatch.cli.look.gather import by_index
    from gpuwatch.cli.node.items import changes
    from gpuwatch.cli.node.screen import plan_lines
    from gpuwatch.model.errors import GpuwatchError
    from gpuwatch.remediation.model import CreateEvent

    with reach_of(session, where) as access:
        live = access.reader.node()
        view = access.view_of(live)
        if view is None:
            raise GpuwatchError(
                f"nothing is known about the GPUs of {live.name}", "no agent of it answers here", "give --agent URL"
            )
        found = _planned(session, access, live, view, _slots(session, access))
    also = (access.config.remediation.handover.annotation,)
    if output == "table":
        terminal = session.terminal
        terminal.show(*plan_lines(live, found, access.mode, by_index(view), terminal.glyphs, terminal.width, also))
        if any(isinstance(step, CreateEvent) and step.pod for step in found.steps):
            terminal.hint("hint: only the remediator knows which Events have been created; none is created twice")
    else:
        _document(session, "NodePlan", live.name, tuple(changes(live, found.steps, also)), output)


def reach_of(session: Session, where: dict[str, str | None]) -> "AbstractContextManager[NodeAccess]":
    """Access to the Node that `reach_options` name, as a context manager."""
    from gpuwatch.cli.node.access import node_access

    return node_access(session, where["node_name"], where["kubeconfig"], where["agent"])


def _slots(session: Session, access: "NodeAccess") -> "Slots":
    """The budget; a hint on stderr names what cannot be read."""
    from gpuwatch.remediation.service.slots import SlotReader

    reader = SlotReader(access.reader, access.clock, access.config.remediation.budget, access.namespace)
    slots = reader.read()
    if reader.error is not None:
        session.terminal.hint(f"hint: the budget is not known; {reader.error}")
    return slots


def _planned(session: Session, access: "NodeAccess", live: "NodeObject", view: "View", slots: "Slots") -> "Plan":
    """What the remediator would plan now, without the memory that only the running one has; a hint on stderr names
    what cannot be read.
    """
    from msgspec.structs import replace

    from gpuwatch.kube.errors import KubeError
    from gpuwatch.remediation.model import RemediatorMemory
    from gpuwatch.remediation.planning.plan import Observation, PlanInputs, plan

    pods: tuple[PodObject, ...] | None = None
    try:
        pods = tuple(access.reader.pods())
    except KubeError as error:
        session.terminal.hint(f"hint: the pods of the node are not known; {error}")
    now = access.clock.time()
    inputs = PlanInputs(
        observation=Observation(view=view, age=max(0.0, now - view.snapshot.at)),
        node=live,
        policy=access.policy,
        memory=RemediatorMemory(),
        slots=slots,
        pods=pods,
        now=now,
    )
    made = plan(inputs)
    if "devices" not in made.needs:
        return made
    try:
        return plan(replace(inputs, devices=access.reader.devices()))
    except KubeError as error:
        session.terminal.hint(f"hint: DeviceTaintRules are not known; {error}")
        return made


def _document(session: Session, kind: str, node: str, items: tuple[Any, ...], output: str) -> None:
    from gpuwatch.cli.console.document import Envelope
    from gpuwatch.cli.console.words import utc

    if output == "name":
        session.terminal.print(f"node/{node}")
        return
    document = Envelope(kind=kind, node=node, at=utc(time.time()), items=items)
    session.terminal.document(document, output)
