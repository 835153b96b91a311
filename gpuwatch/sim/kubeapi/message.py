"""What the HTTP front hands to the cluster and gets back: no sockets on this side of it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from gpuwatch.sim.kubeapi.watch import Watch

Object = dict[str, Any]
"""A Kubernetes object or Status as JSON has it. Stored ones are shared: never change one, make another."""

Fate = Literal["answered", "reset", "hang"]
"""What becomes of an answer: sent, lost with the connection, or never given."""

_NOTHING: Mapping[str, str] = MappingProxyType({})


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request."""

    method: str = "GET"
    path: str
    """Percent-decoded, without the query."""
    query: Mapping[str, str] = _NOTHING
    headers: Mapping[str, str] = _NOTHING
    """Names in lower case."""
    body: bytes = b""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP answer, and what the network does to it."""

    status: int = 200
    content_type: str = "application/json"
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    watch: "Watch | None" = None
    """Events to stream after the head; then `body` is empty."""
    delay: float = 0.0
    """Seconds the answer is held back after everything else was done."""
    fate: Fate = "answered"

    def json(self) -> Object:
        """The body as an object."""
        decoded: Object = msgspec.json.decode(self.body)
        return decoded


def reply(content: Any, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """Return `content` as JSON."""
    return Response(status=status, body=msgspec.json.encode(content), headers=headers)
