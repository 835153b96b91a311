"""What a route sees and gives: the whole interface between the HTTP server and the pages it serves."""

from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

TEXT = "text/plain; charset=utf-8"
RETRY_AFTER = (("Retry-After", "1"),)

_NOTHING: Mapping[str, tuple[str, ...]] = MappingProxyType({})
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request as a route sees it; it has no body, because the server takes none."""

    method: str = "GET"
    """GET or HEAD; a route may treat both alike, the server drops the body of a HEAD."""
    path: str
    """Percent-decoded, without the query."""
    query: Mapping[str, tuple[str, ...]] = _NOTHING
    """Every value of every key, in the order sent."""
    headers: Mapping[str, str] = _NO_HEADERS
    """Names in lower case; a repeated header is joined with `, ` (RFC 9110, 5.3)."""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """One answer; the server adds Content-Length, Date and the configured headers."""

    status: int = 200
    content_type: str = TEXT
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Response | Coroutine[Any, Any, Response]]
"""A route runs on the event loop: it returns bytes that are ready, or a coroutine that waits for them."""


def text(status: int, line: str, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """Return one line of plain text as a response."""
    return Response(status=status, body=f"{line}\n".encode(), headers=headers)
