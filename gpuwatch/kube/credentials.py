"""The API server's address and the credentials for it: the pod's service account, or a kubeconfig.

The official client handles a kubeconfig (certificates, proxies), except its credential plugins, which it would run
without bounds, and its auth-provider, whose issuer it would ask without a deadline. Only the client's configuration and
connections are used: its generated models cost 35 MiB, and refuse what a newer API server adds. A pod needs an address,
an authority and a token, from files whose form never changes; to import the client for that costs each process 16 MiB
on each node, so it is not imported in a pod.
"""

import base64
import logging
import math
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.request import getproxies, proxy_bypass

import msgspec

from gpuwatch import DISTRIBUTION
from gpuwatch.config.named_file import read_named_file
from gpuwatch.http.client import TimedResponse
from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import UsageError
from gpuwatch.model.snapshot import UNREADABLE
from gpuwatch.process.command import run_command

if TYPE_CHECKING:
    import urllib3

log = logging.getLogger(__name__)

KUBECONFIG_BYTES = 8 << 20
"""Some have hundreds of clusters, each with its certificates."""

PLUGIN_SECONDS, PLUGIN_BYTES, PLUGIN_QUOTED, EARLY_SECONDS = 60.0, 1 << 20, 1000, 60.0
"""How long a credential plugin (`exec`) may take, how many bytes of its answer are read, how many characters of its
stderr an error quotes, and how long before its credential ends it is asked again.
"""
RETRY_SECONDS = 10.0
"""After a plugin failed, while its last credential is still good."""

PLUGIN_INPUT, PLUGIN_EXTENSION = "KUBERNETES_EXEC_INFO", "client.authentication.k8s.io/exec"

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")


class NoCluster(UsageError):
    """No API server is configured."""


class Access(NamedTuple):
    """`host`: the API server's URL. `pool`: its read timeout bounds a whole answer. `token`: value of the header
    Authorization, read again at each call; empty: none.
    """

    host: str
    pool: "urllib3.PoolManager"
    token: Callable[[], str]


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


def access(kubeconfig: str, connections: int, stopped: Callable[[], bool] = lambda: False) -> Access:
    """How to reach the API server; it keeps so many connections. `stopped`: whether a credential plugin has to end.

    Raises:
        NoCluster: there is neither a service account nor a kubeconfig.
        UsageError: the one found cannot be used, or the client is not installed.
    """
    source = credentials_source(kubeconfig)
    in_pod = source == str(SERVICE_ACCOUNT)
    where = "the pod's service account" if in_pod else source
    with _clear_errors(where):
        found = _of_pod(connections) if in_pod else _of_kubeconfig(source, connections, stopped)
        _bound_answers(found.pool)
        found.pool.connection_from_url(found.host)  # refuses what is no URL
    log.debug("API server %s, from %s", found.host, where)

    def token() -> str:
        with _clear_errors(where):
            value = found.token()
            if not (value.isascii() and value.isprintable()):
                raise ValueError("its token is not one line of ASCII characters")
            return value

    return found._replace(token=token)


def _bound_answers(manager: "urllib3.PoolManager") -> None:
    """Let a read timeout of `manager` bound the whole answer and not each read of it."""
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

    for pool in (HTTPConnectionPool, HTTPSConnectionPool):
        connection = type("TimedConnection", (pool.ConnectionCls,), {"response_class": TimedResponse})
        manager.pool_classes_by_scheme = {
            **manager.pool_classes_by_scheme,
            pool.scheme: type("TimedPool", (pool,), {"ConnectionCls": connection}),
        }


@contextmanager
def _clear_errors(where: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(
            "gpuwatch is installed without its Kubernetes client, which remediator, repairs of Nodes and consents need",
            f"no module {error.name}",
            f"install the extra: pip install '{DISTRIBUTION}[kubernetes]'",
        ) from error
    except UsageError:
        raise
    except Exception as error:  # the client has no base class of errors, and passes on those of OAuth and connections
        why = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, TypeError | AttributeError | LookupError):
            why = f"something in it is missing or has another type than expected ({why})"
        raise UsageError(f"cannot use {where} to reach the API server", why, "check it with kubectl") from error


