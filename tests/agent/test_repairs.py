"""A person's word about a repair goes through the store, from one process to another."""

from pathlib import Path

import pytest

from gpuwatch.agent.repairs import KEPT, mark_repaired, repaired_at
from gpuwatch.model.event import EventQuery
from gpuwatch.storage.store import Store


@pytest.fixture
def opened(tmp_path: Path):
    stores: list[Store] = []

    def open_(place: Path = tmp_path / "state") -> Store:
        stores.append(Store.open(place))
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


def test_the_agent_hears_what_another_process_said(opened) -> None:
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


def test_a_store_that_cannot_be_written_is_said(opened, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = opened(tmp_path / "file" / "state")
    assert not mark_repaired(store, {"GPU-1"}, 1.0, [])
    assert store.trouble
