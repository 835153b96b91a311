"""Requests to the API server and its answers as plain bytes, over a pool of connections (`kube.credentials`)."""

import threading
import time
from collections.abc import Callable, Mapping
from urllib.parse import quote, urlencode

import msgspec

from gpuwatch import __version__
from gpuwatch.kube.credentials import Access, access
from gpuwatch.kube.errors import ApiCall, Unauthorized, Unavailable, error_of

USER_AGENT = f"gpuwatch/{__version__}"
CONNECT_SECONDS = 3.0
READ_SECONDS = 10.0
"""For a whole answer."""
MAX_BODY = 64 << 20
"""Bytes of an answer, which is a page of a list at most; a larger one is refused."""
TOKEN_SECONDS = 10.0
"""A token is used for so many seconds before it is read again."""

CONNECTIONS = 2
"""One is used, one is spare: requests of one remediator follow each other."""

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
_METHODS = {"get": "GET", "list": "GET", "create": "POST", "patch": "PATCH", "delete": "DELETE"}


class _Connection:
    """The pool of connections to the server, with the token as it was read last.

    To find the pool of each URL again costs a fifth of a request, so it is done once. A server without TLS behind a
    proxy needs whole URLs, which the manager writes.
    """

    def __init__(self, way: Access, read_seconds: float) -> None:
        import urllib3

        self.host, self.pool, self._token = way.host, way.pool, way.token
        url = urllib3.util.parse_url(way.host)
        is_direct = way.pool.proxy is None or url.scheme == "https"
        self.base = (url.path or "").rstrip("/") if is_direct else way.host
        self.send = (way.pool.connection_from_url(way.host) if is_direct else way.pool).urlopen
        self.timeout = urllib3.Timeout(connect=min(CONNECT_SECONDS, read_seconds), read=read_seconds)
        self._header: dict[str, str] = {}
        self._good_until = 0.0

    def authorization(self) -> dict[str, str]:
        """The header with the bearer token. To ask the client for it costs as much as half a request."""
        now = time.monotonic()
        if now >= self._good_until:
            token = self._token()
            self._header, self._good_until = {"Authorization": token} if token else {}, now + TOKEN_SECONDS
        return self._header


class Transport:
    """One API server. Any number of readers and writers may share it, from any thread.

    `kubeconfig` empty: the pod's service account, else $KUBECONFIG, else ~/.kube/config. `connections`: kept open.
    """

    def __init__(
        self, kubeconfig: str = "", *, connections: int = CONNECTIONS, read_seconds: float = READ_SECONDS
    ) -> None:
        self._kubeconfig, self._connections, self._read_seconds = kubeconfig, connections, read_seconds
        self._lock = threading.Lock()
        self._way: _Connection | None = None
        self.requests = 0
        """Sent so far."""
        self.stopped: Callable[[], bool] = lambda: False
        """Whether the process has to end, for which a credential plugin may take too long."""

    @property
    def server(self) -> str:
        """The API server's URL. Raises NoCluster and UsageError as `request` does."""
        return self._open().host

    def request(
        self,
        call: ApiCall,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: object = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        """The body of the answer to one request.

        Raises:
            KubeError: any answer other than success, or Unavailable without an answer.
            NoCluster: there is no configuration to be found.
            UsageError: the configuration cannot be used, or the client is not installed.
        """
        connection = self._open()
        import urllib3

        headers = {"Accept": accept, "User-Agent": USER_AGENT, **connection.authorization()}
        if body is not None:
            headers["Content-Type"] = content_type
        self.requests += 1
        try:
            answer = connection.send(
                _METHODS[call.verb],
                f"{connection.base}{path}{f'?{urlencode(query)}' if query else ''}",
                body=None if body is None else msgspec.json.encode(body),
                headers=headers,
                timeout=connection.timeout,
                retries=False,  # the caller decides what to repeat, and what to read before
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            data = answer.read(MAX_BODY + 1)
            answer.close() if len(data) > MAX_BODY else answer.release_conn()
        except urllib3.exceptions.HTTPError as error:
            if isinstance(error, urllib3.exceptions.SSLError):
                self._drop(connection)
            raise Unavailable(call, _reason(error), f"is {connection.host} the API server, and up?") from error
        if len(data) > MAX_BODY:
            raise Unavailable(call, f"its answer is larger than {MAX_BODY >> 20} MiB", "is it the API server?")
        if 200 <= answer.status < 300:
            return data
        failure = error_of(call, answer.status, answer.headers, data)
        if isinstance(failure, Unauthorized):
            self._drop(connection)
        raise failure

    def close(self) -> None:
        """Drop the connections; a later request makes new ones."""
        if self._way is not None:
            self._drop(self._way)

    def _open(self) -> _Connection:
        with self._lock:
            if self._way is None:
                way = access(self._kubeconfig, self._connections, lambda: self.stopped())  # noqa: PLW0108 set later
                self._way = _Connection(way, self._read_seconds)
            return self._way

    def _drop(self, connection: _Connection) -> None:
        """Tokens, certificates or the file itself may have been replaced: the next request reads them again."""
        with self._lock:
            if self._way is connection:
                self._way = None
        connection.pool.clear()


def path_segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


def _reason(error: Exception) -> str:
    """The innermost message: urllib3 wraps errors several times."""
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    inner = getattr(error, "reason", None) or error.__cause__ or error.__context__
    return _reason(inner) if isinstance(inner, Exception) else " ".join(str(error).split()) or type(error).__name__
