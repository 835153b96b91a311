"""One connection to a Prometheus, kept open: paced, patient with what passes, bounded in what it takes.

A query may cost the server much, so requests follow each other and never overlap. What is asked again is only what
may go better the second time: 429, 502, 503, 504, a connection that broke, an answer that did not come.
"""

import contextlib
import http.client
import logging
import re
import socket
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.rightsizing.prometheus import connection as way
from gpuwatch.rightsizing.prometheus.config import HttpConfig

log = logging.getLogger(__name__)

TIMEOUT = 150.0
"""Seconds for one answer; Prometheus itself gives up after its `query.timeout`, two minutes unless set."""

ATTEMPTS, ATTEMPTS_AT_FIRST = 6, 2
"""How often one question is asked; of a server that has never answered, whose address may be wrong, the latter."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
MAX_BODY = 128 << 20
"""Bytes of an answer, unpacked. A larger one is refused, and the question parted."""

_TIMED_OUT = re.compile(rb'"errorType"\s*:\s*"timeout"')

PASSING = frozenset({429, 502, 503, 504})


class AnswerTooLarge(Exception):
    """More than MAX_BODY."""


class Answer(NamedTuple):
    """What came back."""

    status: int
    reason: str
    body: bytes
    location: str = ""


class Traffic(msgspec.Struct, kw_only=True):
    """What was asked so far. `received`: bytes of bodies as they came over the wire."""

    requests: int = 0
    repeated: int = 0
    received: int = 0
    unpacked: int = 0
    waited: float = 0.0  # seconds of pacing and back-off


class PrometheusHttp:
    """Asks below one base URL, which may have a path (Thanos, Mimir, a proxy) and user and password."""

    def __init__(
        self,
        url: str,
        config: HttpConfig | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        rate: float = 10.0,
        timeout: float = TIMEOUT,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parts = way.address(url)
        self._config = config or HttpConfig()
        self._own = dict(headers or {})
        self._gap = 1 / rate if rate > 0 else 0.0
        self._timeout, self._sleep, self._monotonic = timeout, sleep, monotonic
        self._connection: http.client.HTTPConnection | None = None
        self._next = 0.0
        self._has_answered = False
        self.traffic = Traffic()
        self.name = f"{self._parts.scheme}://{self._parts.netloc.rpartition('@')[2]}{self._parts.path}".rstrip("/")
        if self._parts.username and self._parts.scheme == "http":
            log.warning("the password in the URL goes over the network unencrypted; use https and --http-config")

    @property
    def tenant(self) -> tuple[tuple[str, str], ...]:
        """The headers that may decide what is shown (X-Scope-OrgID); credentials are not among them."""
        shown = {name: str(value.values) for name, value in self._config.http_headers.items()} | self._own
        return tuple(sorted((name, value) for name, value in shown.items() if name.lower() != "authorization"))

    def ask(self, path: str, body: bytes | None) -> Answer:
        """The answer to a form, or to a plain GET without one, whatever its status is once patience has an end.

        Raises:
            GpuwatchError: nobody answers.
            AnswerTooLarge: what came is not to be held in memory.
        """
        for attempt in range(1, ATTEMPTS + 1):
            self._pace()
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (attempt - 1))
            try:
                answer, wanted = self._once(path, body)
            except (OSError, http.client.HTTPException, zlib.error) as error:
                self.close()
                most = ATTEMPTS if self._has_answered else ATTEMPTS_AT_FIRST
                if attempt >= most or _is_final(error):
                    raise self._unreachable(error) from error
                log.info("%s: %s; again in %.0f s", self.name, error, pause)
            else:
                self._has_answered = True
                if answer.status not in PASSING or attempt == ATTEMPTS or _is_final_answer(answer):
                    return answer
                pause = min(LONGEST_PAUSE, wanted) if wanted is not None else pause
                log.info("%s: %d %s; again in %.0f s", self.name, answer.status, answer.reason, pause)
            self.traffic.repeated += 1
            self._wait(pause)
        raise AssertionError("unreachable")

    def close(self) -> None:
        """End the connection; the next question opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _pace(self) -> None:
        now = self._monotonic()
        if now < self._next:
            self._wait(self._next - now)
        self._next = max(now, self._next) + self._gap

    def _wait(self, seconds: float) -> None:
        self.traffic.waited += seconds
        self._sleep(seconds)

    def _once(self, path: str, body: bytes | None) -> tuple[Answer, float | None]:
        """The answer, and for how many seconds it wants to be left alone."""
        if self._connection is None:
            self._connection = way.connection(self._parts, self._config, self._timeout)
        self.traffic.requests += 1
        connection = self._connection
        asked_for = way.target(self._parts, self._config, path)
        connection.request("GET" if body is None else "POST", asked_for, body, self._headers())
        response = connection.getresponse()
        found = self._unpacked(response)
        if response.will_close:
            self.close()
        answer = Answer(response.status, response.reason, found, response.headers.get("Location", ""))
        with contextlib.suppress(ValueError):
            return answer, max(0.0, float(response.headers.get("Retry-After", "")))
        return answer, None

    def _unpacked(self, response: http.client.HTTPResponse) -> bytes:
        packed = response.headers.get("Content-Encoding", "") == "gzip"
        unpack = zlib.decompressobj(wbits=31) if packed else None
        parts, size = [], 0
        for piece in _pieces(response):
            self.traffic.received += len(piece)
            part = unpack.decompress(piece, MAX_BODY + 1 - size) if unpack else piece
            size += len(part)
            if size > MAX_BODY:
                self.close()
                raise AnswerTooLarge
            parts.append(part)
        if response.length or (unpack and not unpack.eof):  # http.client is silent about it
            raise http.client.IncompleteRead(b"", response.length)
        self.traffic.unpacked += size
        return b"".join(parts)

    def _headers(self) -> dict[str, str]:
        return {
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            "Content-Type": "application/x-www-form-urlencoded",
            "User-Agent": "gpuwatch",
        } | way.headers(self._parts, self._config, self._own)

    def _unreachable(self, error: Exception) -> GpuwatchError:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        hint = "its certificate: see tls_config of --http-config" if "CERTIFICATE" in str(error) else "check the URL"
        return GpuwatchError(f"cannot reach Prometheus at {self.name}", why, hint)


def _pieces(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while piece := response.read(1 << 16):
        yield piece


def _is_final(error: Exception) -> bool:
    """Whether the same would happen again: no such host, or a certificate that nobody trusts."""
    return isinstance(error, socket.gaierror) or "CERTIFICATE" in str(error)


def _is_final_answer(answer: Answer) -> bool:
    """Whether the server gave up on the question itself, which a smaller question helps."""
    return answer.status == 503 and bool(_TIMED_OUT.search(answer.body))
