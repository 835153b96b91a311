"""HTTP responses of gpuwatch's own clients: the timeout bounds a whole response, whatever the server does.

A socket's timeout bounds each read of it, and starts again with each byte: a server that sends one now and then
blocks its client for ever. Here it bounds a response as a whole, from its first line to its last byte.
"""

import http.client
import io
import socket
import time
from typing import Any
from urllib.parse import SplitResult, urlsplit


class _TimedReads(io.RawIOBase):
    """What `raw` reads from `sock` until monotonic `until`; then TimeoutError."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, until: float) -> None:
        self._raw, self._sock, self._until = raw, sock, until

    def readable(self) -> bool:
        """Always true."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Wait for bytes, at most for the time that is left."""
        each, left = self._sock.gettimeout(), self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)
        try:
            return self._raw.readinto(buffer)
        finally:
            self._sock.settimeout(each)

    def close(self) -> None:
        """Release the socket."""
        self._raw.close()
        super().close()


class TimedResponse(http.client.HTTPResponse):
    """A `response_class` for connections: their socket's timeout bounds a whole response."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        seconds = sock.gettimeout()
        if seconds is not None:
            raw: Any = self.fp.detach()  # nothing was read yet
            self.fp = io.BufferedReader(_TimedReads(raw, sock, time.monotonic() + seconds))

    def _safe_read(self, amt: int) -> bytes:
        """Read `amt` bytes of a chunk, also for urllib3; http.client accepts a chunk size of -5, and -1 reads all."""
        if amt < 0:
            raise http.client.IncompleteRead(b"")
        read: Any = super()
        body: bytes = read._safe_read(amt)
        return body


def split_url(url: str) -> SplitResult | None:
    """The parts of an http(s) URL; None: gpuwatch's clients cannot use it."""
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, half a bracket, an endless name
        return None
    return parts if right and url.isascii() and url.isprintable() and " " not in url else None


def without_login(url: str) -> str:
    """The URL without user and password, for error messages; it need not be a valid one."""
    return url.rpartition("@")[2]
