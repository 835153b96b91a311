"""The store in one process: what comes back after a restart, what is dropped, and what a bad file or disk changes."""

import contextlib
import logging
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.model.event import ActionEvent, Change, EventQuery, FindingEvent, Result
from gpuwatch.model.finding import Finding, Severity
from gpuwatch.model.xid import BusLossEvent, KernelCursor, SxidEvent, XidEvent
from gpuwatch.storage.file import APPLICATION, BUSY_SECONDS, FAILURES, KEPT_ASIDE, NAME, SCHEMA, StoreFile
from gpuwatch.storage.store import Retention, Store, stored_events
from tests.waiting import until

GPU = "GPU-00000000-1111-2222-3333-444455556666"
BOOT = "boot-1"
AT = 1_790_000_000.0
QUICK = (0.01, 0.02)


class Wall:
    """A clock that a test sets."""

    def __init__(self, now: float = AT) -> None:
        self.now = now

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


def xid(number: int = 1, **changes) -> XidEvent:
    base = XidEvent(at=AT + number, xid=79, source="kernel", pci="0000:3b:00", boot_id=BOOT, sequence=number)
    return replace(base, **changes)


def finding(check: str = "gpu_lost", **changes) -> Finding:
    return replace(Finding(check=check, severity=Severity.CRITICAL, message="gone", gpu=GPU, since=AT), **changes)


def action(result: Result = Result.INTENDED, **changes) -> ActionEvent:
    base = ActionEvent(at=AT, actor="remediator", action="taint", target="node/n", result=result)
    return replace(base, **changes)


@pytest.fixture
def opened(tmp_path: Path):
    """`opened(directory)` opens a store that is closed when the test ends."""
    stores: list[Store] = []

    def open_(directory: Path = tmp_path / "state", **options) -> Store:
        stores.append(Store.open(directory, options.pop("clock", Wall()), retry=QUICK, **options))
        return stores[-1]

    yield open_
    for store in stores:
        store.close()


def test_every_kind_comes_back_in_order_of_time(opened, tmp_path) -> None:
    first = opened()
    began = FindingEvent(at=AT + 4, change=Change.BEGAN, finding=finding(), boot_id=BOOT)
    sxid = SxidEvent(at=AT + 2, sxid=20034, switch=1, severity="fatal")
    loss = BusLossEvent(at=AT + 3, pci="0000:3b:00")
    for event in (xid(5), began, loss, sxid, xid(1)):
        first.add(event)
    number = first.record(action())
    first.close()
    events = opened().events()
    assert events.xids == (xid(1), xid(5))
    assert (events.sxids, events.bus_losses, events.findings) == ((sxid,), (loss,), (began,))
    assert events.actions == (action(number=number),)
    assert stored_events(tmp_path / "state") == events


def test_the_newest_of_the_kinds_wanted(opened) -> None:
    store = opened()
    for number in range(10):
        store.add(xid(number))
        if number == 4:
            assert store.flush()
    store.add(BusLossEvent(at=AT + 20, pci="0000:3b:00"))
    assert store.events(EventQuery(limit=3, kinds=("xid",))).xids == (xid(7), xid(8), xid(9))
    assert store.events(EventQuery(since=AT + 8)).xids == (xid(8), xid(9))
    assert len(store.events(EventQuery(limit=1)).bus_losses) == 1
    assert store.events(EventQuery(limit=1)).xids == ()


def test_a_line_read_again_is_the_same_event(opened) -> None:
    store = opened()
    for _ in range(2):
        store.add(xid(7))
        assert store.flush()
    store.add(replace(xid(7), message="told again"))
    assert [event.message for event in store.events().xids] == ["told again"]
    store.add(replace(xid(7), boot_id="boot-2"))
    assert len(store.events().xids) == 2


def test_what_a_second_source_completes_is_one_event(opened) -> None:
    store = opened()
    told = XidEvent(at=AT, xid=48, source="nvml", pci="0000:3b:00", uuid=GPU)
    complete = replace(told, also="kernel", message="DBE", sequence=9, boot_id=BOOT)
    store.add(told)
    assert store.flush()
    store.add(complete)
    assert store.flush()
    assert store.events().xids == (complete,)


