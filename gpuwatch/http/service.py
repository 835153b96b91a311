"""What the connections of one listener share: its pages, limits, counts and access rules."""

import asyncio
import ipaddress
import socket
from collections import Counter
from collections.abc import Generator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.http.message import Handler, Response

if TYPE_CHECKING:
    from gpuwatch.http.web_guard import WebGuard

REJECTIONS = {
    400: "malformed",
    401: "unauthorized",
    403: "users_required",
    405: "method",
    408: "slow_request",
    413: "body",
    421: "host",
    431: "oversized_request",
    503: "busy",
}
"""Status of a refusal to the reason it is counted under."""


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one listener spends on its clients; seconds and bytes."""

    connections: int = 500
    """A plain one costs 5 KiB once its first byte has arrived, and 64 KiB at most for what it sends ahead."""
    tls_connections: int = 64
    """Instead, where TLS is on: 0.3 MiB each, most of it asyncio's buffer."""
    scrapes: int = 40
    """Responses of one page being sent at once; a further one takes the place of the slowest."""
    waiting: int = 32
    """Requests whose page is not ready yet, such as long polls, at once; more get 503."""
    half_closed_seconds: float = 5.0
    """How long a page may still take when its client has ended its sending side, or has left: TCP does not show
    which."""
    streams: int = 4
    """Responses made while they are sent, such as thousands of events, at once; more get 503."""
    stream_seconds: float = 60.0
    """For making and sending one such response as a whole."""
    sending_bytes: int = 64 << 20
    """Large bodies held for clients that read slowly, each counted once; at this sum a further one takes the place of
    the slowest."""
    head_bytes: int = 8 * 1024
    head_seconds: float = 5.0
    """From connecting, or from a later request's first byte, to the end of its head."""
    handshake_seconds: float = 5.0
    idle_seconds: float = 120.0
    """Between two requests; longer than any usual scrape interval, so that TLS is set up once."""
    write_seconds: float = 10.0
    """For sending a whole response."""


class RequestCounts:
    """Counts kept by the event loop's thread alone; other threads take copies."""

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        reasons = (*REJECTIONS.values(), "connections", "evicted", "slow_reader", "tls_handshake")
        self.rejected: Counter[str] = Counter(dict.fromkeys(reasons, 0))
        self.handler_errors = 0


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """What the connections of one listener share."""

    routes: Mapping[str, Handler]
    limits: ServerLimits
    tally: RequestCounts
    guard: "WebGuard | None" = None
    without_users: Mapping[str, Response] = {}
    """Path to the response in place of the page, as long as clients need not identify themselves."""
    hosts: tuple[str, ...] = ()
    """Shell patterns of further names of this machine that clients on it may use."""
    waiting: Counter[str] = msgspec.field(default_factory=Counter)
    """Requests that wait for their page, by path: they cost little, and do not block clients that want it at once."""
    sending: dict[asyncio.StreamWriter, tuple[str, bytes | Generator[bytes]]] = {}
    """Path and body of what is being sent; the client that has taken nothing for longest comes first."""


def is_own_host(header: str, patterns: tuple[str, ...]) -> bool:
    """Whether a Host header (`NAME[:PORT]`) names this machine, for a client that reached it over loopback.

    A foreign web page can make its own name resolve to 127.0.0.1 (DNS rebinding); its visitor's browser then lets it
    read what is served there. It can do so neither with an IP address nor with this machine's name.
    """
    name = header.strip().lower()
    bare = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    try:
        ipaddress.ip_address(bare)
    except ValueError:
        own = ("", "localhost", socket.gethostname().lower())
        return bare in own or bare.endswith(".localhost") or any(fnmatchcase(bare, each.lower()) for each in patterns)
    return True
