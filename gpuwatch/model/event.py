"""Events that are stored: a finding that began or ended, and an action that gpuwatch took.

With the XIDs these are the rows of the store, of `gpuwatch events` and of `/api/v1/events`.
"""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import urlencode

from gpuwatch.model.clock import unix_time
from gpuwatch.model.finding import Finding
from gpuwatch.model.snapshot import Record


class Change(StrEnum):
    """Whether a finding began or ended."""

    BEGAN = "began"
    ENDED = "ended"


class FindingEvent(Record, frozen=True, kw_only=True):
    """A finding began or ended at unix time `at`, in the boot `boot_id`."""

    at: float
    change: Change
    finding: Finding
    boot_id: str | None = None


class Result(StrEnum):
    """How an action went. `intended` is written before the try: an action without a later row was cut off."""

    INTENDED = "intended"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"  # the situation had changed: no longer needed
    OBSERVED = "observed"  # would have been done, had the mode been `enforce`


class ActionEvent(Record, frozen=True, kw_only=True):
    """One decision and its result: the audit line (JSON) and a row of the store. `before` and `after`: the value that
    was changed, as short text; the rows of one action have the same `number`.
    """

    at: float
    actor: str  # remediator | tuner | guard | operator (a person, by the command line)
    action: str  # claim, slot, taint, condition, event, evict, ..., restore
    target: str  # node/NAME, pod/NAMESPACE/NAME, lease/NAME, gpu/UUID
    result: Result
    why: str = ""
    evidence: tuple[str, ...] = ()  # keys of the findings behind it
    before: str = ""
    after: str = ""
    detail: str = ""  # the error, when it failed
    number: int | None = None
    boot_id: str | None = None


EVENT_KINDS = ("xid", "sxid", "bus_loss", "finding", "action")
MAX_EVENTS = 100_000


class EventQuery(NamedTuple):
    """The newest `limit` events of `kinds`, from unix time `since` on."""

    since: float = 0.0
    limit: int = 1_000
    kinds: tuple[str, ...] = EVENT_KINDS

    @property
    def text(self) -> str:
        """The query string of a URL, without the question mark; empty where all values are the defaults."""
        values = {"since": repr(self.since), "limit": str(self.limit), "kind": ",".join(self.kinds)}
        unusual = [name for name, own, usual in zip(values, self, EventQuery(), strict=True) if own != usual]
        return urlencode({name: values[name] for name in unusual})


EVERYTHING = EventQuery()
"""The query of a request without options."""


def event_query(query: Mapping[str, tuple[str, ...]]) -> EventQuery:
    """Read `since=TIME&limit=N&kind=KIND,...`. Raises ValueError with a line for the client."""
    kinds = [kind for value in query.get("kind", ()) for kind in value.split(",") if kind]
    unknown = next((kind for kind in kinds if kind not in EVENT_KINDS), None)
    if unknown is not None:
        raise ValueError(f"unknown kind {unknown}; use one of {', '.join(EVENT_KINDS)}")
    limit = number(query, "limit", 1, MAX_EVENTS)
    if limit is not None and limit != int(limit):
        raise ValueError(f"limit is {limit:g}; use a whole number")
    return EventQuery(
        since=moment(query["since"][-1]) if "since" in query else EVERYTHING.since,
        limit=EVERYTHING.limit if limit is None else int(limit),
        kinds=tuple(dict.fromkeys(kinds)) or EVERYTHING.kinds,
    )


def number(query: Mapping[str, tuple[str, ...]], name: str, low: float, high: float) -> float | None:
    """The last value of a number; None without one. Raises ValueError with a line for the client."""
    if name not in query:
        return None
    text = query[name][-1]
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{name} is {text!r}; use a number from {low:g} to {high:g}") from None
    if not low <= value <= high:  # NaN too
        raise ValueError(f"{name} is {text}; use a number from {low:g} to {high:g}")
    return value


def moment(text: str) -> float:
    """Unix time of `1790000000.5` or `2026-09-21T14:13:20Z`; without a zone it is UTC. Raises ValueError."""
    at: float | None
    try:
        at = float(text)
    except ValueError:
        at = unix_time(text)
    if at is None or not math.isfinite(at):
        raise ValueError(f"since is {text!r}; use unix seconds or a time such as 2026-09-21T14:13:20Z")
    return at
