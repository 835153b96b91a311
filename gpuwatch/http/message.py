"""What a route receives and returns: the whole interface between the HTTP server and the pages it serves."""

from collections.abc import Callable, Coroutine, Generator, Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from gpuwatch.model.text import visible

TEXT = "text/plain; charset=utf-8"
RETRY_AFTER = (("Retry-After", "1"),)

_NOTHING: Mapping[str, tuple[str, ...]] = MappingProxyType({})
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request as a route receives it; it has no body, because the server accepts none."""

    method: str = "GET"
    """GET or HEAD; a route may treat both alike, the server drops the body of a HEAD."""
    path: str
    """Percent-decoded, without the query."""
    query: Mapping[str, tuple[str, ...]] = _NOTHING
    """Every value of every key, in the order sent."""
    headers: Mapping[str, str] = _NO_HEADERS
    """Names in lower case; a repeated header is joined with `, ` (RFC 9110, 5.3)."""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """One answer; the server adds Content-Length or chunks, Date and the configured headers."""

    status: int = 200
    content_type: str = TEXT
    body: bytes | Generator[bytes] = b""
    """Or a generator of its pieces, each made when it is to be sent: they are not in memory together."""
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Response | Coroutine[Any, Any, Response]]
"""A route runs on the event loop: it returns bytes that are ready, a coroutine that waits for them, or pieces that
another thread makes."""


def text(status: int, line: str, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """Return one line of plain text as a response; it may quote what the client sent."""
    return Response(status=status, body=f"{visible(line)}\n".encode(), headers=headers)


Format = Literal["text", "openmetrics"]

CONTENT_TYPES: dict[Format, str] = {
    "text": "text/plain; version=0.0.4; charset=utf-8",
    "openmetrics": "application/openmetrics-text; version=1.0.0; charset=utf-8",
}
_WEIGHED_CHARACTERS = 1024
"""Prometheus sends 400; a head full of commas would otherwise cost as much as 100 requests."""
_TEXT_RANGES = ("text/plain", "text/*", "*/*")
_TEXT_VERSIONS = ("", "0.0.4")
_OPENMETRICS_VERSIONS = ("", "0.0.1", "1.0.0")


def accepts_gzip(accept_encoding: str | None) -> bool:
    """Return whether an Accept-Encoding header admits gzip; an absent header does not ask for it."""
    weights = {coding: quality for coding, _, quality in _weighted(accept_encoding)}
    return weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0))) > 0


def negotiate_format(accept: str | None) -> Format:
    """Return the exposition format an Accept header prefers; `text` when it names neither, or on a tie."""
    best: dict[Format, float] = {"text": 0.0, "openmetrics": 0.0}
    for media_type, parameters, quality in _weighted(accept):
        version = parameters.get("version", "")
        if media_type == "application/openmetrics-text" and version in _OPENMETRICS_VERSIONS:
            best["openmetrics"] = max(best["openmetrics"], quality)
        elif media_type in _TEXT_RANGES and version in _TEXT_VERSIONS:
            best["text"] = max(best["text"], quality)
    return "openmetrics" if best["openmetrics"] > best["text"] else "text"


def _weighted(header: str | None) -> list[tuple[str, dict[str, str], float]]:
    """Return (value, parameters, q) of each element of a list header; a malformed q counts as 0."""
    elements = []
    for element in (header or "")[:_WEIGHED_CHARACTERS].split(","):
        value, *parts = (part.strip().lower() for part in element.split(";"))
        pairs = (part.partition("=") for part in parts)
        parameters = {name.strip(): text.strip(' "') for name, _, text in pairs}
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            quality = 0.0
        elements.append((value, parameters, quality if 0 <= quality <= 1 else 0.0))
    return elements
