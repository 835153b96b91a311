"""Requests, answers and refusals. Codes and reasons are kube-apiserver's (apimachinery, pkg/api/errors): clients branch
on them. No sockets here.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import msgspec

Object = dict[str, Any]
"""A Kubernetes object or Status as JSON has it. Stored ones are shared: copy one to change it."""

Delivery = Literal["answered", "reset", "hang"]
"""The delivery of an answer: sent, lost with the connection, or never sent."""

_EMPTY: Mapping[str, str] = MappingProxyType({})


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request."""

    method: str = "GET"
    path: str
    """Percent-decoded, without the query."""
    query: Mapping[str, str] = _EMPTY
    headers: Mapping[str, str] = _EMPTY
    """Names in lower case."""
    body: bytes = b""


class ApiResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP answer, and the fault of the network that hits it."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    delay: float = 0.0
    """Seconds the answer is held back after everything else was done."""
    delivery: Delivery = "answered"

    def json(self) -> Object:
        """The body as an object."""
        decoded: Object = msgspec.json.decode(self.body)
        return decoded


def reply(content: Any, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> ApiResponse:
    """Return `content` as JSON."""
    return ApiResponse(status=status, body=msgspec.json.encode(content), headers=headers)


class StatusCause(msgspec.Struct, frozen=True, kw_only=True):
    """One field that is wrong. `reason`: FieldValueRequired, FieldValueInvalid, FieldValueNotSupported, ..."""

    reason: str
    message: str
    field: str


class ApiError(Exception):
    """A request refused; `status` is the Status object with the reason."""

    def __init__(self, code: int, reason: str, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            **({"reason": reason} if reason else {}),
            **({} if details is None else {"details": details}),
            "code": code,
        }

    @property
    def retry_after(self) -> int | None:
        """Seconds to name in Retry-After."""
        seconds: int | None = self.status.get("details", {}).get("retryAfterSeconds")
        return seconds


def bad_request(message: str) -> ApiError:
    """The request itself makes no sense."""
    return ApiError(400, "BadRequest", message)


def not_found(group: str, plural: str, name: str) -> ApiError:
    """No object of this name."""
    details = details_of(group, plural, name)
    return ApiError(404, "NotFound", f'{qualified(group, plural)} "{name}" not found', details)


def conflict(group: str, plural: str, name: str, why: str) -> ApiError:
    """Another write came first, or the object is not the one that the request is about."""
    message = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
    return ApiError(409, "Conflict", message, details_of(group, plural, name))


def invalid(group: str, kind: str, name: str, causes: Sequence[StatusCause]) -> ApiError:
    """The object breaks rules of its kind; every broken one is named."""
    texts = ", ".join(f"{cause.field}: {cause.message}" for cause in causes)
    details = details_of(group, kind, name)
    details["causes"] = [msgspec.structs.asdict(cause) for cause in causes]
    return ApiError(422, "Invalid", f'{qualified(group, kind)} "{name}" is invalid: {texts}', details)


def details_of(group: str, kind: str, name: str) -> Object:
    """Which object a Status is about; the API gives the plural as `kind`, except for invalid objects."""
    parts = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in parts.items() if value}


def qualified(group: str, kind: str) -> str:
    """Kind or plural with its group, as messages name it."""
    return f"{kind}.{group}" if group else kind
