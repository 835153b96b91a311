"""Refusals as kube-apiserver words them (apimachinery, pkg/api/errors): clients branch on them, people read them."""

from collections.abc import Sequence

import msgspec

from gpuwatch.sim.kubeapi.message import Object
from gpuwatch.sim.kubeapi.resources import Resource

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One field that is wrong."""

    reason: str
    """FieldValueRequired, FieldValueInvalid, FieldValueNotSupported, FieldValueDuplicate, FieldValueTooLong, ..."""
    message: str
    field: str


class ApiError(Exception):
    """A request refused; `status` is the Status object that says why."""

    def __init__(self, code: int, reason: str, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            **({} if details is None else {"details": details}),
            "code": code,
        }

    @property
    def retry_after(self) -> int | None:
        """Seconds to name in Retry-After."""
        seconds: int | None = self.status.get("details", {}).get("retryAfterSeconds")
        return seconds


def success(code: int = 200, details: Object | None = None) -> Object:
    """A Status that says that it was done."""
    status: Object = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {**status, "code": code} if details is None else {**status, "details": details}


def details_of(resource: Resource, name: str, *, kind: str | None = None) -> Object:
    """Say which object it was about; the plural stands for the kind, but where a kind is given."""
    parts = {"name": name, "group": resource.group, "kind": kind or resource.plural}
    return {key: value for key, value in parts.items() if value}


def not_found(resource: Resource, name: str) -> ApiError:
    """No object of this name."""
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', details_of(resource, name))


def already_exists(resource: Resource, name: str) -> ApiError:
    """The name is taken."""
    message = f'{resource.qualified} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details_of(resource, name))


def conflict(resource: Resource, name: str, why: str = MODIFIED) -> ApiError:
    """Another write came first, or a precondition does not hold."""
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, details_of(resource, name))


def invalid(resource: Resource, name: str, causes: Sequence[Cause]) -> ApiError:
    """The object breaks rules of its kind; every broken one is named."""
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = details_of(resource, name, kind=resource.kind)
    details["causes"] = [msgspec.structs.asdict(cause) for cause in causes]
    return ApiError(422, "Invalid", f'{resource.qualified_kind} "{name}" is invalid: {listed}', details)


def bad_request(message: str) -> ApiError:
    """The request itself makes no sense."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """Nobody knows this token."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def no_such_resource() -> ApiError:
    """The path names no resource that is served."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> ApiError:
    """The resource has no such verb."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def unsupported_media_type() -> ApiError:
    """The body is in a format that is not spoken here."""
    message = "the body of the request was in an unknown format - accepted media types include: application/json"
    return ApiError(415, "UnsupportedMediaType", message, {})


def expired(message: str) -> ApiError:
    """The history asked for is gone: list anew."""
    return ApiError(410, "Expired", message)


def too_many_requests(message: str, retry_after: int = 0) -> ApiError:
    """Come back later; 0 names no time."""
    details: Object = {"retryAfterSeconds": retry_after} if retry_after else {}
    return ApiError(429, "TooManyRequests", message, details)