def _of_pod(connections: int) -> Access:
    """As client-go's rest.InClusterConfig does it."""
    import urllib3

    name, port = (os.environ[f"KUBERNETES_SERVICE_{part}"] for part in ("HOST", "PORT"))
    authority = str(SERVICE_ACCOUNT.with_name("ca.crt"))
    check_certificates(authority, None, None)
    proxy = getproxies().get("https")
    if proxy and not proxy_bypass(name):
        pool: urllib3.PoolManager = urllib3.ProxyManager(proxy, maxsize=connections, ca_certs=authority)
    else:
        pool = urllib3.PoolManager(maxsize=connections, ca_certs=authority)

    def token() -> str:
        try:
            return f"Bearer {SERVICE_ACCOUNT.read_text(encoding='ascii').strip()}"
        except (OSError, ValueError) as error:
            raise UsageError("cannot read the pod's service account token", str(error), "look at its pod") from error

    return Access(f"https://{f'[{name}]' if ':' in name else name}:{port}", pool, token)


def _of_kubeconfig(path: str, connections: int, stopped: Callable[[], bool]) -> Access:
    from kubernetes.client import Configuration
    from kubernetes.client.rest import RESTClientObject
    from kubernetes.config.kube_config import KubeConfigLoader

    configuration = Configuration()
    configuration.connection_pool_maxsize = connections
    merged = _merged(path)
    loader = KubeConfigLoader(merged, config_base_path=None)  # paths in it are relative to its folder
    context, expires, next_try = loader.current_context["context"], math.inf, 0.0
    user = next((each for each in merged["users"] if each["name"] == context.get("user")), None)
    plugin = _plugin_of(user, path) if user else None
    cluster = next(each["cluster"].value for each in merged["clusters"] if each["name"] == context["cluster"])

    def load() -> None:
        nonlocal expires
        if plugin:
            expires = _ask_plugin(plugin, cluster, user, stopped)
        loader.load_and_set(configuration)

    load()
    configuration.proxy = cluster.get("proxy-url") or configuration.proxy  # older clients do not read it
    if configuration.host.startswith("https:"):
        check_certificates(configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        import urllib3

        # the user that set insecure-skip-tls-verify knows of it and needs no warning at every request
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)

    def token() -> str:
        nonlocal next_try
        now = time.time()
        if now >= expires or now >= max(expires - EARLY_SECONDS, next_try):
            try:
                load()
            except Exception as error:  # the client's errors have no base class
                if now >= expires:
                    raise
                next_try = now + RETRY_SECONDS
                log.warning("%s: the credential is not renewed; it is good for %.0f s: %s", path, expires - now, error)
        return str(configuration.auth_settings().get("BearerToken", {}).get("value") or "")

    return Access(str(configuration.host), RESTClientObject(configuration).pool_manager, token)


def _plugin_of(user: Any, path: str) -> dict[str, Any] | None:
    """The credential plugin of a user that has no token. It is taken out, or the client would run it; a token file is
    read here, as the client would wait for a FIFO and read a device. The token of an auth-provider is used as it is: it
    is renewed by kubectl, and read again when the API server refuses it.
    """
    if file := user["user"].safe_get("tokenFile"):
        file = os.path.join(os.path.dirname(user.path), file)
        user["user"].value["token"] = read_named_file(file, "the token file", path).decode().strip()
    if (provider := user["user"].value.pop("auth-provider", None)) is not None:
        config = provider.get("config") or {}
        if not (token := config.get("id-token") or config.get("access-token")):
            raise ValueError("its auth-provider has no token: renew it with kubectl, or use `exec` in its place")
        user["user"].value["token"] = token
    plugin = user["user"].value.pop("exec", None)
    return None if user["user"].safe_get("token") else plugin


