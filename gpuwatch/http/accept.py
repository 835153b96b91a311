"""Content negotiation (RFC 9110, 12.5) as Prometheus uses it: which format, and whether gzip is welcome."""

from typing import Literal

Format = Literal["text", "openmetrics"]

CONTENT_TYPES: dict[Format, str] = {
    "text": "text/plain; version=0.0.4; charset=utf-8",
    "openmetrics": "application/openmetrics-text; version=1.0.0; charset=utf-8",
}
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
    """Return (value, parameters, q) of each element of a list header; what is malformed weighs nothing."""
    elements = []
    for element in (header or "").split(","):
        value, *parts = (part.strip().lower() for part in element.split(";"))
        pairs = (part.partition("=") for part in parts)
        parameters = {name.strip(): text.strip(' "') for name, _, text in pairs}
        elements.append((value, parameters, _quality(parameters.pop("q", "1"))))
    return elements


def _quality(text: str) -> float:
    try:
        quality = float(text)
    except ValueError:
        return 0.0
    return quality if 0 <= quality <= 1 else 0.0
