"""Asks a running agent for its View, over its unix socket or over HTTP, as every other process does."""

import base64
import contextlib
import http.client
import logging
import math
import os
import socket
import ssl
import struct
from collections.abc import Container
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar
from urllib.parse import unquote, urlencode, urlsplit

import msgspec

from gpuwatch.config import AgentConfig, runtime_dir
from gpuwatch.http.client import TimedResponse, split_url, without_login
from gpuwatch.model.clock import Clock
from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import GpuwatchError, PermissionMissing, UsageError
from gpuwatch.model.event import EVERYTHING, EventQuery
from gpuwatch.model.recent import Recent
from gpuwatch.model.snapshot import UNREADABLE
from gpuwatch.model.view import SCHEMA, Events, View
from gpuwatch.rightsizing.model import recommendation
from gpuwatch.rightsizing.model.recommendation import Recommendations

log = logging.getLogger(__name__)

TIMEOUT = 5.0
"""Seconds to connect, and for a whole answer."""

EVENTS_SECONDS = 60.0
"""More seconds, for an answer that the agent makes while it sends it."""

MAX_VIEW, MAX_BODY = 16 << 20, 64 << 20
"""Most bytes of a View, and of any other answer; a larger one is not read further."""

SYSTEM_SOCKET = Path("/run/gpuwatch/agent.sock")

Body = TypeVar("Body", View, Events, Recent, Recommendations)


class _Versioned(msgspec.Struct):
    schema: int | None = None


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path, timeout: float, trusted: Container[int | None]) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path, self._trusted = path, trusted

    def connect(self) -> None:
        """Open the socket file instead of a TCP port.

        Raises:
            PermissionMissing: the process that listens there belongs to a user who is not trusted.
        """
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
        credentials = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", credentials)
        if uid not in self._trusted:
            raise PermissionMissing(
                f"the agent at {self._path} is not trusted",
                f"it runs as user {uid}, neither root nor this user",
                f"remove that socket, or set agent.socket_uid: {uid} if that is your agent's user",
            )


