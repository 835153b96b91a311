"""Errors of the API server, distinguished by what to do next, and how long to wait after them."""

import random
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import UNREADABLE

MAX_RETRY_AFTER = 300.0
"""Most seconds of a Retry-After that are respected."""


class ApiCall(NamedTuple):
    """One request in RBAC's words: what would have to be allowed."""

    verb: str
    resource: str  # with its subresource: nodes/status
    name: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        place = "/".join(filter(None, (self.namespace, self.name)))
        return f"{self.verb} {self.resource}{f' {place}' if place else ''}"


class KubeError(GpuwatchError):
    """The API server did not do what `call` asked. `retry_after`: seconds to leave it alone, if it asks for that."""

    def __init__(self, call: ApiCall, why: str, next_step: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(f"cannot {call}", why, next_step)
        self.call, self.retry_after = call, retry_after


class Conflict(KubeError):
    """Another writer was faster, or it is another object of the same name: read and plan again."""


class NotFound(KubeError):
    """There is no such object."""


class AlreadyExists(KubeError):
    """It was created before, possibly by our own request whose answer was lost."""


class Gone(KubeError):
    """The requested revision is no longer kept: list again."""


class Invalid(KubeError):
    """The server finds the request wrong; sending it again does not help."""


class Forbidden(KubeError):
    """A right is missing; `call` names verb and resource. Also what an admission policy refuses."""

    exit_code = 6


class Unauthorized(KubeError):
    """The credentials are not, or no longer, good."""

    exit_code = 6


class TooMany(KubeError):
    """Not now: the server is busy, or (`disruption_budget`) a PodDisruptionBudget does not allow the eviction yet."""

    def __init__(
        self, call: ApiCall, why: str, next_step: str = "", *, retry_after: float | None, disruption_budget: bool
    ) -> None:
        super().__init__(call, why, next_step, retry_after=retry_after)
        self.disruption_budget = disruption_budget


class Unavailable(KubeError):
    """No answer, half an answer or a server error. What was asked may or may not have been done."""


class Garbled(Unavailable):
    """The answer is not one of an API server: a proxy's page, or a body cut short."""


_BY_STATUS: dict[int, tuple[type[KubeError], str]] = {
    400: (Invalid, "is this gpuwatch newer than the API server?"),
    401: (Unauthorized, "check the service account or the kubeconfig"),
    403: (Forbidden, "grant {verb} on {resource}"),
    404: (NotFound, ""),
    409: (Conflict, ""),
    410: (Gone, ""),
    422: (Invalid, "is this gpuwatch newer than the API server?"),
}


class _Cause(msgspec.Struct):
    reason: str = ""


class _Details(msgspec.Struct, rename="camel"):
    causes: list[_Cause] | None = None
    retry_after_seconds: float | None = None


class _Status(msgspec.Struct):
    """The Status object (apimachinery meta/v1), as much of it as matters."""

    message: str = ""
    reason: str = ""
    details: _Details | None = None


def error_of(call: ApiCall, code: int, headers: Mapping[str, str], body: bytes) -> KubeError:
    """The error that a status code other than 2xx stands for; the body need not be a Status."""
    try:
        status = msgspec.json.decode(body, type=prepared(_Status))
    except UNREADABLE:
        status = _Status(message=" ".join(body[:200].decode("utf-8", "replace").split()))
    why = status.message or f"status {code}"
    wait = status.details.retry_after_seconds if status.details else None
    header = headers.get("Retry-After", "")
    if header.isascii() and header.isdigit():  # API servers do not use the form with a date
        wait = float(header)
    if wait is not None:
        wait = min(max(wait, 0.0), MAX_RETRY_AFTER)
    if code == 429:
        causes = status.details.causes or [] if status.details else []
        budget = any(cause.reason == "DisruptionBudget" for cause in causes)
        return TooMany(call, why, "", retry_after=wait, disruption_budget=budget)
    if code == 409 and status.reason == "AlreadyExists":
        return AlreadyExists(call, why)
    kind, step = _BY_STATUS.get(code, (Unavailable, ""))
    if kind is Unavailable:
        why = f"status {code}: {why}" if status.message else why
    return kind(call, why, step.format(verb=call.verb, resource=call.resource), retry_after=wait)


FIRST_SECONDS = 0.5
LONGEST_SECONDS = 60.0


class Backoff:
    """Doubles with each failure in a row; `chance` spreads a fleet that failed at the same moment."""

    def __init__(self, chance: random.Random) -> None:
        self._chance, self._failures = chance, 0

    def failed(self, retry_after: float | None = None) -> float:
        """Seconds to wait now; never less than the server asked for."""
        wait = min(FIRST_SECONDS * 2.0**self._failures, LONGEST_SECONDS)
        self._failures = min(self._failures + 1, 16)
        return (retry_after or 0.0) + wait * self._chance.uniform(0.5, 1.0)

    def succeeded(self) -> None:
        """The next failure counts as the first."""
        self._failures = 0
