"""A person's word about a repair goes through the store, from one process to another."""

import time
from pathlib import Path

import pytest

from gpuwatch.agent.agent import Agent
from gpuwatch.agent.repairs import (
    KEPT,
    MAX_CLOSED_SECONDS,
    closed_gpu,
    keep_validations,
    mark_repaired,
    publish_repairer,
    repaired_at,
    repairer_status,
    validations,
)
from gpuwatch.config import AgentConfig, Backend, Config, RightsizingConfig, SourcesConfig
from gpuwatch.model.event import EventQuery
from gpuwatch.model.finding import Finding, Remedy, Severity
from gpuwatch.model.view import RepairerStatus, Validation
from gpuwatch.storage.store import Store
from tests.waiting import until


@pytest.fixture
def opened(tmp_path: Path):
    stores: list[Store] = []

    def open_(place: Path = tmp_path / "state") -> Store:
        stores.append(Store.open(place))
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


def test_the_agent_has_what_another_process_reported(opened) -> None:
    agent, person = opened(), opened()
    assert repaired_at(agent) == {}
    assert mark_repaired(person, {"GPU-1", "node"}, 10.0, ["xid_fatal/GPU-1/95"])
    assert mark_repaired(person, {"GPU-1"}, 20.0, [])
    assert repaired_at(agent) == {"GPU-1": 20.0, "node": 10.0}
    actions = agent.events(EventQuery(kinds=("action",))).actions
    assert {(each.actor, each.action, each.target) for each in actions} == {
        ("operator", "repaired", "gpu/GPU-1"), ("operator", "repaired", "node")
    }  # fmt: skip


def test_old_words_are_forgotten(opened) -> None:
    store = opened()
    for number in range(2 * KEPT):
        mark_repaired(store, {f"GPU-{number}"}, float(number), [])
    assert len(repaired_at(store)) == KEPT
    assert f"GPU-{2 * KEPT - 1}" in repaired_at(store)


def test_what_cannot_be_read_is_nobodys_word(opened) -> None:
    store = opened()
    store.remember("repaired", b"[]")
    assert repaired_at(store) == {}


def test_a_store_that_cannot_be_written_is_reported(opened, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = opened(tmp_path / "file" / "state")
    assert not mark_repaired(store, {"GPU-1"}, 1.0, [])
    assert store.trouble


def validated(gpu: str, at: float, *, passed: bool = True) -> Validation:
    return Validation(gpu=gpu, at=at, passed=passed, boot_id="b", message="" if passed else "X01: bad")


def test_the_agent_reads_what_was_validated_and_the_newest_counts(opened) -> None:
    agent, person = opened(), opened()
    assert keep_validations(person, [validated("GPU-1", 10.0), validated("GPU-2", 10.0)], "operator")
    assert keep_validations(person, [validated("GPU-1", 20.0, passed=False)], "repairer")
    assert validations(agent) == (validated("GPU-2", 10.0), validated("GPU-1", 20.0, passed=False))
    actions = agent.events(EventQuery(kinds=("action",))).actions
    assert {(each.actor, each.target, each.result) for each in actions} == {
        ("operator", "gpu/GPU-1", "done"), ("operator", "gpu/GPU-2", "done"), ("repairer", "gpu/GPU-1", "failed")
    }  # fmt: skip


def test_what_was_declared_by_a_clock_that_is_set_back_does_not_excuse_later_faults(opened) -> None:
    """A clock an hour ahead, as before the first answer of NTP: faults of that hour would count as repaired, and the
    GPU as validated after them.
    """
    person, agent = opened(), opened()
    mark_repaired(person, {"GPU-1"}, 3700.0, [])
    mark_repaired(person, {"GPU-2"}, 90.0, [])
    keep_validations(person, [validated("GPU-1", 3700.0), validated("GPU-2", 90.0)], "operator")
    assert repaired_at(agent, 100.0) == {"GPU-2": 90.0}
    assert validations(agent, now=100.0) == (validated("GPU-2", 90.0),)
    assert repaired_at(agent, 4000.0) == {"GPU-2": 90.0}, "nor once its time has come"
    assert validations(agent, now=4000.0) == (validated("GPU-2", 90.0),)


def test_an_agent_asks_by_its_clock(opened, tmp_path: Path) -> None:
    later = time.time() + 3600.0
    mark_repaired(person := opened(), {"GPU-1"}, later, [])
    keep_validations(person, [validated("GPU-1", later)], "operator")
    missing = str(tmp_path / "missing")
    config = Config(
        agent=AgentConfig(listen="", socket=str(tmp_path / "agent.sock")),
        sources=SourcesConfig(kmsg=missing, pod_resources=f"{missing}/kubelet.sock", sys=missing),
        rightsizing=RightsizingConfig(enabled=False),
        state_dir=str(tmp_path / "state"),
    )
    agent = Agent(config, Backend())
    agent._read_bus()
    agent._store.close()
    assert until(lambda: (repaired_at(opened()), validations(opened())) == ({}, ()))


@pytest.mark.parametrize(
    ("gpu", "at", "remedy", "stays"),
    [
        ("GPU-1", 11.0, Remedy.RESET_GPU, False),
        (None, 11.0, Remedy.REBOOT_NODE, False),
        ("GPU-1", 9.0, Remedy.RESET_GPU, True),
        ("GPU-2", 11.0, Remedy.RESET_GPU, True),
        ("GPU-1", 11.0, Remedy.RESTART_APP, True),
    ],
)
def test_a_fault_after_a_validation_takes_it_away_for_good(opened, gpu, at, remedy, stays) -> None:
    store = opened()
    keep_validations(store, [validated("GPU-1", 10.0)], "operator")
    fault = Finding(
        check="xid_fatal", severity=Severity.CRITICAL, message="", gpu=gpu, since=1.0, last=at, remedy=remedy
    )
    assert bool(validations(store, [fault])) == stays
    assert bool(validations(store)) == stays, "also when the fault is over"


@pytest.mark.parametrize(
    ("until", "now", "closed"),
    [(200.0, 150.0, "GPU-1"), (200.0, 201.0, None), (1e12, 100.0 + MAX_CLOSED_SECONDS + 1, None), (200.0, 50.0, None)],
)
def test_a_gpu_is_closed_no_longer_than_a_reset_takes(opened, until: float, now: float, closed: str | None) -> None:
    publish_repairer(opened(), RepairerStatus(at=100.0, mode="enforce", closed="GPU-1", closed_until=until))
    assert closed_gpu(repairer_status(opened()), now) == closed


def test_a_report_that_cannot_be_read_closes_nothing(opened) -> None:
    store = opened()
    assert closed_gpu(repairer_status(store), 1.0) is None
    store.remember("repairer", b"[]")
    assert repairer_status(store) is None
