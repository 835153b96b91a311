"""Whose advice `gpuwatch recommend` tells: an agent's, which has watched, or its own about what others recorded."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpuwatch.cli.console.session import Session
from gpuwatch.cli.look.source import parse_source
from gpuwatch.cli.recommend.prometheus import FleetQuestion, advice_for_fleet
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.recommendation import Recommendations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuwatch.model.view import View
    from gpuwatch.rightsizing.model.usage import Fleet
    from gpuwatch.rightsizing.usage.ledger import Ledger


HOUR = 3600.0


class Views(NamedTuple):
    """What is recorded: a file of views, `-`, or `sim:SCENARIO`, which is played for `duration`."""

    events: str
    duration: str
    seed: int


class Advice(NamedTuple):
    """`source` names who was asked."""

    body: Recommendations
    source: str


def advice(
    session: Session, views: Views | None, fleet: FleetQuestion | None, namespaces: tuple[str, ...] = ()
) -> Advice:
    """What there is to say. `namespaces`: of a fleet no more than these is read.

    Raises:
        UsageError: more than one was named, or one that only knows the present.
        GpuwatchError: nobody answers, or nobody has watched.
    """
    if sum((views is not None, fleet is not None, session.source is not None)) > 1:
        raise UsageError("two sources are named", "", "give one of --source, --from-views, --from-prometheus")
    if views is not None:
        return _of_views(session, views)
    if fleet is not None:
        return Advice(*advice_for_fleet(session, fleet, namespaces))
    return _of_agent(session)


def _of_agent(session: Session) -> Advice:
    from gpuwatch.agent.client import AgentClient, find_agent

    source = parse_source(session.source) if session.source else None
    if source is not None and source.kind != "agent":
        raise UsageError(
            f"--source {session.source} cannot tell what was",
            "sizes are judged by history",
            "ask an agent that has watched for a while, or give --from-views",
        )
    agent = AgentClient(source.argument or None) if source else find_agent()
    return Advice(agent.recommendations(), f"agent {agent.name}") if agent else _of_checkpoint(session)


def _of_checkpoint(session: Session) -> Advice:
    """What an agent has left behind, judged as of then."""
    from gpuwatch.cli.console.words import Words
    from gpuwatch.rightsizing.model.usage import Fleet
    from gpuwatch.rightsizing.service import checkpoint as usage_checkpoint
    from gpuwatch.rightsizing.usage.ledger import Ledger, LedgerState

    config = session.config()
    path = Path(config.state_dir) / usage_checkpoint.NAME if config.state_dir else None
    found = usage_checkpoint.peek(path, LedgerState) if path else None
    for trouble in found.trouble if found else ():
        session.terminal.hint(f"hint: {trouble}")
    ledger = Ledger.restored(found.state, config.rightsizing) if found and found.state else None
    if ledger is None or ledger.at is None:
        where = f"no agent answers here, and none has left anything in {config.state_dir or 'a state directory'}"
        raise GpuwatchError(
            "nobody has watched these GPUs", where, "start one with `gpuwatch agent`, or give --from-prometheus URL"
        )
    age = Words(session.terminal.glyphs, time.time()).ago(ledger.at)
    session.terminal.hint(f"hint: no agent answers here; this is by what one has saved, its last look was {age}")
    fleet = Fleet(namespaces=ledger.namespaces(ledger.at), alone=True)
    return Advice(_judged(session, ledger, fleet, ledger.at), f"checkpoint {path}")


def _of_views(session: Session, views: Views) -> Advice:
    from gpuwatch.cli.console.session import progress
    from gpuwatch.cli.look.recording import STARTED, recorded, scenario_views
    from gpuwatch.rightsizing.usage.from_views import usage_of_views
    from gpuwatch.sim.node.scenario import DEFAULT, load, seconds
    from gpuwatch.sim.surroundings.consents import scenario_consents
    from gpuwatch.workloads.workload_key import Tenants

    config = session.config()
    simulated = views.events.startswith("sim:")
    tenants = None
    if simulated:
        scenario = views.events.removeprefix("sim:")
        given = scenario_views(scenario, config, views.duration, views.seed, with_gpm=True)
        tenants = Tenants(scenario_consents(load(scenario or DEFAULT), STARTED))
    else:
        given = recorded(views.events)
    with progress(session, f"playing {views.duration}, in hours" if simulated else "reading views") as advance:

        def counted() -> "Iterator[View]":
            span = (seconds(views.duration) if simulated else None) or 0.0
            for number, view in enumerate(given, 1):
                played = min(span, view.snapshot.at - STARTED)
                advance("" if simulated else f"{number}", round(played / HOUR), round(span / HOUR))
                yield view

        found = usage_of_views(counted(), config.rightsizing, tenants)
    if found.at is None:
        raise UsageError(f"{views.events} has no view", "nothing was judged", "record /api/v1/view, one answer a line")
    where = views.events if simulated else "stdin" if views.events == "-" else f"views in {views.events}"
    return Advice(_judged(session, found.ledger, found.fleet, found.at), where)


def _judged(session: Session, ledger: "Ledger", fleet: "Fleet", now: float) -> Recommendations:
    from gpuwatch.rightsizing.findings.judge import recommend

    found = recommend(ledger.summaries(now), fleet, session.config().rightsizing, now)
    return Recommendations(
        at=now, since=ledger.since, workloads=found.workloads, learning=found.learning, items=found.items
    )
