"""Events read row by row: those written and those that wait, the newest of all, as objects and as JSON in pieces."""

import random
import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from gpuwatch.model.event import EVENT_KINDS, ActionEvent, EventQuery, Result
from gpuwatch.model.view import Events
from gpuwatch.model.xid import BusLossEvent, SxidEvent, XidEvent
from gpuwatch.storage.file import StoreFile
from gpuwatch.storage.rows import PIECE_BYTES, StoredEvent, row_of
from gpuwatch.storage.store import Store

AT = 1_790_000_000.0
MANY = 20_000


def events(seed: int) -> list[StoredEvent]:
    """Of several kinds, many of them at the same time."""
    pick, found = random.Random(seed), list[StoredEvent]()
    for number in range(60):
        at = AT + pick.randrange(8)
        made: tuple[StoredEvent, ...] = (
            XidEvent(at=at, xid=79, source="kernel", pci="0000:3b:00", boot_id="b", sequence=number),
            SxidEvent(at=at, sxid=20034, switch=1, severity="fatal", boot_id="b", sequence=1000 + number),
            BusLossEvent(at=at, pci=f"0000:{number:02x}:00"),
            ActionEvent(at=at, actor="tuner", action="cap", target="gpu/0", result=Result.DONE, number=number),
        )
        found.append(pick.choice(made))
    return found


def newest(found: Iterable[StoredEvent], query: EventQuery) -> list[StoredEvent]:
    """What is asked for, from a list."""
    rows = [(row.at, row.key, event) for event in found if (row := row_of(event)).kind in query.kinds]
    return [event for at, _, event in sorted(rows, key=lambda row: row[:2])[-query.limit :] if at >= query.since]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "query",
    [
        EventQuery(),
        EventQuery(limit=1),
        EventQuery(limit=17),
        EventQuery(limit=17, since=AT + 4),
        EventQuery(limit=5, kinds=("action", "xid")),
        EventQuery(kinds=("finding",)),
    ],
)
def test_the_newest_come_from_file_and_memory_as_from_a_list(tmp_path: Path, seed: int, query: EventQuery) -> None:
    """Some are in the file only, some wait only, some are in both."""
    found = events(seed)
    file = StoreFile(tmp_path)
    file.put([row_of(event) for event in found[:40]], [])
    file.close()
    store = Store.open("")
    for event in found[30:]:
        store.add(event)
    store._directory = tmp_path  # as if the disk could be read and not be written
    wanted = newest(found, query)
    asked = store.events(query)
    held = [event for kind in asked.__struct_fields__[1:] for event in getattr(asked, kind)]
    assert sorted(map(row_of, held)) == sorted(map(row_of, wanted))
    body = b"".join(store.events_json(query))
    assert msgspec.json.decode(body, type=Events) == asked
    assert body == msgspec.json.encode(asked)


def test_many_events_are_never_held_together(tmp_path: Path) -> None:
    """Twenty thousand take 6 MB as JSON, and no more than some pieces at any time."""
    file = StoreFile(tmp_path)
    message = "MMU Fault: ENGINE GRAPHICS GPC0 GPCCLIENT_T1_0 faulted @ 0x7f_00000000. Fault is of type FAULT_PDE"
    file.put(
        [
            row_of(XidEvent(at=AT + n, xid=31, source="kernel", message=message, boot_id="b", sequence=n))
            for n in range(MANY)
        ],
        [],
    )
    file.close()
    store = Store.open("")
    store._directory = tmp_path
    assert b"".join(store.events_json(EventQuery(limit=1, kinds=EVENT_KINDS)))  # what is made once is made now
    tracemalloc.start()
    try:
        sizes = [len(piece) for piece in store.events_json(EventQuery(limit=MANY, kinds=EVENT_KINDS))]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(sizes) > 50 * PIECE_BYTES
    assert max(sizes) < 2 * PIECE_BYTES
    assert most < sum(sizes) / 4
