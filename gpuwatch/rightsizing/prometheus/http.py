"""One connection to a Prometheus, kept open: straight or through a proxy, rate limited, retried, bounded in memory.

A query may cost the server much, so requests follow each other and never overlap. Only what may succeed the second
time is retried: status 429, 502, 503, 504, a broken connection, a missing answer. URLs and headers that a
person wrote are checked before use, so that no error of a library shows their secrets.
"""

import contextlib
import http.client
import logging
import re
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, unquote

import msgspec

from gpuwatch.http.client import TimedResponse, split_url, without_login
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.rightsizing.prometheus.config import HttpConfig, basic

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of RFC 9110."""


def address(url: str) -> SplitResult:
    """Of a Prometheus. Raises UsageError: the URL is invalid; a password in it is not shown."""
    parts = split_url(url)
    if parts is None or parts.query or parts.fragment:
        raise UsageError(
            f"{without_login(url)} is no Prometheus",
            "it must be http(s)://HOST[:PORT][/PREFIX]",
            "write http://prometheus:9090",
        )
    return parts


def new_connection(parts: SplitResult, config: HttpConfig, timeout: float) -> http.client.HTTPConnection:
    """Not open yet. Raises UsageError: a certificate, or the proxy's address, is invalid."""
    host, port = parts.hostname or "", parts.port
    proxy = _proxy(config)
    if parts.scheme == "http":
        through = (proxy.hostname or "", proxy.port) if proxy else (host, port)
        return http.client.HTTPConnection(*through, timeout=timeout)
    context, name = config.tls_config.context(), config.tls_config.server_name
    if proxy is None:
        return _Https(host, port, timeout=timeout, context=context, name=name)
    made = _Https(proxy.hostname or "", proxy.port or 80, timeout=timeout, context=context, name=name or host)
    made.set_tunnel(host, port or 443, _login(proxy))
    return made


def request_target(parts: SplitResult, config: HttpConfig, path: str) -> str:
    """For the request line: a proxy for plain HTTP needs the whole URL."""
    below = parts.path.rstrip("/") + path
    return f"http://{parts.netloc.rpartition('@')[2]}{below}" if parts.scheme == "http" and config.proxy_url else below


def request_headers(parts: SplitResult, config: HttpConfig, own: Mapping[str, str]) -> dict[str, str]:
    """Those of a URL's login, of the configuration, and `own`, which win.

    Raises:
        UsageError: a file cannot be read, or what is there cannot be sent; values are not shown.
    """
    found: dict[str, str] = {}
    if parts.scheme == "http" and (proxy := _proxy(config)):
        found |= _login(proxy)
    if parts.username is not None:
        found["Authorization"] = basic(unquote(parts.username), unquote(parts.password or ""))
    found |= {**config.headers(), **own}
    for name, value in found.items():
        if not _HEADER.fullmatch(name) or re.search(r"[^\t\x20-\x7e\x80-\xff]", value):
            raise UsageError(
                f"cannot send the header {name!r}",
                "it has a line break or letters that HTTP has not",
                "look at --header, --http-config and the files that it names",
            )
    return found


def _proxy(config: HttpConfig) -> SplitResult | None:
    if not config.proxy_url:
        return None
    parts = split_url(config.proxy_url)
    if parts is None or parts.scheme != "http":
        raise UsageError(f"cannot use proxy_url {without_login(config.proxy_url)}", "it must be http://HOST[:PORT]")
    return parts


def _login(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    return {"Proxy-Authorization": basic(unquote(proxy.username), unquote(proxy.password or ""))}


class _Https(http.client.HTTPSConnection):
    """Checks the certificate for `name` instead of the host; empty: for the host."""

    def __init__(self, host: str, port: int | None, *, timeout: float, context: ssl.SSLContext, name: str) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._shown, self._tls = name, context

    def connect(self) -> None:
        """As the base class does, but for the name."""
        if not self._shown:
            super().connect()
            return
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._shown)


log = logging.getLogger(__name__)

TIMEOUT = 150.0
"""Seconds for one answer; Prometheus itself gives up after its `query.timeout`, two minutes unless set."""