@pytest.mark.parametrize("flushed", [(), (0,), (1,), (2,), (0, 1), (0, 1, 2)])
def test_a_line_read_again_is_the_event_that_nvml_reported_first(opened, flushed) -> None:
    store = opened()
    reported = XidEvent(at=AT, xid=48, source="nvml", pci="0000:3b:00", uuid=GPU, boot_id=BOOT)
    complete = replace(reported, also="kernel", message="DBE", sequence=9)
    again = xid(9, xid=48, message="DBE")
    for number, event in enumerate((reported, complete, again)):
        store.add(event)
        if number in flushed:
            assert store.flush()
        (found,) = store.events().xids
        assert found == event


def test_documents_are_replaced_and_a_cursor_belongs_to_its_boot(opened) -> None:
    first = opened()
    cursor = KernelCursor(boot_id=BOOT, mode="kmsg", position=42)
    for text in (b"old", b'{"acknowledged": []}'):
        first.remember("remediator", text)
        assert first.memory("remediator") == text
    first.save_open([finding()])
    first.save_cursor(cursor)
    first.close()
    second = opened()
    assert second.memory("remediator") == b'{"acknowledged": []}'
    assert second.memory("nobody") is None
    assert second.open_findings() == (finding(),)
    assert (second.cursor(BOOT), second.cursor("boot-2")) == (cursor, None)


def test_an_action_keeps_its_number_and_the_next_gets_a_larger_one(opened) -> None:
    first = opened()
    number = first.record(action())
    assert first.record(action(Result.DONE, number=number)) == number
    assert first.record(action()) > number
    first.close()
    results = [each.result for each in opened().events().actions if each.number == number]
    assert sorted(results) == [Result.DONE, Result.INTENDED]


def test_a_process_that_recorded_fast_leaves_no_number_to_the_next_one(opened) -> None:
    """A thousand actions in a second and more: an agent that is killed and started again goes on with other numbers."""
    wall, given = Wall(), list[int]()
    for _ in range(2):
        store = opened(clock=wall)
        for _ in range(20):
            given.append(store.record(action(Result.DONE)))
            wall.now += 1e-4
        store.close()
    assert len(set(given)) == 40


def test_an_intention_is_on_the_disk_when_the_call_returns(opened, tmp_path) -> None:
    number = opened().record(action())
    with closing(sqlite3.connect(tmp_path / "state" / NAME)) as other:
        keys = [key for (key,) in other.execute("SELECT key FROM events")]
    assert any(f"/{number}/intended/" in key for key in keys)


def test_old_events_and_too_many_of_a_kind_go(opened) -> None:
    wall = Wall()
    first = opened(clock=wall)
    for number in range(50):
        first.add(xid(number))
    first.add(action := ActionEvent(at=AT + 1, actor="a", action="x", target="t", result=Result.DONE, number=1))
    first.close()
    second = opened(clock=wall, retention=Retention(rows=10))
    assert [event.sequence for event in second.events().xids] == list(range(40, 50))
    assert second.events().actions == (action,)
    second.close()
    wall.now = AT + 45 + 3600
    assert [e.sequence for e in opened(clock=wall, retention=Retention(seconds=3600)).events().xids] == list(
        range(45, 50)
    )


def test_a_file_that_is_too_large_becomes_smaller(opened, tmp_path) -> None:
    first = opened()
    for number in range(2000):
        first.add(xid(number, message="x" * 1000))
    first.close()
    path = tmp_path / "state" / NAME
    before = path.stat().st_size
    bound = before // 4
    second = opened(retention=Retention(size=bound))
    second.close()
    assert path.stat().st_size <= bound + 65536 < before
    assert opened().events().xids[-1].sequence == 1999


def test_two_stores_share_a_file(opened) -> None:
    agent, remediator = opened(), opened()
    agent.add(xid(1))
    assert agent.flush()
    number = remediator.record(action())
    remediator.remember("remediator", b"1")
    assert remediator.flush()
    assert [each.number for each in agent.events().actions] == [number]
    assert remediator.events().xids == (xid(1),)
    assert agent.memory("remediator") == b"1"
    assert (agent.trouble, remediator.trouble) == (None, None)


