"""Harms by what is seen wrongly: stale data, flicker, a monitor in trouble, noise; with the real judge and plan."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.model.finding import Health
from gpuwatch.model.snapshot import ClockEvents, GpuState, SourceStatus
from gpuwatch.remediation.model import BlockReason
from tests.harms.chain import INTERVAL, Chain
from tests.harms.conftest import Start
from tests.remediation.model.remediating import Bench, fatal

HOUR = round(3600 / INTERVAL)


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    with closing(Chain(tmp_path)) as running:
        yield running


def reasons(bench: Bench) -> set[str]:
    plan = bench.remediator.state.plan
    return {obstacle.reason for obstacle in plan.blocked} if plan else set()


# ---- flicker


def test_a_fault_that_comes_and_goes_is_one_quarantine(start: Start) -> None:
    """Faster than the hold: the taint neither comes nor goes with it."""
    bench = start(recovery_hold=120.0)
    for _ in range(20):
        bench.finds(fatal())
        bench.run(20)
        bench.finds()
        bench.run(60)
        assert len(bench.ours) == 1
    assert bench.ledger.done().count("taint") == 1
    assert bench.ledger.done().count("untaint") == 0


def test_a_node_that_is_sick_again_and_again_is_left_to_a_person(start: Start) -> None:
    """Slower than the hold: a bound on quarantines a day, however quickly each of them ends."""
    bench = start(repeats=100, max_quarantines_per_day=4)
    for _ in range(10):
        bench.finds(fatal(bench.clock.time()))
        bench.run(60)
        bench.finds()
        bench.run(120)
    assert bench.ledger.done().count("taint") == 4


# ---- what is old, and what cannot be read


@pytest.mark.parametrize("sick", [True, False])
def test_an_old_view_neither_adds_nor_removes(start: Start, sick: bool) -> None:
    """The agent has stopped; what it said last is true of then."""
    bench = start()
    if not sick:
        bench.finds(fatal())
        bench.run(30)
    before = len(bench.ours)
    bench.finds(*((fatal(),) if sick else ()))
    bench.clock.go(60.0)
    bench.run(90, poll=False)
    assert len(bench.ours) == before == (0 if sick else 1)
    assert BlockReason.STALE in reasons(bench)


@pytest.mark.parametrize("state", [GpuState.UNKNOWN, GpuState.UNRESPONSIVE])
def test_a_gpu_that_nobody_can_read_is_neither_sick_nor_well(chain: Chain, state: GpuState) -> None:
    chain.bench.states = dict.fromkeys(chain.bench.states, state)
    chain.cycle(HOUR)
    assert chain.quarantines == 0
    assert Health.HEALTHY not in chain.bench.last.gpus.values()


def test_a_quarantine_does_not_end_while_its_gpu_cannot_be_read(chain: Chain) -> None:
    chain.bench.make(0, recovery_action=1)
    chain.cycle(3)
    assert chain.taints
    chain.bench.make(0, errors={"recovery_action": "Unknown Error"})
    chain.cycle(HOUR)
    assert chain.taints
    chain.bench.make(0)
    chain.cycle(HOUR)
    assert chain.taints == ()


def test_trouble_of_the_monitor_is_no_fault_of_a_gpu(chain: Chain) -> None:
    """Everything that gpuwatch reads is down at once."""
    names = ("nvml", "gpm", "kmsg", "podresources", "procfs", "pci")
    chain.bench.node["sources"] = tuple(SourceStatus(name=name, up=False, reason="broken") for name in names)
    chain.bench.states = dict.fromkeys(chain.bench.states, GpuState.UNKNOWN)
    chain.cycle(HOUR)
    assert chain.bench.checks() == {"monitoring_degraded"}
    assert chain.bench.last.gpus == {"GPU-0": Health.UNKNOWN, "GPU-1": Health.UNKNOWN}
    assert chain.quarantines == 0


def test_a_node_of_which_nothing_is_known_is_not_healthy(start: Start) -> None:
    bench = start()
    bench.run(30)
    assert bench.condition is not None
    assert bench.condition["status"] == "True"
    bench.run(300, poll=False)
    assert bench.condition["status"] == "Unknown"


# ---- what is normal


@pytest.mark.parametrize("reason", ["hw_power_brake_slowdown", "hw_thermal_slowdown", "sw_power_cap", "hw_slowdown"])
def test_a_gpu_that_is_held_back_keeps_its_work(chain: Chain, reason: str) -> None:
    chain.bench.make(0, clock_events=ClockEvents(active={"gpu_idle": False, reason: True}))
    chain.cycle(HOUR)
    assert chain.quarantines == 0
    assert chain.bench.checks() <= {"hw_power_brake", "hw_thermal_slowdown"}


EXPECTATIONS: dict[str, dict[str, Any]] = {
    "more were there once": {"expected_gpus": 8},
    "the bus has more": {"bus": tuple(f"0000:{number:02x}:00.0" for number in range(1, 9))},
    "one does not answer": {"unanswered": {2: "registration hangs"}},
}


@pytest.mark.parametrize("what", EXPECTATIONS)
def test_a_wrong_number_of_gpus_is_reported_and_not_acted_on(chain: Chain, what: str) -> None:
    chain.cycle()
    chain.bench.node |= EXPECTATIONS[what]
    chain.cycle(HOUR)
    assert chain.bench.checks() == {"gpu_missing"}
    assert chain.quarantines == 0
