"""`gpuwatch node quarantine` and `release`: what a person orders for a Node."""

import sys
import time
from collections.abc import Sequence

import click

from gpuwatch.cli.console.options import Number, option
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.node.access import manual_actions
from gpuwatch.cli.node.items import changes
from gpuwatch.cli.node.node import reach_of, reach_options
from gpuwatch.kube.objects import NodeObject
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.event import Result
from gpuwatch.model.finding import Response
from gpuwatch.model.text import shell_word, visible
from gpuwatch.remediation.model import Plan
from gpuwatch.remediation.planning.evidence import in_force
from gpuwatch.remediation.planning.manual_quarantine import QuarantineRequest
from gpuwatch.remediation.planning.manual_quarantine import quarantine as planned_quarantine
from gpuwatch.remediation.planning.manual_quarantine import release as planned_release
from gpuwatch.remediation.service.executor import PlanOutcome


@click.command(short_help="Take the node out of use until it is released.")
@reach_options
@option("--reason", default="by hand", metavar="TEXT", help="Why; others read it on the Node. Default: by hand.")
@option("--cordon", is_flag=True, help="Also make the node unschedulable for all pods.")
@option("--drain", is_flag=True, help="Also ask pods with GPUs to leave. Never by force.")
@option("--timeout", type=Number(0), metavar="SECONDS", help="For --drain. Default: the policy's.")
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
    with reach_of(session, where) as access, manual_actions(access) as actions:
        view = access.view_of(actions.writer.node())
        also = [words for flag, words in ((cordon, "cordon it"), (drain, "evict its GPU pods")) if flag]
        _confirm(session, f"take node {access.name} out of use{''.join(f', {words}' for words in also)}", yes=yes)
        if ignore_budget:
            session.terminal.hint("the fleet's budget is ignored: more nodes than it allows may be out of use")
        request = QuarantineRequest(
            at=access.clock.time(), reason=reason, effect=access.config.remediation.effect, cordon=cordon, drain=drain
        )
        live, made, outcome = actions.execute(
            lambda live: planned_quarantine(live, request, None if ignore_budget else actions.slot(live))
        )
        _report(session, live, made, outcome, actions.also)
        if drain:
            seconds = access.config.remediation.drain.deadline if timeout is None else timeout
            for progress in actions.drain(request, view, seconds, time.sleep):
                if progress.waiting:
                    session.terminal.print(f"waiting for {', '.join(pod.path for pod in progress.waiting)}")
                for one in progress.blocked:
                    session.terminal.hint(one.message)
            session.terminal.print("every pod that has to leave has left")
    session.terminal.hint(f"release it with: gpuwatch node release --node {shell_word(access.name)}")


@click.command(short_help="Release all that gpuwatch holds on the node.")
@reach_options
@option("--reason", default="by hand", metavar="TEXT", help="Why; the Event names it. Default: by hand.")
@option(
    "--acknowledge/--forget",
    default=True,
    help="Whether the faults of now are overruled until they happen again, or nothing is kept, as for an uninstall.",
)
@option("--yes", is_flag=True, help="Do not ask.")
@pass_session
def release(session: Session, /, reason: str, *, acknowledge: bool, yes: bool, **where: str | None) -> None:
    """Release all that gpuwatch holds on the node.

    Removes its own taint, cordon, labels, annotations, condition and slot, also those of an uninstalled gpuwatch; needs
    no agent.

    \b
    Examples:
      gpuwatch node release --node gpu-1
      gpuwatch node release --node gpu-1 --forget --yes
    """
    with reach_of(session, where) as access, manual_actions(access) as actions:
        view = access.view_of(actions.writer.node())
        present = in_force(view, access.policy, Response.TAINT) if view else ()
        _confirm(session, f"give node {access.name} back", yes=yes)
        request = QuarantineRequest(at=access.clock.time(), reason=reason)
        live, made, outcome = actions.execute(
            lambda live: planned_release(live, request, actions.leases(live), present, forget=not acknowledge)
        )
        _report(session, live, made, outcome, actions.also)
    if not outcome.steps:
        session.terminal.hint(f"nothing on node {access.name} is gpuwatch's")
    elif present and not acknowledge:
        session.terminal.hint(f"{present[0].key} is still there: a remediator in enforce takes the node again at once")
        session.terminal.hint("stop it first, or release with --acknowledge")


def _confirm(session: Session, what: str, *, yes: bool) -> None:
    """Ask the person at the terminal. Raises UsageError: there is no terminal; GpuwatchError: the answer was no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"will not {what} without being asked to twice", "stdin is no terminal", "give --yes")
    if not click.confirm(visible(f"{what[:1].upper()}{what[1:]}?"), err=True):
        raise GpuwatchError(f"did not {what}", "the answer was no")


def _report(session: Session, live: NodeObject, made: Plan, outcome: PlanOutcome, also: Sequence[str]) -> None:
    """Print what was done to stdout, and what was not done to stderr."""
    for change, done in zip(changes(live, made.steps, also), outcome.steps, strict=True):
        if done.result is Result.DONE:
            session.terminal.print(f"{change.target}: {change.message}")
        elif done.error is not None:
            session.terminal.hint(f"not done: {change.target}: {done.error}")
    for one in made.blocked:
        session.terminal.hint(f"left alone: {one.message}")
