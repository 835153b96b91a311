"""The fleet: many remediators, one API server, and a budget that holds at every write, whatever goes wrong."""

import pytest
from msgspec.structs import replace

from gpuwatch.cli.sim.fleet import remediator
from gpuwatch.config import BudgetConfig
from gpuwatch.remediation.model import TakeSlot
from gpuwatch.sim.fleet.agent import FAULTS
from gpuwatch.sim.fleet.drill import FleetDrill, run
from gpuwatch.sim.fleet.faults import FaultInjector
from gpuwatch.sim.fleet.fleet import Disturbances, SimulatedFleet
from gpuwatch.sim.fleet.node import NodeContext
from tests.seeds import seeded
from tests.sim.slot_race import SlotRace

NODES, BUDGET = 20, 2
BAD = Disturbances(api_failures=0.3, kill=True)


def drill(**changes) -> FleetDrill:
    return FleetDrill(nodes=NODES, gpus=2, seconds=120.0, **changes)


def phases(report):
    return {phase.name: phase for phase in report.phases}


@pytest.fixture(scope="module")
def rollout():
    """The report of a driver rollout, first on a fair day, then on a bad one."""
    return run(drill(disturbances=BAD), remediator)


@pytest.mark.slow  # quick: lost GPUs are quarantined and given back
def test_a_driver_rollout_taints_as_many_nodes_as_the_budget_allows_and_all_are_released(rollout):
    told = phases(rollout)
    assert rollout.is_good, rollout
    assert rollout.budget == told["waiting"].tainted == told["fault"].quarantines == BUDGET
    assert told["waiting"].sick == NODES
    assert told["waiting"].blocked == NODES - BUDGET
    assert told["after"].tainted == told["after"].sick == told["after"].blocked == 0


@pytest.mark.slow  # quick: two nodes that race, with failing requests
def test_it_holds_with_failing_requests_and_killed_remediators(rollout):
    told = phases(rollout)
    assert rollout.is_good, rollout
    assert told["fault again"].failures > told["fault again"].retries > 0
    assert 0 < told["waiting again"].tainted <= BUDGET
    assert sum(phase.kills for phase in rollout.phases) > 0
    assert told["after again"].tainted == told["after again"].sick == 0


@pytest.mark.slow  # quick: the same of one node in tests/remediation/service/test_remediator.py
def test_at_rest_a_node_writes_no_more_than_once_in_five_minutes():
    with SimulatedFleet(remediator, nodes=10, budget=1, gpus=1) as fleet:
        fleet.run(90.0)
        before = fleet.request_counts
        fleet.run(3600.0)
        asked = fleet.request_counts - before
    assert 0 < asked["writes"] <= 10 * 12
    assert 0 < asked["reads"] <= 10 * 120


@pytest.mark.parametrize("disturbances", [Disturbances(), BAD], ids=["fair", "bad"])
def test_two_nodes_that_race_for_the_last_slot_never_both_get_it(disturbances):
    race = SlotRace(remediator, 10, 1, disturbances)
    race.run()
    assert (race.violations, race.shortfalls) == ([], [])
    assert race.races >= 5
    assert race.quarantines == 11  # one wins every round, and one had the other slot all the time


def test_lost_gpus_are_quarantined_and_released_after_a_reboot_and_a_clean_sample():
    report = run(drill(fault="xid-79", disturbances=BAD), remediator)
    sick = round(NODES * FAULTS["xid-79"].share)
    assert report.is_good, report
    assert sick < report.quarantines <= 2 * sick


def test_application_xids_on_every_gpu_taint_nobody():
    report = run(drill(fault="app-xids", disturbances=BAD), remediator)
    assert report.is_good, report
    assert report.quarantines == 0
    assert phases(report)["waiting"].sick == NODES


@pytest.mark.parametrize("seed", seeded(range(3)))
def test_flapping_gpus_are_quarantined_once_and_stay_so_until_they_are_steady(seed):
    report = run(drill(fault="flapping", seed=seed), remediator)
    assert report.is_good, report
    assert report.quarantines == BUDGET


def test_the_same_seed_lets_the_same_nodes_fall_ill():
    def ill(seed: int) -> set[str]:
        with SimulatedFleet(remediator, nodes=NODES, budget=BUDGET, seed=seed, gpus=1) as fleet:
            FaultInjector(fleet, seed).inject(FAULTS["xid-79"], 10.0)
            fleet.run(20.0)
            return fleet.sick

    assert ill(1) == ill(1) != ill(2)


def greedy(context: NodeContext):
    """A remediator of another opinion about the budget."""
    budget = BudgetConfig(max_unavailable=NODES, namespace=context.namespace)
    return remediator(context._replace(config=replace(context.config, budget=budget)))


def test_a_budget_that_is_ignored_is_caught_with_the_writes_that_led_there():
    report = run(drill(), greedy)
    assert not report.is_good
    first = report.violations[0]
    assert first.rule == "budget"
    assert f"{BUDGET + 1} nodes are tainted" in first.message
    assert sum("taint none -> " in line for line in first.trail) > BUDGET
    assert [phase.name for phase in report.phases][-1] == "fault"  # the story ends there


def hasty(context: NodeContext):
    """One that gives nodes back after a moment of health."""
    return remediator(context._replace(config=replace(context.config, recovery_hold=1.0, min_quarantine=1.0)))


@pytest.mark.parametrize("fault", ["flapping", "xid-79"], ids=["without a reboot", "after a reboot"])
def test_a_node_that_is_released_too_early_is_caught(fault):
    assert [v.rule for v in run(drill(fault=fault), hasty).violations][:1] == ["released too early"]


class Blind:
    """Steps until the node is quarantined, and never again."""

    def __init__(self, context: NodeContext) -> None:
        self._inner = remediator(context)

    @property
    def state(self):
        return self._inner.state

    def step(self) -> float:
        if self.state.plan and any(isinstance(step, TakeSlot) for step in self.state.plan.steps):
            return 60.0
        return self._inner.step()


@pytest.mark.slow  # quick: a node that is given back too early
def test_what_is_not_restored_is_reported_as_a_leak():
    report = run(replace(drill(), nodes=5), Blind)
    assert not report.is_good
    assert any("is still held by" in leak for leak in report.leaks)
    assert any("taints are" in leak for leak in report.leaks)
