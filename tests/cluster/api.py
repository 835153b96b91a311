"""How tests talk to an API server: what one must offer, and plain JSON over HTTPS with the rights of a kubeconfig.

No client library comes between a test and the server, so a test sees what goes over the wire.
"""

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlencode, urlsplit

import yaml

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

SECONDS = 30.0


class ApiServer(Protocol):
    """A running API server, simulated or real."""

    url: str
    ca_file: Path

    def kubeconfig(self, user: str = "admin") -> Path:
        """Write a file that gives any client the rights of a user: `admin` may do everything, others nothing yet."""


class Answer(NamedTuple):
    """Status code and JSON."""

    status: int
    body: Any


class Api:
    """An API server as tests ask it."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.url = server.url

    def kubeconfig(self, user: str = "admin") -> Path:
        """A kubeconfig file of this user."""
        return self.server.kubeconfig(user)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str | None = None,
        user: str = "admin",
        token: str | None = None,
    ) -> Answer:
        """What the server answers to one request; `body` is sent as JSON, `token` instead of what the user has."""
        with self._ask(method, path, body, content_type, user, token) as response:
            said = response.read()
        is_json = "json" in response.headers["Content-Type"]
        return Answer(response.status, json.loads(said) if is_json else said.decode())

    def watch(self, path: str, seconds: int = 1, user: str = "admin", **query: str) -> Iterator[dict[str, Any]]:
        """The events of a watch, until the server ends it after `seconds`."""
        query = {"watch": "true", "timeoutSeconds": str(seconds), **query}
        with self._ask("GET", f"{path}?{urlencode(query)}", None, None, user, None) as response:
            assert response.status == 200, response.read()
            for line in response:
                yield json.loads(line)

    @contextlib.contextmanager
    def _ask(
        self, method: str, path: str, body: Any, content_type: str | None, user: str, token: str | None
    ) -> Iterator[http.client.HTTPResponse]:
        context, headers = credentials(self.kubeconfig(user)) if token is None else (None, {})
        if token is not None:
            context = ssl.create_default_context(cafile=str(self.server.ca_file))
            headers = {"Authorization": f"Bearer {token}"}
        if body is not None:
            headers["Content-Type"] = content_type or "application/json"
        place = urlsplit(self.url)
        connection = http.client.HTTPSConnection(place.hostname, place.port, timeout=SECONDS, context=context)
        try:
            connection.request(method, quote(path, safe="/?&=%,"), None if body is None else json.dumps(body), headers)
            yield connection.getresponse()
        finally:
            connection.close()


def credentials(kubeconfig: Path) -> tuple[ssl.SSLContext, dict[str, str]]:
    """The trust and the identity that a kubeconfig with one cluster and one user of files or a token gives."""
    said = yaml.safe_load(kubeconfig.read_text())
    cluster, user = said["clusters"][0]["cluster"], said["users"][0]["user"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    if "client-certificate" in user:
        context.load_cert_chain(user["client-certificate"], user["client-key"])
    return context, {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
