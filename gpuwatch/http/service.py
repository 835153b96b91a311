"""What the connections of one listener share: its pages, its bounds, its counts."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.http.message import Handler

if TYPE_CHECKING:
    from gpuwatch.http.web_guard import WebGuard

REJECTIONS = {
    400: "malformed",
    401: "unauthorized",
    405: "method",
    408: "slow_request",
    413: "body",
    431: "oversized_request",
    503: "busy",
}
"""Status of a refusal to the reason it is counted under."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What one listener spends on its clients; seconds and bytes."""

    connections: int = 500
    """Plain ones cost 5 KiB each once they speak."""
    tls_connections: int = 64
    """Instead, where TLS is on: 0.3 MiB each, most of it asyncio's buffer."""
    scrapes: int = 40
    """Responses of one page being sent at once; more get 503."""
    waiting: int = 32
    """Requests whose page is not ready yet, such as long polls, at once; more get 503."""
    head_bytes: int = 8 * 1024
    head_seconds: float = 5.0
    """From connecting, or from a later request's first byte, to the end of its head."""
    handshake_seconds: float = 5.0
    idle_seconds: float = 120.0
    """Between two requests; longer than any usual scrape interval, so that TLS is set up once."""
    write_seconds: float = 10.0
    """For a whole response to be taken by the client's side."""


class Tally:
    """Counts kept by the event loop's thread alone; other threads take copies."""

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        reasons = (*REJECTIONS.values(), "connections", "evicted", "slow_reader", "tls_handshake")
        self.rejected: Counter[str] = Counter(dict.fromkeys(reasons, 0))
        self.handler_errors = 0


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """What the connections of one listener share."""

    routes: Mapping[str, Handler]
    limits: Limits
    tally: Tally
    guard: "WebGuard | None" = None
    busy: Counter[str] = msgspec.field(default_factory=Counter)
    """Responses being made or sent, by path: slow readers of one page do not shut out another."""
    waiting: Counter[str] = msgspec.field(default_factory=Counter)
    """Requests that wait for their page, by path: they cost little, and do not shut out who wants it at once."""
