"""What of a View is kept: beginnings and ends of findings, events once, and never a cursor ahead of them."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.agent.event_recorder import CURSOR_SECONDS, STORM_EVENTS, STORM_SECONDS, EventRecorder
from gpuwatch.agent.one_shot import event_history
from gpuwatch.collect.kernel_log.lines import parse_line
from gpuwatch.health.xid.ledger import XidLedger
from gpuwatch.model.event import Change
from gpuwatch.model.finding import Finding, Judgement, Severity
from gpuwatch.model.snapshot import Host, Snapshot
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.model.xid import KernelCursor, KernelEvent, XidEvent
from gpuwatch.storage.store import Store

AT = 1_790_000_000.0
LOST = Finding(check="gpu_lost", severity=Severity.CRITICAL, message="gone", gpu="GPU-1", since=AT)
HOT = Finding(check="hot", severity=Severity.WARNING, message="hot", gpu="GPU-2", since=AT)


class Wall:
    def __init__(self) -> None:
        self.now = AT

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def opened(tmp_path: Path, wall: Wall):
    stores: list[Store] = []

    def open_() -> tuple[Store, EventRecorder]:
        stores.append(Store.open(tmp_path / "state", wall))
        return stores[-1], EventRecorder(stores[-1], wall)

    yield open_
    for store in stores:
        store.close()


def view(at: float, *findings: Finding) -> View:
    snapshot = Snapshot(at=at, interval=2.0, host=Host(boot_id="b"))
    return View(snapshot=snapshot, agent=AgentStatus(version="0", started=AT), judgement=Judgement(findings=findings))


def cursor(position: int) -> KernelCursor:
    return KernelCursor(boot_id="b", mode="kmsg", position=position)


def recorded(store: Store) -> list[tuple[float, str, str, str | None]]:
    return [(each.at - AT, each.finding.check, each.change.value, each.boot_id) for each in store.events().findings]


def test_a_finding_is_reported_when_it_begins_and_when_it_ends(opened) -> None:
    store, recorder = opened()
    for at, findings in (
        (0, ()),
        (2, (LOST,)),
        (4, (LOST, HOT)),
        (6, (replace(LOST, message="still"), HOT)),
        (8, (HOT,)),
    ):
        recorder.record_view(view(AT + at, *findings), None, urgent=False)
    assert recorded(store) == [(2, "gpu_lost", "began", "b"), (4, "hot", "began", "b"), (8, "gpu_lost", "ended", "b")]
    assert store.events().findings[-1].change is Change.ENDED
    assert store.open_findings() == (HOT,)


def test_another_life_continues_with_what_was_open(opened) -> None:
    store, recorder = opened()
    recorder.record_view(view(AT, LOST, HOT), None, urgent=True)
    store.close()
    store, recorder = opened()
    recorder.record_view(view(AT + 60, LOST), None, urgent=False)
    assert recorded(store)[2:] == [(60, "hot", "ended", "b")]


def test_only_what_lasts_is_kept_again(opened) -> None:
    store, recorder = opened()
    recorder.record_view(view(AT, LOST), None, urgent=False)
    recorder.record_view(view(AT + 2, replace(LOST, evidence={"power": "71.3"})), None, urgent=False)
    assert store.open_findings() == (LOST,)
    more = replace(LOST, count=2, last=AT + 3, evidence={"power": "70.9"})
    recorder.record_view(view(AT + 4, more), None, urgent=False)
    assert store.open_findings() == (more,)


def test_the_cursor_moves_at_first_with_news_and_now_and_then(opened, wall: Wall) -> None:
    store, recorder = opened()
    kept = []
    for position, urgent, later in ((1, False, 2.0), (2, False, 2.0), (3, True, 2.0), (4, False, CURSOR_SECONDS + 1)):
        wall.now += later
        recorder.record_view(view(wall.now), cursor(position), urgent=urgent)
        found = store.cursor("b")
        kept.append(found.position if found else None)
    assert kept == [1, 1, 3, 4]
    recorder.record_view(view(wall.now), cursor(5), urgent=False)
    recorder.close()
    assert opened()[0].cursor("b") == cursor(5)


def test_history_that_an_earlier_life_reported_is_not_kept_again(opened) -> None:
    store, recorder = opened()
    old = XidEvent(at=AT, xid=31, source="kernel", boot_id="b", sequence=4, historical=True)
    new = replace(old, at=AT + 1, sequence=5, historical=False)
    recorder.record_events((old, new), resumed=True)
    assert store.events().xids == (new,)
    recorder.record_events((old,), resumed=False)
    assert store.events().xids == (old, new)


def test_a_line_that_an_earlier_life_added_to_an_event_of_nvml_is_not_kept_again(opened) -> None:
    """The agent was killed between the row and the cursor: it reads the line once more."""
    store, recorder = opened()
    complete = XidEvent(at=AT, xid=48, source="nvml", also="kernel", pci="0000:3b:00", boot_id="b", sequence=4)
    recorder.record_events((complete,), resumed=False)
    store.close()
    store, recorder = opened()
    line = XidEvent(at=AT + 3, xid=48, source="kernel", pci="0000:3b:00", boot_id="b", sequence=4)
    others = replace(line, sequence=5), replace(line, boot_id="c")
    assert recorder.record_events((line, *others), resumed=True) == list(others)
    assert store.events().xids == (complete, *others)


def test_a_line_that_comes_in_the_next_life_completes_the_event_of_nvml(opened) -> None:
    """The agent was killed between the driver's event and its line."""
    store, recorder = opened()
    bare = XidEvent(at=AT, xid=48, source="nvml", pci="0000:3b:00")
    recorder.record_events((bare,), resumed=False)
    store.close()
    store, recorder = opened()
    ledger = XidLedger()
    for event in recorder.without_line:
        ledger.expect(event)
    assert ledger.news() == ()
    text = "NVRM: Xid (PCI:0000:3b:00): 48, pid=7, name=python3, text"
    line = KernelEvent(at=AT + 0.2, line=parse_line(text), boot_id="b", sequence=4)
    assert ledger.observe(line) is None
    recorder.record_events(ledger.news(), resumed=True)
    (kept,) = store.events().xids
    assert (kept.at, kept.sources, kept.sequence, kept.pid) == (AT, ("nvml", "kernel"), 4, 7)
    assert [(row.count, row.last) for row in ledger.xids()] == [(0, AT)]


