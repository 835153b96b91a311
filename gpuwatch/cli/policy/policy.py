"""`gpuwatch policy`: what is done about each fault, and what would have been done about recorded or simulated ones."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.console.commands import Entry
from gpuwatch.cli.console.document import Envelope
from gpuwatch.cli.console.lazy import LazyGroup
from gpuwatch.cli.console.options import option, output
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.console.words import Words, utc

if TYPE_CHECKING:
    from gpuwatch.config import Config
    from gpuwatch.model.view import View
    from gpuwatch.remediation.planning.policy import Policy

ENTRIES = (
    Entry("check", "Check the policy and show what is done about each fault.", "policy.policy:check", "Commands"),
    Entry("test", "Show what would have been done, on recorded views or a scenario.", "policy.policy:test", "Commands"),
)


@click.group(cls=LazyGroup, entries=ENTRIES)
def policy() -> None:
    """Check and try out what is done about faults."""


@click.command(short_help="Check the policy and show what is done about each fault.")
@click.argument("file", type=click.Path(dir_okay=False), required=False)
@output("table", "json", "yaml", "name")
@pass_session
def check(session: Session, file: str | None, output: str) -> None:
    """Check the policy and show what is done about each fault.

    FILE is a configuration; without it, --config. Exit 0 when the remediator would accept it, 2 with the reason when
    not. MOST limits every configuration. SCOPE gpu: only the sick GPU is taken out of service where the device plugin
    keeps pods from it, else the node; the line `scope gpu` says which on this node.

    \b
    Examples:
      gpuwatch policy check /etc/gpuwatch/gpuwatch.yaml
      gpuwatch --config gpuwatch.yaml policy check -o json
    """
    from gpuwatch.cli.policy.screen import limits, rule_items, rule_table

    config, compiled = _policy(session, file)
    items = rule_items(compiled, config.checks.ignore)
    terminal = session.terminal
    if output == "table":
        words = Words(terminal.glyphs, 0.0)
        terminal.show(
            *limits(config.remediation, _view(session, config), words), "", *rule_table(items, words, terminal.width)
        )
    elif output == "name":
        terminal.print(*(item.subject for item in items))
    else:
        terminal.document(Envelope(kind="PolicyRuleList", items=items), output)


@click.command(short_help="Show what would have been done, on recorded views or a scenario.")
@click.argument("events", metavar="EVENTS")
@option("--duration", metavar="TIME", default="1h", help="How much of a scenario to play, such as 90s, 30m, 24h.")
@option("--seed", type=int, default=1, metavar="N", help="Same seed, same node. Default: 1.")
@option(
    "--policy",
    "file",
    metavar="FILE",
    envvar="GPUWATCH_POLICY_TEST_POLICY",
    help="The configuration to try. Default: --config.",
)
@output("table", "json", "yaml")
@pass_session
def test(session: Session, /, events: str, duration: str, seed: int, file: str | None, output: str) -> None:
    """Show what would have been done, on recorded views or a scenario.

    EVENTS is a file of views, one JSON a line, also .gz, or - for stdin; or sim:SCENARIO. The remediator's own plan is
    carried out on an imaginary Node; nothing is written. Record views of a running agent:

    \b
      while sleep 2; do
        curl -sf --unix-socket /run/gpuwatch/agent.sock http://localhost/api/v1/view && echo
      done | gzip > views.jsonl.gz

    \b
    Examples:
      gpuwatch policy test sim:fallen-off-bus
      gpuwatch policy test sim:noisy-xid --duration 24h
      gpuwatch policy test views.jsonl.gz --policy new.yaml
    """
    from gpuwatch.cli.look.items import same_members
    from gpuwatch.cli.look.recording import recorded, scenario_views
    from gpuwatch.cli.policy.screen import RehearsedActionItem, action_table, summary
    from gpuwatch.model.errors import UsageError
    from gpuwatch.sim.rehearsal import Rehearsal

    config, compiled = _policy(session, file)
    simulated = events.startswith("sim:")
    rehearsal = Rehearsal(compiled, gap=float("inf")) if simulated else Rehearsal(compiled)
    views = scenario_views(events.removeprefix("sim:"), config, duration, seed) if simulated else recorded(events)
    items = tuple(same_members(RehearsedActionItem, each, at=utc(each.at)) for each in rehearsal.watch(views))
    if rehearsal.views == 0:
        raise UsageError(f"{events} has no view", "nothing was tried", "record /api/v1/view, one answer a line")
    terminal = session.terminal
    if output == "table":
        words = Words(terminal.glyphs, rehearsal.last)
        if items:
            terminal.show(*action_table(items, rehearsal.first, words, terminal.width), "")
        terminal.show(*summary(rehearsal, words))
        if items and config.remediation.mode != "enforce":
            terminal.hint(f"mode is {config.remediation.mode}: with enforce this would have been done")
    else:
        terminal.document(Envelope(kind="PolicyTest", items=items), output)


def _view(session: Session, config: "Config") -> "View | None":
    """The View of the agent that --source names, else of this node's; None: this node's does not answer."""
    from gpuwatch.agent.client import find_agent
    from gpuwatch.cli.look.source import named_agent, parse_source
    from gpuwatch.model.errors import GpuwatchError

    source = parse_source(session.source) if session.source else None
    if source is not None and source.kind == "agent":
        return named_agent(source, config).view()
    client = find_agent(config.agent).client
    try:
        return client.view() if client else None
    except GpuwatchError:
        return None


def _policy(session: Session, file: str | None) -> "tuple[Config, Policy]":
    from gpuwatch.config import load
    from gpuwatch.health.checks import CHECKS
    from gpuwatch.remediation.planning.policy import Policy

    config = load(Path(file)) if file else session.config()
    return config, Policy.compile(config.remediation, CHECKS, config.checks.xids)
