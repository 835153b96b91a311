"""The way to a Prometheus: what its URL may be, straight or through a proxy, plain or TLS, and what may be sent.

What a person has written is judged before it is used, so that no error of a library shows it with its secrets.
"""

import http.client
import re
import ssl
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit

from gpuwatch.model.errors import UsageError
from gpuwatch.rightsizing.prometheus.config import HttpConfig, basic

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of RFC 9110."""


def address(url: str) -> SplitResult:
    """Of a Prometheus. Raises UsageError: it is none; a password in it is not shown."""
    parts = _split(url)
    if parts is None or parts.query or parts.fragment:
        raise UsageError(
            f"{_unsecret(url)} is no Prometheus",
            "it must be http(s)://HOST[:PORT][/PREFIX]",
            "write http://prometheus:9090",
        )
    return parts


def connection(parts: SplitResult, config: HttpConfig, timeout: float) -> http.client.HTTPConnection:
    """Not open yet. Raises UsageError: a certificate, or the proxy's address, is none."""
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


def target(parts: SplitResult, config: HttpConfig, path: str) -> str:
    """What is asked for: a proxy that speaks HTTP itself wants it whole."""
    below = parts.path.rstrip("/") + path
    return f"http://{parts.netloc.rpartition('@')[2]}{below}" if parts.scheme == "http" and config.proxy_url else below


def headers(parts: SplitResult, config: HttpConfig, own: Mapping[str, str]) -> dict[str, str]:
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


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, half a bracket, an endless name
        return None
    return parts if right and url.isascii() and url.isprintable() and " " not in url else None


def _proxy(config: HttpConfig) -> SplitResult | None:
    if not config.proxy_url:
        return None
    parts = _split(config.proxy_url)
    if parts is None or parts.scheme != "http":
        raise UsageError(f"cannot use proxy_url {_unsecret(config.proxy_url)}", "it must be http://HOST[:PORT]")
    return parts


def _login(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    return {"Proxy-Authorization": basic(unquote(proxy.username), unquote(proxy.password or ""))}


def _unsecret(url: str) -> str:
    return re.sub(r"(://)?.*@", r"\1", url, flags=re.DOTALL)


class _Https(http.client.HTTPSConnection):
    """With another name in the certificate than in the URL, where `server_name` says one."""

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
