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
from urllib.parse import quote, urlsplit

from tests import fast_yaml

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"

SECONDS = 30.0


class ApiServer(Protocol):
    """A running API server, simulated or real, in which no controller runs."""

    url: str
    ca_file: Path

    def kubeconfig(self, user: str = "admin") -> Path:
        """Write a file that gives any client the rights of a user: `admin` may do everything, others nothing yet."""


class Answer(NamedTuple):
    """Status code and JSON."""

    status: int
    body: Any


def refusal(status: int, reason: str | None, message: str, details: dict[str, Any] | None = None) -> Answer:
    """How a server says no: a Status. A refusal without a reason is an error of the server's own."""
    said = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    said |= {} if reason is None else {"reason": reason}
    return Answer(status, {**said, **({} if details is None else {"details": details}), "code": status})


def invalid(kind: str, name: str, *causes: tuple[str, str], group: str = "") -> Answer:
    """The refusal of wrong fields as `without_messages` gives it; `causes`: field, reason after `FieldValue`."""
    details = {**({"name": name} if name else {}), "kind": kind, **({"group": group} if group else {})}
    fields = [{"reason": f"FieldValue{why}", "field": field} for field, why in causes]
    return refusal(422, "Invalid", "", {**details, "causes": fields})


class Api:
    """An API server as tests ask it."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.url = server.url
        self._credentials: dict[str, tuple[ssl.SSLContext, dict[str, str]]] = {}

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
        return Answer(response.status, comparable(json.loads(said)) if is_json else said.decode())

    @contextlib.contextmanager
    def _ask(
        self, method: str, path: str, body: Any, content_type: str | None, user: str, token: str | None
    ) -> Iterator[http.client.HTTPResponse]:
        context, headers = self._identity(user, token)
        if body is not None:
            headers = {**headers, "Content-Type": content_type or "application/json"}
        place = urlsplit(self.url)
        connection = http.client.HTTPSConnection(place.hostname, place.port, timeout=SECONDS, context=context)
        try:
            connection.request(method, quote(path, safe="/?&=%,"), None if body is None else json.dumps(body), headers)
            yield connection.getresponse()
        finally:
            connection.close()

    def _identity(self, user: str, token: str | None) -> tuple[ssl.SSLContext, dict[str, str]]:
        if token is not None:
            return ssl.create_default_context(cafile=str(self.server.ca_file)), {"Authorization": f"Bearer {token}"}
        if user not in self._credentials:
            self._credentials[user] = credentials(self.kubeconfig(user))
        return self._credentials[user]


def comparable(said: Any) -> Any:
    """Without what a server may tell or leave out: who manages which field."""
    if isinstance(said, dict):
        said.get("metadata", {}).pop("managedFields", None)
    return said


def without_messages(answer: Answer) -> Answer:
    """A refusal of wrong fields without its wording, each field and reason once."""
    pairs = [(cause["reason"], cause["field"]) for cause in answer.body["details"].get("causes", [])]
    causes = [{"reason": reason, "field": field} for reason, field in dict.fromkeys(pairs)]
    return Answer(
        answer.status, {**answer.body, "message": "", "details": {**answer.body["details"], "causes": causes}}
    )


def credentials(kubeconfig: Path) -> tuple[ssl.SSLContext, dict[str, str]]:
    """The trust and the identity that a kubeconfig with one cluster and one user of files or a token gives."""
    said = fast_yaml.load(kubeconfig.read_text())
    cluster, user = said["clusters"][0]["cluster"], said["users"][0]["user"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    if "client-certificate" in user:
        context.load_cert_chain(user["client-certificate"], user["client-key"])
    return context, {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
