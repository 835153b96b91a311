"""Requests to the API server: the official client's configuration (service account, kubeconfig, token refresh, TLS,
proxies) and its connection pool, with plain bytes over it. The client is imported when it is first used.

Its generated models stay unused: they cost 35 MiB, and refuse what a newer API server adds.
"""

import logging
import os
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

import msgspec

from gpuwatch import DISTRIBUTION, __version__
from gpuwatch.config.named_file import read_named_file
from gpuwatch.http.client import TimedResponse
from gpuwatch.kube.errors import ApiCall, Unauthorized, Unavailable, error_of
from gpuwatch.model.errors import UsageError

if TYPE_CHECKING:
    import urllib3
    from kubernetes.client import Configuration


@contextmanager
def client_log_messages() -> Iterator[list[str]]:
    """What the client says to the root logger in the block, in this thread, instead of raising it: that a credential
    plugin (`exec`) is not there or has failed. It is not printed.
    """
    heard: list[str] = []
    listener = threading.get_ident()

    def hear(record: logging.LogRecord) -> bool:
        if record.thread == listener:
            heard.append(record.getMessage())
        return record.thread != listener

    root = logging.getLogger()
    root.addFilter(hear)
    try:
        yield heard
    finally:
        root.removeFilter(hear)


def check_certificates(authority: str | None, certificate: str | None, key: str | None) -> None:
    """Paths of PEM files, as far as there are any.

    Raises:
        ValueError: one of them holds no certificate or not the key of it.
        OSError: one of them cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if authority:
            context.load_verify_locations(authority)
    except ssl.SSLError as error:
        raise ValueError(f"its certificate-authority is no certificate ({_openssl_reason(error)})") from error
    try:
        if certificate:
            context.load_cert_chain(certificate, key, password="")  # else OpenSSL asks at the terminal
    except ssl.SSLError as error:
        why = f"its client-certificate and client-key are no certificate and its key ({_openssl_reason(error)})"
        raise ValueError(why) from error


def _openssl_reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


log = logging.getLogger(__name__)

USER_AGENT = f"gpuwatch/{__version__}"
CONNECT_SECONDS = 3.0
READ_SECONDS = 10.0
"""For a whole answer."""
MAX_BODY = 64 << 20
"""Bytes of an answer, which is a page of a list at most; a larger one is refused."""
TOKEN_SECONDS = 10.0
"""A token is believed for so long before the client, which reads its file every minute, is asked again."""

CONNECTIONS = 2
"""One works, one is spare: requests of one remediator follow each other."""

KUBECONFIG_BYTES = 8 << 20
"""Some have hundreds of clusters, each with its certificates."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
_METHODS = {"get": "GET", "list": "GET", "create": "POST", "patch": "PATCH", "delete": "DELETE"}


class NoCluster(UsageError):
    """Nothing says where the API server is."""


class _Connection:
    """A configuration in force and the connections made by it."""

    def __init__(self, configuration: "Configuration", pool: "urllib3.PoolManager") -> None:
        self.configuration, self.pool = configuration, pool
        self._header: dict[str, str] = {}
        self._good_until = 0.0

    def authorization(self) -> dict[str, str]:
        """The header with the bearer token. To ask the client for it costs as much as half a request."""
        now = time.monotonic()
        if now >= self._good_until:
            self._header, self._good_until = _authorization(self.configuration), now + TOKEN_SECONDS
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

    @property
    def server(self) -> str:
        """The API server's URL. Raises NoCluster and UsageError as `request` does."""
        return str(self._open().configuration.host)

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
            KubeError: whatever the server answered but success, or Unavailable without an answer.
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
            answer = connection.pool.request(
                _METHODS[call.verb],
                f"{connection.configuration.host}{path}{f'?{urlencode(query)}' if query else ''}",
                body=None if body is None else msgspec.json.encode(body),
                headers=headers,
                timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, self._read_seconds), read=self._read_seconds),
                retries=False,  # who asks decides what to do again, and after which look at the world
                preload_content=False,
                decode_content=False,
            )
            data = answer.read(MAX_BODY + 1)
            answer.close() if len(data) > MAX_BODY else answer.release_conn()
        except urllib3.exceptions.HTTPError as error:
            if isinstance(error, urllib3.exceptions.SSLError):
                self._forget(connection)
            raise Unavailable(
                call, _reason(error), f"is {connection.configuration.host} the API server, and up?"
            ) from error
        if len(data) > MAX_BODY:
            raise Unavailable(call, f"its answer is larger than {MAX_BODY >> 20} MiB", "is it the API server?")
        if 200 <= answer.status < 300:
            return data
        failure = error_of(call, answer.status, answer.headers, data)
        if isinstance(failure, Unauthorized):
            self._forget(connection)
        raise failure

    def close(self) -> None:
        """Drop the connections; a later request makes new ones."""
        if self._way is not None:
            self._forget(self._way)

    def _open(self) -> _Connection:
        with self._lock:
            if self._way is None:
                configuration = _configuration(self._kubeconfig)
                configuration.connection_pool_maxsize = self._connections
                from kubernetes.client.rest import RESTClientObject

                self._way = _Connection(configuration, _timed(RESTClientObject(configuration).pool_manager))
            return self._way

    def _forget(self, connection: _Connection) -> None:
        """Tokens, certificates or the file itself may have been replaced: the next request reads them anew."""
        with self._lock:
            if self._way is connection:
                self._way = None
        connection.pool.clear()


