"""The way to the API server: the official client's configuration (service account, kubeconfig, token refresh, TLS,
proxies) and its connection pool, with plain bytes over it. It alone loads the client, and only when it is first used.

Its generated models stay unused: they cost 35 MiB, and refuse what a newer API server adds.
"""

import logging
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec

from gpuwatch import __version__
from gpuwatch.kube.credentials import check_certificates, complaints
from gpuwatch.kube.errors import Call, Unauthorized, Unavailable, error_of
from gpuwatch.model.errors import UsageError

if TYPE_CHECKING:
    import urllib3
    from kubernetes.client import Configuration

log = logging.getLogger(__name__)

USER_AGENT = f"gpuwatch/{__version__}"
CONNECT_SECONDS = 3.0
READ_SECONDS = 10.0
TOKEN_SECONDS = 10.0
"""A token is believed for so long before the client, which reads its file every minute, is asked again."""

CONNECTIONS = 2
"""One works, one is spare: requests of one remediator follow each other."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
_METHODS = {"get": "GET", "list": "GET", "create": "POST", "patch": "PATCH"}


class NoCluster(UsageError):
    """Nothing says where the API server is."""


class _Way:
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
        self._way: _Way | None = None
        self.requests = 0
        """Sent so far."""

    @property
    def server(self) -> str:
        """The API server's URL. Raises NoCluster and UsageError as `request` does."""
        return str(self._open().configuration.host)

    def request(
        self,
        call: Call,
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
            UsageError: the configuration cannot be used.
        """
        import urllib3

        way = self._open()
        headers = {"Accept": accept, "User-Agent": USER_AGENT, **way.authorization()}
        if body is not None:
            headers["Content-Type"] = content_type
        self.requests += 1
        try:
            answer = way.pool.request(
                _METHODS[call.verb],
                f"{way.configuration.host}{path}{f'?{urlencode(query)}' if query else ''}",
                body=None if body is None else msgspec.json.encode(body),
                headers=headers,
                timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, self._read_seconds), read=self._read_seconds),
                retries=False,  # who asks decides what to do again, and after which look at the world
            )
        except urllib3.exceptions.HTTPError as error:
            if isinstance(error, urllib3.exceptions.SSLError):
                self._forget(way)
            raise Unavailable(call, _reason(error), f"is {way.configuration.host} the API server, and up?") from error
        if 200 <= answer.status < 300:
            return answer.data
        failure = error_of(call, answer.status, answer.headers, answer.data)
        if isinstance(failure, Unauthorized):
            self._forget(way)
        raise failure

    def close(self) -> None:
        """Drop the connections; a later request makes new ones."""
        if self._way is not None:
            self._forget(self._way)

    def _open(self) -> _Way:
        with self._lock:
            if self._way is None:
                configuration = _configuration(self._kubeconfig)
                configuration.connection_pool_maxsize = self._connections
                from kubernetes.client.rest import RESTClientObject

                self._way = _Way(configuration, RESTClientObject(configuration).pool_manager)
            return self._way

    def _forget(self, way: _Way) -> None:
        """Tokens, certificates or the file itself may have been replaced: the next request reads them anew."""
        with self._lock:
            if self._way is way:
                self._way = None
        way.pool.clear()


def way(kubeconfig: str, environment: Mapping[str, str] = os.environ) -> str:
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
    path = way(kubeconfig)
    in_cluster = path == str(SERVICE_ACCOUNT)
    import yaml
    from kubernetes import config
    from kubernetes.client import Configuration

    configuration = Configuration()
    where = "the pod's service account" if in_cluster else path
    try:
        if in_cluster:
            config.load_incluster_config(client_configuration=configuration)
        else:
            with complaints() as heard:
                config.load_kube_config(path, client_configuration=configuration, persist_config=False)
            if heard:
                raise ValueError(f"its credential plugin gives nothing: {'; '.join(heard)}")
        if configuration.host.startswith("https:"):
            check_certificates(configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    except (config.ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
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
