"""Sources of `gpuwatch recommend`: the recommendations of an agent, or this command's own from recorded data."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gpuwatch.agent.client import find_agent
from gpuwatch.cli.console.session import Session, progress
from gpuwatch.cli.console.words import Words
from gpuwatch.cli.look.recording import STARTED, recorded, scenario_views
from gpuwatch.cli.look.source import named_agent, parse_source
from gpuwatch.cli.recommend.prometheus import FleetOptions, recommend_for_fleet
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.view import View
from gpuwatch.rightsizing.findings.judge import recommend
from gpuwatch.rightsizing.model.recommendation import Recommendations
from gpuwatch.rightsizing.model.usage import FleetFacts
from gpuwatch.rightsizing.service import checkpoint as usage_checkpoint
from gpuwatch.rightsizing.usage.from_views import usage_of_views
from gpuwatch.rightsizing.usage.ledger import LedgerState, UsageLedger
from gpuwatch.sim.node.scenario import DEFAULT, load, seconds
from gpuwatch.sim.surroundings.consents import scenario_consents
from gpuwatch.workloads.workload_key import Tenants

HOUR = 3600.0


class RecordedViews(NamedTuple):
    """Where the views are from: a file, `-` for stdin, or `sim:SCENARIO`, which is played for `duration`."""

    events: str
    duration: str
    seed: int


def find_recommendations(
    session: Session, views: RecordedViews | None, fleet: FleetOptions | None, namespaces: tuple[str, ...] = ()
) -> tuple[Recommendations, str]:
    """The recommendations, and the name of their source. `namespaces`: of a fleet only these are read.

    Raises:
        UsageError: several sources were named, or one without history.
        GpuwatchError: no agent answers, and none has left a checkpoint.
    """
    if sum((views is not None, fleet is not None, session.source is not None)) > 1:
        raise UsageError("two sources are named", "", "give one of --source, --from-views, --from-prometheus")
    if views is not None:
        return _of_views(session, views)
    if fleet is not None:
        return recommend_for_fleet(session, fleet, namespaces)
    source = parse_source(session.source) if session.source else None
    if source is not None and source.kind != "agent":
        raise UsageError(
            f"--source {session.source} cannot tell what was",
            "sizes are judged by history",
            "ask an agent that has watched for a while, or give --from-views",
        )
    config = session.config()
    agent = named_agent(source, config) if source else find_agent(config.agent).client
    return (agent.recommendations(), f"agent {agent.name}") if agent else _of_checkpoint(session)


def _of_checkpoint(session: Session) -> tuple[Recommendations, str]:
    """Judge the checkpoint that an agent has left, as of its time."""
    config = session.config()
    path = Path(config.state_dir) / usage_checkpoint.NAME if config.state_dir else None
    rules = config.rightsizing
    saved = usage_checkpoint.peek(path, LedgerState, lambda state: UsageLedger.restored(state, rules)) if path else None
    for trouble in saved.trouble if saved else ():
        session.terminal.hint(f"hint: {trouble}")
    ledger = UsageLedger.restored(saved.state, rules) if saved and saved.state else None
    if ledger is None or ledger.at is None:
        where = f"no agent answers here, and none has left anything in {config.state_dir or 'a state directory'}"
        raise GpuwatchError(
            "no usage of these GPUs is recorded",
            where,
            "start one with `gpuwatch agent`, or give --from-prometheus URL",
        )
    age = Words(session.terminal.glyphs, time.time()).ago(ledger.at)
    session.terminal.hint(f"hint: no agent answers here; this is by what one has saved, its last reading was {age}")
    fleet = FleetFacts(namespaces=ledger.namespaces(ledger.at), alone=True)
    found = recommend(ledger.summaries(ledger.at), fleet, rules, ledger.at, since=ledger.since)
    return found, f"checkpoint {path}"


def _of_views(session: Session, views: RecordedViews) -> tuple[Recommendations, str]:
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

        def counted() -> Iterator[View]:
            span = (seconds(views.duration) if simulated else None) or 0.0
            for number, view in enumerate(given, 1):
                played = min(span, view.snapshot.at - STARTED)
                advance("" if simulated else f"{number}", round(played / HOUR), round(span / HOUR))
                yield view

        found = usage_of_views(counted(), config.rightsizing, tenants)
    if found.at is None:
        raise UsageError(f"{views.events} has no view", "nothing was judged", "record /api/v1/view, one answer a line")
    where = views.events if simulated else "stdin" if views.events == "-" else f"views in {views.events}"
    judged = recommend(
        found.ledger.summaries(found.at), found.fleet, config.rightsizing, found.at, since=found.ledger.since
    )
    return judged, where