def test_without_an_agent_what_was_kept_and_what_is_seen_are_one(opened, tmp_path: Path) -> None:
    store, recorder = opened()
    complete = XidEvent(at=AT, xid=48, source="nvml", also="kernel", pci="0000:3b:00", boot_id="b", sequence=4)
    recorder.record_events((complete,), resumed=False)
    recorder.record_view(view(AT + 1, LOST), None, urgent=True)
    store.close()
    seen = XidEvent(at=AT, xid=48, source="kernel", pci="0000:3b:00", boot_id="b", sequence=4, historical=True)
    later = replace(seen, sequence=5, at=AT + 5)
    events = event_history((seen, later), tmp_path / "state")
    assert events.xids == (complete, later)
    assert [each.finding for each in events.findings] == [LOST]
    assert event_history((seen,), "").xids == (seen,)


def test_a_storm_of_one_code_pushes_nothing_else_out(opened) -> None:
    store, recorder = opened()
    storm = [
        XidEvent(at=AT + number / 1e4, xid=45, source="kernel", pci="p", sequence=number) for number in range(11_000)
    ]
    matters = XidEvent(at=AT, xid=79, source="kernel", pci="p", sequence=11_001)
    for event in (matters, *storm, storm[0], storm[-1]):
        recorder.record_events([event], resumed=False)
    later = replace(storm[0], at=AT + STORM_SECONDS + 1.0, sequence=11_002)
    recorder.record_events([later], resumed=False)
    kept = store.events().xids
    assert [event for event in kept if event.xid == 79] == [matters]
    assert len([event for event in kept if event.xid == 45]) == STORM_EVENTS + 1
    assert kept[-1] == later
