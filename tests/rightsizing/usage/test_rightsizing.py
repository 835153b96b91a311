"""The scenario of right-sizing: what is wrong in it is found, and nothing is said of those who use what they have."""

import msgspec
import pytest

from gpuwatch.config import Config, RightsizingConfig
from gpuwatch.model.view import View
from gpuwatch.rightsizing.findings.judge import recommend
from gpuwatch.rightsizing.model.recommendation import FindingKind, Recommendation, RecommendedAction
from gpuwatch.rightsizing.usage.from_views import RecordedUsage, fleet_of, usage_of_views
from gpuwatch.rightsizing.usage.ledger import UsageLedger
from gpuwatch.rightsizing.usage.windows import WindowCollector
from gpuwatch.sim.node.scenario import load
from gpuwatch.sim.playback import views
from gpuwatch.sim.surroundings.consents import scenario_consents
from gpuwatch.workloads.workload_key import Tenants

STARTED = 1_790_000_040.0
SECONDS = 50 * 60.0
HURRIED = RightsizingConfig(min_history=600.0)
"""A day of history takes too long for a test; what people wait for needs a week in any case."""

TRUTH = {
    ("sweep-finished", FindingKind.IDLE_HOLDER): RecommendedAction.SCALE_DOWN,
    ("debug-shell", FindingKind.NEVER_USED): RecommendedAction.ASK_OWNER,
    ("llama-pretrain", FindingKind.GANG_OVERSIZED): RecommendedAction.REDUCE,
    ("llama-pretrain", FindingKind.ENERGY): RecommendedAction.TUNE,
    ("features", FindingKind.IO_BOUND): RecommendedAction.LOOK_AT_INPUT,
}
"""Workload and finding -> what to do, of what can be said after so short a time."""


WEEK = {
    ("chat-7b", FindingKind.PREALLOCATED): "lower --gpu-memory-utilization",
    ("reranker", FindingKind.MIG_FIT): "1 x nvidia.com/mig-1g.20gb",
    ("embed", FindingKind.MIG_FIT): "1 x nvidia.com/mig-3g.40gb",
}
"""Workload and finding -> what instead, of those that need a week to be known."""


@pytest.fixture(scope="module")
def played() -> tuple[View, ...]:
    return tuple(views(load("rightsizing"), Config(), STARTED, SECONDS, with_gpm=True))


@pytest.fixture(scope="module")
def seen(played: tuple[View, ...]) -> RecordedUsage:
    return usage_of_views(played, HURRIED, Tenants(scenario_consents(load("rightsizing"), STARTED)))


@pytest.fixture(scope="module")
def items(seen: RecordedUsage) -> tuple[Recommendation, ...]:
    assert seen.at == STARTED + SECONDS
    return recommend(seen.ledger.summaries(seen.at), seen.fleet, HURRIED, seen.at).items


def test_what_is_wrong_is_found(items: tuple[Recommendation, ...]) -> None:
    assert {(item.target.name, item.kind): item.action for item in items} == TRUTH


def test_the_ledger_knows_all_pods_and_the_fleet_all_gpus(seen: RecordedUsage) -> None:
    assert seen.at is not None
    summaries = {each.key.name: each for each in seen.ledger.summaries(seen.at)}
    assert len(summaries) == len(load("rightsizing").workloads)
    assert summaries["llama-pretrain"].gpus_per_pod == 8
    assert [facts.held for facts in seen.fleet.gpus] == [True] * 16
    assert {each.namespace: each.held for each in seen.fleet.namespaces}["serving"] == 4


def test_the_gang_is_to_keep_those_that_work(items: tuple[Recommendation, ...]) -> None:
    (gang,) = [item for item in items if item.kind is FindingKind.GANG_OVERSIZED]
    workload = next(each for each in load("rightsizing").workloads if each.spare)
    assert (gang.change.count, gang.change.to_count) == (8, 8 - len(workload.spare))


@pytest.mark.slow  # quick: what is wrong is found
def test_of_servers_it_is_reported_after_a_week(played: tuple[View, ...]) -> None:
    """The same minutes again and again: a week takes too long to play."""
    windows, names = WindowCollector(), {name for name, _ in WEEK}
    minutes = [window for view in played for window in windows.take(view) if window.key.name in names]
    ledger, config, now = UsageLedger(RightsizingConfig()), RightsizingConfig(), 0.0
    for number in range(int(8 * 86400 / SECONDS)):
        for window in minutes:
            ledger.add(msgspec.structs.replace(window, at=window.at + number * SECONDS))
        now = STARTED + (number + 1) * SECONDS
    found = recommend(ledger.summaries(now), fleet_of(played[-1]), config, now).items
    assert {(item.target.name, item.kind): item.recommended for item in found} == WEEK


def test_pods_say_what_the_scenario_says() -> None:
    scenario = load("rightsizing")
    said = {(pod.namespace, pod.name): pod.annotations for pod in scenario_consents(scenario, STARTED).pods}
    assert said == {workload.pod: workload.annotations for workload in scenario.workloads}