def _ask_plugin(plugin: Mapping[str, Any], cluster: Mapping[str, Any], user: Any, stopped: Callable[[], bool]) -> float:
    """Put the credential that a plugin returns into `user`, as if the kubeconfig had it; the unix time when it ends.

    It gets no terminal: a user that has to log in does so with kubectl, and plugins keep what they get.
    """
    spec: dict[str, Any] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        ours = (each["extension"] for each in cluster.get("extensions") or () if each["name"] == PLUGIN_EXTENSION)
        spec["cluster"] = {**cluster, "config": next(ours, None)}
    asked = msgspec.json.encode({"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": spec}).decode()
    ended = run_command(
        [plugin["command"], *(plugin.get("args") or ())],
        PLUGIN_SECONDS,
        environment={each["name"]: each["value"] for each in plugin.get("env") or ()} | {PLUGIN_INPUT: asked},
        folder=os.path.abspath(os.path.dirname(user.path)),
        answer_bytes=PLUGIN_BYTES,
        stopped=stopped,
    )
    try:
        if ended.status != 0:
            raise ValueError(f"{f'it returned {ended.status}. ' if ended.status else ''}{ended.output[:PLUGIN_QUOTED]}")
        answer = msgspec.json.decode(ended.output, type=prepared(dict[str, msgspec.Raw]))
        given = msgspec.json.decode(answer.get("status", b""), type=prepared(_ExecStatus))
    except (ValueError, *UNREADABLE) as error:
        raise ValueError(f"its credential plugin {plugin['command']} gives no ExecCredential: {error}") from None
    pair = {"client-certificate-data": given.client_certificate_data, "client-key-data": given.client_key_data}
    encoded = {name: base64.b64encode(data.encode()).decode() for name, data in pair.items() if data}
    if not given.token and len(encoded) < 2:
        raise ValueError(f"its credential plugin {plugin['command']} gives neither a token nor a certificate and key")
    user["user"].value.pop("token", None)  # the client refuses one that is null
    user["user"].value.update(encoded, **({"token": given.token} if given.token else {}))
    return given.expiration_timestamp.timestamp() if given.expiration_timestamp else math.inf


def _merged(path: str) -> dict[str, Any]:
    """The kubeconfigs in a list of paths as one; as with kubectl, the first entry of a name counts. The client would
    expand aliases and long numbers without bound, and quote secrets in its errors.
    """
    from kubernetes.config.kube_config import ConfigNode

    from gpuwatch.config.yaml import document

    kinds: dict[str, dict[str, Any]] = {"clusters": {}, "contexts": {}, "users": {}}
    current = None
    for part in filter(os.path.exists, map(os.path.expanduser, path.split(os.pathsep))):
        body = read_named_file(part, "kubeconfig", "--kubeconfig or KUBECONFIG", KUBECONFIG_BYTES)
        found = document(body, part, secrets=True, most=KUBECONFIG_BYTES).value
        if not isinstance(found, dict):
            raise ValueError(f"{part} is no mapping")
        current = current or found.get("current-context")
        for kind, known in kinds.items():
            for each in found.get(kind) or ():
                known.setdefault(each["name"], ConfigNode(f"{kind} of {part}", each, part))
    return {"current-context": current, **{kind: list(known.values()) for kind, known in kinds.items()}}


def credentials_source(kubeconfig: str, environment: Mapping[str, str] = os.environ) -> str:
    """Where the API server and the credentials for it come from, as kubectl and pods find them: `SERVICE_ACCOUNT` or
    the path of a kubeconfig.

    Raises:
        NoCluster: there is neither.
    """
    if not kubeconfig and "KUBERNETES_SERVICE_HOST" in environment and SERVICE_ACCOUNT.exists():
        return str(SERVICE_ACCOUNT)
    path = kubeconfig or environment.get("KUBECONFIG") or os.path.expanduser("~/.kube/config")
    if not any(os.path.exists(os.path.expanduser(part)) for part in path.split(os.pathsep)):
        raise NoCluster(
            "no Kubernetes API server is known",
            f"not in a pod with a service account, and {path} is not to be found",
            "give --kubeconfig FILE",
        )
    return path


def check_certificates(authority: str | None, certificate: str | None, key: str | None) -> None:
    """Check PEM files; None: there is no such file.

    Raises:
        ValueError: one of them holds no certificate or not the key of it.
        UsageError: one of them cannot be read, or is so large that OpenSSL would take minutes for it.
    """
    for path in filter(None, (authority, certificate, key)):
        read_named_file(path, "the certificate or key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    why = "its certificate-authority is no certificate"
    try:
        if authority:
            context.load_verify_locations(authority)
        why = "its client-certificate and client-key are no certificate and its key"
        if certificate:
            context.load_cert_chain(certificate, key, password="")  # else OpenSSL asks at the terminal
    except ssl.SSLError as error:
        reason = (error.reason or str(error)).replace("_", " ").lower()
        raise ValueError(f"{why} ({reason})") from error