class AgentClient:
    """One agent. `url` is an http(s) URL, which may carry user and password, or the path of a unix socket.

    At a socket only an agent of root, of this user or of `uid` is asked.
    """

    def __init__(self, url: str | None = None, timeout: float = TIMEOUT, uid: int | None = None) -> None:
        text = url or str(agent_sockets(AgentConfig())[0])
        is_url = text.lower().startswith(("http:", "https:"))
        parts = split_url(text) if is_url else urlsplit("")
        if parts is None:
            why = "it must be http(s)://HOST[:PORT] or a path"
            raise UsageError(f"{without_login(text)} is no agent's address", why, "write http://HOST:9400")
        self._timeout, self._trusted = timeout, (0, os.geteuid(), uid)
        self._path, self._parts = None if is_url else Path(text.removeprefix("unix:")), parts
        self._credentials: dict[str, str] = {}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._credentials["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        self.name = str(self._path) if self._path else f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    def view(self, *, after: float | None = None, wait: float = 0.0) -> View:
        """The agent's newest View; with `after`, the `snapshot.at` of a View, wait up to `wait` seconds for another.

        Raises:
            GpuwatchError: it cannot be reached, has no View yet or has another schema.
            PermissionMissing: the socket or the web configuration refuses access.
        """
        if after is None or wait <= 0:
            return self._decode(self.get("/api/v1/view", most=MAX_VIEW), View)
        query = urlencode({"after": repr(after), "wait": repr(wait)})
        return self._decode(self.get(f"/api/v1/view?{query}", wait=wait, most=MAX_VIEW), View)

    def events(self, query: EventQuery = EVERYTHING) -> Events:
        """The events that `query` selects. Raises as `view` does."""
        path = "/api/v1/events" + (f"?{query.text}" if query.text else "")
        return self._decode(self.get(path, wait=EVENTS_SECONDS), Events)

    def recent(self) -> Recent:
        """The last minutes of each GPU. Raises as `view` does."""
        return self._decode(self.get("/api/v1/recent"), Recent)

    def recommendations(self) -> Recommendations:
        """Workloads that hold more GPU than they use, as the agent has learned. Raises as `view` does."""
        return self._decode(self.get("/api/v1/recommendations"), Recommendations, recommendation.SCHEMA)

    def metrics(
        self, profiles: tuple[str, ...] = (), *, names: tuple[str, ...] = (), openmetrics: bool = False
    ) -> bytes:
        """The agent's own exposition; `names`: patterns of families. Raises as `view` does."""
        query = urlencode([("profile", each) for each in profiles] + [("name[]", each) for each in names])
        accept = "application/openmetrics-text; version=1.0.0" if openmetrics else "text/plain"
        return self.get("/metrics" + (f"?{query}" if query else ""), accept)

    def refusal(self) -> str | None:
        """Why the agent cannot be asked; None when a trusted process listens there."""
        connection = self._connection()
        try:
            connection.connect()
        except OSError as error:
            log.info("no agent at %s; %s", self.name, error.strerror or error)
            return error.strerror or str(error)
        except GpuwatchError as error:
            log.warning("%s", error)
            return error.why
        finally:
            connection.close()
        return None

    def get(self, path: str, accept: str = "application/json", *, wait: float = 0.0, most: int = MAX_BODY) -> bytes:
        """The body of one page, which may take `wait` seconds longer than others and have `most` bytes. Raises as
        `view` does.
        """
        connection = self._connection(wait)
        try:
            prefix = "" if self._path else self._parts.path.rstrip("/")
            connection.request("GET", prefix + path, headers={"Accept": accept, **self._credentials})
            response = connection.getresponse()
            body = response.read(most + 1)
        except PermissionError as error:
            raise PermissionMissing(
                f"cannot reach the agent at {self.name}", "permission denied", "run as root or as a member of its group"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()
        if len(body) > most:
            what = f"cannot use the answer of the agent at {self.name} to {path}"
            raise GpuwatchError(what, f"it is larger than {most >> 20} MiB", "is it an agent of gpuwatch?")
        if response.status != http.HTTPStatus.OK:
            raise self._refused(response.status, path, body)
        return body

    def _connection(self, wait: float = 0.0) -> http.client.HTTPConnection:
        timeout = self._timeout + wait
        host, port = self._parts.hostname or "", self._parts.port
        connection = (
            _UnixConnection(self._path, timeout, self._trusted)
            if self._path is not None
            else http.client.HTTPSConnection(host, port, timeout=timeout, context=ssl.create_default_context())
            if self._parts.scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=timeout)
        )
        connection.response_class = TimedResponse
        return connection

    def _unreachable(self, error: Exception) -> GpuwatchError:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        hint = "start it with `gpuwatch agent`, or use --source nvml"
        if isinstance(error, ssl.SSLCertVerificationError):
            hint = "name the file of the CA that signed its certificate in SSL_CERT_FILE"
        elif isinstance(error, ssl.SSLError):
            hint = "if it serves without TLS, write agent:http://"
        elif isinstance(error, ConnectionResetError) and self._parts.scheme == "http":
            hint = "if it serves with TLS, write agent:https://"
        return GpuwatchError(f"cannot reach the agent at {self.name}", why, hint)

    def _refused(self, status: int, path: str, body: bytes) -> GpuwatchError:
        what = f"the agent at {self.name} refused {path}"
        answer = body[:200].decode("utf-8", "replace").strip()
        if status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
            return PermissionMissing(what, answer, "put user and password into the URL, or use its unix socket")
        if status == http.HTTPStatus.SERVICE_UNAVAILABLE:
            why, _, hint = answer.rpartition("; ")  # most answers name the next step
            what = f"the agent at {self.name} cannot answer {path}"
            return GpuwatchError(what, why or hint, hint if why else "try again in a moment")
        return GpuwatchError(what, f"status {status}: {answer}", "is it an agent of gpuwatch?")

    def _decode(self, body: bytes, type_: type[Body], known: int = SCHEMA) -> Body:
        what = f"cannot read the answer of the agent at {self.name}"
        try:
            schema = msgspec.json.decode(body, type=prepared(_Versioned)).schema
            if schema == known:
                return msgspec.json.decode(body, type=prepared(type_))
        except UNREADABLE as error:
            raise GpuwatchError(what, str(error), "is it an agent of gpuwatch?") from error
        why = f"it speaks schema {schema}, this gpuwatch knows {known}" if schema else "it names no schema"
        raise GpuwatchError(what, why, "use the gpuwatch version of the agent")


class AgentSearch(NamedTuple):
    """The agent that was found, and one line that names it, or the places where none answered, and why."""

    client: AgentClient | None
    message: str


def find_agent(settings: AgentConfig, timeout: float = TIMEOUT) -> AgentSearch:
    """Look for the agent of this node where its own settings put it, then on the usual sockets."""
    reasons = []
    for path in agent_sockets(settings):
        client = AgentClient(str(path), timeout, settings.socket_uid)
        why = client.refusal()
        if why is None:
            return AgentSearch(client, f"asked the agent at {client.name}")
        reasons.append(f"{path} ({why})")
    return AgentSearch(None, f"no agent at {' or '.join(reasons)}")


def agent_of_node(settings: AgentConfig, timeout: float = TIMEOUT) -> AgentClient:
    """The agent where the settings put it; else one that answers, else where one usually listens."""
    named = AgentClient(settings.socket or None, timeout, settings.socket_uid)
    return named if settings.socket else find_agent(settings, timeout).client or named


def agent_sockets(settings: AgentConfig) -> tuple[Path, ...]:
    """Where the agent of this node may listen: its variable or the file that `settings` come from, then the usual."""
    named = os.environ.get("GPUWATCH_AGENT_SOCKET") or settings.socket
    usual: tuple[Path, ...] = (SYSTEM_SOCKET,)
    with contextlib.suppress(UsageError):  # a user without a run folder has no agent there
        usual = (runtime_dir() / "agent.sock", SYSTEM_SOCKET)
    return tuple(dict.fromkeys((Path(named), *usual) if named else usual))


class ViewSource(Protocol):
    """Where Views come from: the agent, a recording or a simulated fleet."""

    @property
    def view(self) -> View | None:
        """The newest, None before the first."""
        ...

    @property
    def age(self) -> float:
        """Seconds since it was published; infinite before the first."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why there is no View, or no newer one."""
        ...


class AgentViews:
    """Follows one agent. `poll` waits for a newer View; the other members are about the newest one."""

    def __init__(self, agent: AgentClient, clock: Clock) -> None:
        self._agent, self._clock = agent, clock
        self._received = -math.inf
        self.view: View | None = None
        self.trouble: str | None = "the agent has not been asked yet"

    @property
    def age(self) -> float:
        """Seconds since the newest View was published; infinite before the first."""
        return self._clock.monotonic() - self._received

    def poll(self, wait: float = 0.0) -> bool:
        """Wait up to `wait` seconds for a newer View; whether one came. Never raises: see `trouble`."""
        after = None if self.view is None else self.view.snapshot.at
        try:
            view = self._agent.view(after=after, wait=wait)
        except GpuwatchError as error:
            if self.trouble != str(error):
                log.warning("%s; nothing new is done until it answers", error)
            self.trouble = str(error)
            return False
        if self.trouble is not None:
            log.info("the agent at %s answers", self._agent.name)
        self.trouble = None
        if self.view is not None and view.snapshot.at == after:
            return False
        self.view = view
        self._received = self._clock.monotonic() - max(0.0, self._clock.time() - view.snapshot.at)
        return True