def another_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")


def torn(path: Path) -> None:
    """A store whose middle was overwritten."""
    with closing(Store.open(path.parent, Wall())) as store:
        for number in range(500):
            store.add(xid(number))
    data = bytearray(path.read_bytes())
    data[4096 : len(data) // 2] = b"\xa5" * (len(data) // 2 - 4096)
    path.write_bytes(data)


def stripped(path: Path) -> None:
    with closing(Store.open(path.parent, Wall())):
        pass
    with closing(sqlite3.connect(path)) as other:
        other.execute("DROP TABLE documents")


@pytest.mark.parametrize("change", ["at = 'zzz'", "body = 5", "body = 'text'", "key = x'00'"])
def test_a_row_of_other_types_costs_no_other_row(opened, tmp_path, change) -> None:
    directory = tmp_path / "state"
    store = opened(directory)
    for number in (1, 2, 3):
        store.add(xid(number))
    store.close()
    with closing(sqlite3.connect(directory / NAME)) as other, other:
        other.execute(f"UPDATE events SET {change} WHERE at = {AT + 2}")
    assert stored_events(directory, EventQuery()).xids == (xid(1), xid(3))


@pytest.mark.parametrize("column", ["key", "gpu", "boot_id"])
def test_a_row_with_text_that_is_no_utf_8_costs_no_later_row(opened, tmp_path, column) -> None:
    store = opened()
    for number in (1, 2, 3):
        store.add(xid(number))
    store.close()
    with closing(sqlite3.connect(tmp_path / "state" / NAME)) as other, other:
        other.execute(f"UPDATE events SET {column} = CAST(x'ff' AS TEXT) WHERE at = {AT + 2}")
    assert stored_events(tmp_path / "state").xids == (xid(1), xid(2), xid(3))


@pytest.mark.parametrize("body", ["'text'", "5", "1e12", "zeroblob(20000000)"])
def test_a_document_of_another_type_is_none(opened, tmp_path, body) -> None:
    """Such as one that a person has changed with sqlite3: each start of the agent ended with a trace."""
    store = opened()
    store.remember("remediator", b"1")
    store.save_open([finding()])
    store.close()
    with closing(sqlite3.connect(tmp_path / "state" / NAME)) as other, other:
        other.execute(f"UPDATE documents SET body = {body}")
    store = opened()
    assert (store.memory("remediator"), store.open_findings()) == (None, ())


@pytest.mark.parametrize(
    "spoil", [lambda path: path.write_bytes(b"not a database at all" * 100), another_database, torn, stripped]
)
def test_an_unusable_file_is_set_aside_and_reported(opened, tmp_path, caplog, spoil) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    spoil(directory / NAME)
    before = (directory / NAME).read_bytes()
    with caplog.at_level(logging.ERROR):
        store = opened(directory)
    (aside,) = (path for path in directory.glob(f"{NAME}.corrupt-*") if path.name.endswith("Z"))
    assert aside.read_bytes()[4096:] == before[4096:]
    assert str(aside) in caplog.text
    assert store.stats().set_aside == 1
    store.add(xid(3))
    assert store.flush()
    assert store.events().xids == (xid(3),)


def test_a_file_that_breaks_while_it_is_open_costs_only_what_it_had(opened, tmp_path) -> None:
    store = opened()
    store.remember("remediator", b"kept")
    store.add(xid(1))
    assert store.flush()
    for suffix in ("-wal", "-shm"):
        (tmp_path / "state" / f"{NAME}{suffix}").unlink()
    (tmp_path / "rubbish").write_bytes(b"rubbish" * 1000)
    (tmp_path / "rubbish").rename(tmp_path / "state" / NAME)

    def is_kept() -> bool:
        store.add(
            xid(2)
        )  # again: what is written before the loss is found goes to a file that nobody can open any more
        return store.flush() and store.events().xids == (xid(2),)

    until(is_kept, "a new file has it")
    assert store.memory("remediator") == b"kept"
    assert store.stats().set_aside == 1


def test_a_file_that_is_emptied_while_it_is_open_loses_nothing_that_comes_after(opened, tmp_path) -> None:
    """As a person does who needs room on a disk. SQLite removes the log of an empty file, and writes on into it."""
    store, directory = opened(), tmp_path / "state"
    store.record(action(target="before"))
    (directory / NAME).write_bytes(b"")
    stored_events(directory)  # whoever opens an empty file makes SQLite remove its log
    for target in ("first", "second"):
        store.record(action(target=target))
    found = stored_events(directory)
    assert found is not None
    assert [each.target for each in found.actions][-2:] == ["first", "second"]


@pytest.mark.parametrize("spoil", [Path.unlink, lambda log: os.truncate(log, 0)])
def test_a_log_that_is_emptied_or_removed_loses_nothing_that_comes_after(opened, tmp_path, spoil) -> None:
    """Until the processes ended, all that they wrote went to a log that no other process could read, or use."""
    store, other, directory = opened(), opened(), tmp_path / "state"
    for each, name in ((store, "mine"), (other, "other")):
        each.remember(name, b"kept")
        assert each.flush()
    spoil(directory / f"{NAME}-wal")
    for target in ("first", "second"):
        for each in (store, other):
            each.add(action(target=target, number=store.record(action(target=target))))
            until(each.flush)
    assert (other.memory("mine"), store.memory("other")) == (b"kept", b"kept")
    found = stored_events(directory)
    assert found is not None
    assert {"first", "second"} <= {each.target for each in found.actions}
    for each in (store, other):
        each.close()
    assert opened().memory("mine") == b"kept"


def test_a_file_that_is_emptied_is_not_waited_for_while_another_process_has_it_open(opened, tmp_path) -> None:
    """Its connection holds a lock for as long as it has nothing to write."""
    store, other, directory = opened(), opened(), tmp_path / "state"
    for each in (store, other):
        each.record(action(target="before"))
        assert each.flush()
    (directory / NAME).write_bytes(b"")
    began = time.monotonic()
    store.record(action(target="mine"))
    assert store.flush()
    assert time.monotonic() - began < BUSY_SECONDS
    other.add(xid(7))
    assert other.flush()
    found = stored_events(directory)
    assert found is not None
    assert "mine" in {each.target for each in found.actions}
    assert [each.sequence for each in found.xids] == [7]


def test_what_is_no_plain_file_is_not_removed(tmp_path) -> None:
    """Its size is 0, too."""
    os.mkfifo(tmp_path / NAME)
    with contextlib.suppress(*FAILURES):
        StoreFile.open(tmp_path, AT)
    assert any(path.is_fifo() for path in tmp_path.iterdir())


@pytest.mark.parametrize("suffix", ["", "-journal", "-wal", "-shm", ".lock"])
@pytest.mark.parametrize("plant", [os.mkfifo, lambda path: path.symlink_to(path.with_name("elsewhere"))])
def test_no_pipe_or_link_is_opened_by_the_name_of_one_of_its_files(opened, tmp_path, caplog, suffix, plant) -> None:
    """SQLite waits for the writer of a pipe: the agent did not start. And it makes the file that a link names."""
    opened().close()
    path = tmp_path / "state" / f"{NAME}{suffix}"
    path.unlink(missing_ok=True)
    plant(path)
    with contextlib.ExitStack() as writer:
        if path.is_fifo():  # without one, this test would wait, too
            writer.callback(os.close, os.open(path, os.O_RDWR))
        store = opened()
        store.remember("remediator", b"kept")
        assert not store.flush()
        assert store.trouble is not None
        assert f"{path.name} is no plain file" in store.trouble
        assert store.trouble.endswith("remove it, or name another place with --state-dir")
        assert store.memory("remediator") == b"kept"
        assert stored_events(tmp_path / "state") is None
    assert not (tmp_path / "state" / "elsewhere").exists()
    path.unlink()
    until(lambda: store.trouble is None)


def test_only_some_unusable_files_are_kept(opened, tmp_path) -> None:
    directory = tmp_path / "state"
    for _ in range(KEPT_ASIDE + 2):
        directory.mkdir(exist_ok=True)
        (directory / NAME).write_bytes(b"rubbish" * 1000)
        opened(directory).close()
    assert len(list(directory.glob(f"{NAME}.corrupt-*"))) == KEPT_ASIDE


def test_a_newer_schema_is_left_as_it_is(opened, tmp_path, caplog) -> None:
    opened().close()
    path = tmp_path / "state" / NAME
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    before = path.read_bytes()
    with caplog.at_level(logging.ERROR):
        store = opened()
    store.add(xid(1))
    assert not store.flush()
    assert store.trouble is not None
    assert f"schema {SCHEMA + 1}" in store.trouble
    assert "--state-dir" in caplog.text
    assert store.events().xids == (xid(1),)
    store.close()
    assert path.read_bytes() == before
    assert stored_events(path.parent) is None


def test_a_place_that_cannot_be_written_is_reported_once_and_used_once_it_can_be(opened, tmp_path, caplog) -> None:
    (tmp_path / "file").write_text("in the way")
    place = tmp_path / "file" / "state"
    with caplog.at_level(logging.INFO):
        store = opened(place)
        store.add(xid(1))
        store.remember("remediator", b"1")
        assert not store.flush()
        assert store.stats().up is False
        assert (store.events().xids, store.memory("remediator")) == ((xid(1),), b"1")
        assert caplog.text.count("cannot be written") == 1
        (tmp_path / "file").unlink()
        until(lambda: store.trouble is None)
    assert "is written again" in caplog.text
    store.close()
    assert opened(place).events().xids == (xid(1),)
    assert opened(place).memory("remediator") == b"1"


def test_a_folder_that_cannot_be_looked_into_is_no_crash(opened, tmp_path) -> None:
    """As one of root with mode 0700 is for a gpuwatch of another user: the agent did not start."""
    store = opened(tmp_path / ("x" * 300))
    store.remember("remediator", b"1")
    store.add(xid(1))
    assert not store.flush()
    assert "too long" in (store.trouble or "")
    assert (store.memory("remediator"), store.open_findings(), store.events().xids) == (b"1", (), (xid(1),))


def test_in_memory_the_oldest_of_the_same_kind_goes_and_is_counted(opened, tmp_path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = opened(tmp_path / "file" / "state", retention=Retention(waiting=3))
    store.record(action(Result.DONE))
    for number in range(5):
        store.add(xid(number))
    assert [event.sequence for event in store.events().xids] == [2, 3, 4]
    assert len(store.events().actions) == 1
    assert store.stats().lost == 2


def test_without_a_directory_nothing_is_meant_to_be_kept(tmp_path) -> None:
    store = Store.open("", Wall(), retention=Retention(waiting=2))
    for number in range(3):
        store.add(xid(number))
    store.remember("remediator", b"1")
    assert (len(store.events().xids), store.memory("remediator")) == (2, b"1")
    assert (store.trouble, store.stats().up, store.stats().lost) == (None, None, 0)
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_reading_a_foreign_store_changes_nothing(opened, tmp_path) -> None:
    assert stored_events(tmp_path) is None
    store = opened()
    store.add(xid(1))
    store.close()
    names = sorted(path.name for path in (tmp_path / "state").iterdir())
    found = stored_events(tmp_path / "state")
    assert found is not None
    assert found.xids == (xid(1),)
    assert sorted(path.name for path in (tmp_path / "state").iterdir()) == names


def test_the_file_says_whose_it_is(opened, tmp_path) -> None:
    opened().close()
    with closing(sqlite3.connect(tmp_path / "state" / NAME)) as other:
        assert other.execute("PRAGMA application_id").fetchone() == (APPLICATION,)


def test_it_is_a_source_like_others(opened, tmp_path: Path) -> None:
    assert opened().status().up is True
    assert Store.open("").status().up is None
    (tmp_path / "file").touch()
    status = opened(tmp_path / "file" / "state").status()
    assert (status.name, status.up) == ("store", False)
    assert "cannot be written" in status.reason
