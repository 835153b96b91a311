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
            **({"reason": reason} if reason else {}),
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


def other_uid(resource: Resource, namespace: str, name: str, wanted: str, current: str) -> ApiError:
    """The object of this name is another one than the one that was meant."""
    key = "/".join(part for part in (resource.plural, namespace, name) if part)
    why = (
        f"StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {current}"
    )
    return conflict(resource, name, why)


def unmet(resource: Resource, name: str, why: str) -> ApiError:
    """A precondition of a deletion does not hold; the real server names the kind where others name the plural."""
    message = f'Operation cannot be fulfilled on {resource.qualified_kind} "{name}": {why}'
    return ApiError(409, "Conflict", message, details_of(resource, name, kind=resource.kind))


def conflict(resource: Resource, name: str, why: str = MODIFIED) -> ApiError:
    """Another write came first."""
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, details_of(resource, name))


def unversioned(resource: Resource, name: str) -> ApiError:
    """A PUT must say which version it replaces."""
    message = "Invalid value: 0: must be specified for an update"
    cause = Cause(reason="FieldValueInvalid", message=message, field="metadata.resourceVersion")
    error = invalid(resource, name, [cause])
    text = error.status["message"].replace(resource.qualified_kind, resource.qualified, 1)
    return ApiError(422, "Invalid", text, {**error.status["details"], "kind": resource.plural})


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
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def expired(message: str) -> ApiError:
    """The history asked for is gone: list anew."""
    return ApiError(410, "Expired", message)


def too_many_requests(message: str, retry_after: int = 0) -> ApiError:
    """Come back later; 0 names no time."""
    details: Object = {"retryAfterSeconds": retry_after} if retry_after else {}
    return ApiError(429, "TooManyRequests", message, details)
