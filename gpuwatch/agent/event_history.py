"""What happened, for somebody who looks without an agent: the kernel log's history and what an agent's store has."""

from collections.abc import Iterable
from pathlib import Path

from gpuwatch.health.xid.ledger import Event
from gpuwatch.model.event import EVERYTHING, EventQuery
from gpuwatch.model.view import Events
from gpuwatch.storage.rows import StoredEvent, newest_events, row_of
from gpuwatch.storage.store import stored_events


def event_history(seen: Iterable[Event], state_dir: str | Path, query: EventQuery = EVERYTHING) -> Events:
    """What was `seen` and what is stored, each once; the store knows more of an event that both have."""
    stored = stored_events(state_dir, query) or Events()
    known: tuple[Event, ...] = (*stored.xids, *stored.sxids, *stored.bus_losses)
    lines = {(event.boot_id, event.sequence) for event in known if event.sequence is not None}
    own = [row_of(event) for event in seen if (event.boot_id, event.sequence) not in lines]
    wanted = [row for row in own if row.kind in query.kinds and row.at >= query.since]
    kept: tuple[StoredEvent, ...] = (*known, *stored.findings, *stored.actions)
    return newest_events([*wanted, *map(row_of, kept)], query.limit)