def _timed(manager: "urllib3.PoolManager") -> "urllib3.PoolManager":
    """`manager`, of which a read timeout bounds the whole answer and not each read of it."""
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

    for pool in (HTTPConnectionPool, HTTPSConnectionPool):
        connection = type("TimedConnection", (pool.ConnectionCls,), {"response_class": TimedResponse})
        manager.pool_classes_by_scheme = {
            **manager.pool_classes_by_scheme,
            pool.scheme: type("TimedPool", (pool,), {"ConnectionCls": connection}),
        }
    return manager


def path_segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


def credentials_source(kubeconfig: str, environment: Mapping[str, str] = os.environ) -> str:
    """Where the API server and the credentials for it come from, as kubectl and pods find them: `SERVICE_ACCOUNT` or
    the path of a kubeconfig.

    Raises:
        NoCluster: there is neither.
    """
    if not kubeconfig and "KUBERNETES_SERVICE_HOST" in environment and SERVICE_ACCOUNT.exists():
        return str(SERVICE_ACCOUNT)
    path = kubeconfig or environment.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if not any(Path(part).expanduser().exists() for part in path.split(os.pathsep)):
        raise NoCluster(
            "no Kubernetes API server is known",
            f"not in a pod with a service account, and there is no {path}",
            "give --kubeconfig FILE",
        )
    return path


def _configuration(kubeconfig: str) -> "Configuration":
    path = credentials_source(kubeconfig)
    in_cluster = path == str(SERVICE_ACCOUNT)
    import yaml

    try:
        from kubernetes import config
        from kubernetes.client import Configuration
    except ModuleNotFoundError as error:
        raise UsageError(
            "gpuwatch is installed without its Kubernetes client, which remediator, repairs of Nodes and consents need",
            f"no module {error.name}",
            f"install the extra: pip install '{DISTRIBUTION}[kubernetes]'",
        ) from error
    configuration = Configuration()
    where = "the pod's service account" if in_cluster else path
    try:
        if in_cluster:
            config.load_incluster_config(client_configuration=configuration)
        else:
            for part in filter(os.path.exists, map(os.path.expanduser, path.split(os.pathsep))):
                read_named_file(part, "kubeconfig", "--kubeconfig or KUBECONFIG", KUBECONFIG_BYTES)
            with client_log_messages() as heard:
                config.load_kube_config(path, client_configuration=configuration, persist_config=False)
            if heard:
                raise ValueError(f"its credential plugin gives nothing: {'; '.join(heard)}")
        if configuration.host.startswith("https:"):
            check_certificates(configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    except (
        config.ConfigException,
        OSError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
        yaml.YAMLError,
    ) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise UsageError(f"cannot use {where} to reach the API server", why, "check it with kubectl") from error
    if not configuration.verify_ssl:
        _warn_no_more()
    log.debug("API server %s, from %s", configuration.host, where)
    return configuration


def _warn_no_more() -> None:
    """Whoever wrote insecure-skip-tls-verify knows: a screen is no place to say so at every request."""
    import urllib3

    urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)


def _authorization(configuration: "Configuration") -> dict[str, str]:
    """The header with the bearer token, which the client reads again from its file every minute."""
    found = configuration.auth_settings().get("BearerToken")
    value = found["value"] if found else None
    return {"Authorization": value} if value else {}


def _reason(error: Exception) -> str:
    """The innermost words: urllib3 wraps several times."""
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    inner = getattr(error, "reason", None) or error.__cause__ or error.__context__
    return _reason(inner) if isinstance(inner, Exception) else " ".join(str(error).split()) or type(error).__name__