ATTEMPTS, ATTEMPTS_AT_FIRST = 6, 2
"""How often one request is sent; the latter to a server that has never answered, as its address may be wrong."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0

REQUEST_SECONDS = 600.0
"""Seconds for one request with all attempts and pauses: a slow server may take all of TIMEOUT each time."""

MAX_BODY = 128 << 20
"""Bytes of an answer, unpacked. A larger one is refused, and the query split."""

_TIMED_OUT = re.compile(rb'"errorType"\s*:\s*"timeout"')

PASSING = frozenset({429, 502, 503, 504})

HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "gzip",
    "Content-Type": "application/x-www-form-urlencoded",
    "User-Agent": "gpuwatch",
}
"""Of every request; the configuration may replace them."""


class AnswerTooLarge(Exception):
    """More than MAX_BODY."""


class Answer(NamedTuple):
    """What came back."""

    status: int
    reason: str
    body: bytes
    location: str = ""


class Traffic(msgspec.Struct, kw_only=True):
    """All requests so far. `received`: bytes of bodies as they came over the wire."""

    requests: int = 0
    repeated: int = 0
    received: int = 0
    unpacked: int = 0
    waited: float = 0.0  # seconds of pacing and back-off


class PrometheusHttp:
    """Sends requests below one base URL, which may have a path (Thanos, Mimir, a proxy) and user and password."""

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
        self._parts = address(url)
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

    def ask(self, path: str, body: bytes | None) -> Answer:
        """The answer to a form, or to a GET where `body` is None; a status of PASSING only when it is not retried.

        Raises:
            GpuwatchError: the server does not answer.
            AnswerTooLarge: the answer is larger than MAX_BODY.
        """
        deadline = self._monotonic() + REQUEST_SECONDS
        for attempt in range(1, ATTEMPTS + 1):
            now = self._monotonic()
            if now < self._next:
                self._wait(self._next - now)
            self._next = max(now, self._next) + self._gap
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (attempt - 1))
            try:
                answer, wanted = self._once(path, body, deadline)
            except (OSError, http.client.HTTPException, zlib.error) as error:
                self.close()
                most = ATTEMPTS if self._has_answered else ATTEMPTS_AT_FIRST
                late = self._monotonic() + pause >= deadline
                if attempt >= most or late or (isinstance(error, socket.gaierror) or "CERTIFICATE" in str(error)):
                    raise self._unreachable(error) from error
                log.info("%s: %s; again in %.0f s", self.name, error, pause)
            else:
                self._has_answered = True
                if (
                    answer.status not in PASSING
                    or attempt == ATTEMPTS
                    or (answer.status == 503 and bool(_TIMED_OUT.search(answer.body)))
                ):
                    return answer
                pause = min(LONGEST_PAUSE, wanted) if wanted is not None else pause
                if self._monotonic() + pause >= deadline:
                    return answer
                log.info("%s: %d %s; again in %.0f s", self.name, answer.status, answer.reason, pause)
            self.traffic.repeated += 1
            self._wait(pause)
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _wait(self, seconds: float) -> None:
        self.traffic.waited += seconds
        self._sleep(seconds)

    def _once(self, path: str, body: bytes | None, deadline: float) -> tuple[Answer, float | None]:
        """The answer, and the seconds of its Retry-After; None: it has none."""
        if self._connection is None:
            self._connection = new_connection(self._parts, self._config, self._timeout)
            self._connection.response_class = TimedResponse
        self.traffic.requests += 1
        connection = self._connection
        connection.timeout = max(0.001, min(self._timeout, deadline - self._monotonic()))
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        asked_for = request_target(self._parts, self._config, path)
        headers = HEADERS | request_headers(self._parts, self._config, self._own)
        connection.request("GET" if body is None else "POST", asked_for, body, headers)
        response = connection.getresponse()
        packed = response.headers.get("Content-Encoding", "") == "gzip"
        unpack = zlib.decompressobj(wbits=31) if packed else None
        parts, size = [], 0
        while piece := response.read(1 << 16):
            self.traffic.received += len(piece)
            part = unpack.decompress(piece, MAX_BODY + 1 - size) if unpack else piece
            size += len(part)
            if size > MAX_BODY:
                self.close()
                raise AnswerTooLarge
            parts.append(part)
        if response.length or (unpack and not unpack.eof):  # http.client does not report it
            raise http.client.IncompleteRead(b"", response.length)
        self.traffic.unpacked += size
        found = b"".join(parts)
        if response.will_close:
            self.close()
        answer = Answer(response.status, response.reason, found, response.headers.get("Location", ""))
        with contextlib.suppress(ValueError):
            return answer, max(0.0, float(response.headers.get("Retry-After", "")))
        return answer, None

    def _unreachable(self, error: Exception) -> GpuwatchError:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        hint = "its certificate: see tls_config of --http-config" if "CERTIFICATE" in str(error) else "check the URL"
        return GpuwatchError(f"cannot reach Prometheus at {self.name}", why, hint)
