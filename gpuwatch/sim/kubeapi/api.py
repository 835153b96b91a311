"""One request from arrival to answer: who asks, what goes wrong, may they, what is done."""

import random
from collections import Counter

import msgspec

from gpuwatch.model.clock import Clock
from gpuwatch.sim.kubeapi.access import REVIEWS, Access
from gpuwatch.sim.kubeapi.bodies import object_in
from gpuwatch.sim.kubeapi.discovery import discover
from gpuwatch.sim.kubeapi.eviction import Evictions
from gpuwatch.sim.kubeapi.faults import ApiFaults, Fault
from gpuwatch.sim.kubeapi.message import Object, Request, Response, reply
from gpuwatch.sim.kubeapi.reads import Reads
from gpuwatch.sim.kubeapi.route import Call, call_of
from gpuwatch.sim.kubeapi.shapes import ShapeError
from gpuwatch.sim.kubeapi.status import ApiError, bad_request, method_not_allowed
from gpuwatch.sim.kubeapi.store import Store
from gpuwatch.sim.kubeapi.tables import table_of, wants_table
from gpuwatch.sim.kubeapi.writes import Writes

_BOOKMARK_SECONDS = 60.0
_FAILURES: dict[Fault | None, tuple[int, str, str]] = {
    "throttle": (429, "TooManyRequests", "Too many requests, please try again later."),
    "internal_error": (500, "InternalError", "Internal error occurred: simulated"),
    "unavailable": (503, "ServiceUnavailable", "the server is currently unable to handle the request"),
}


class Api:
    """The API over a store. Not thread-safe: whoever holds the cluster's lock may call."""

    def __init__(self, store: Store, clock: Clock, *, seed: int, live_budgets: bool, anonymous: str) -> None:
        self.access = Access(store, anonymous)
        self.faults = ApiFaults()
        self.requests: Counter[tuple[str, str, str]] = Counter()
        self.reads = Reads(store, clock)
        self.writes = Writes(store, clock, random.Random(f"names {seed}"))  # noqa: S311
        self.evictions = Evictions(store, self.writes, clock, live_budgets=live_budgets)
        self._clock, self._chance = clock, random.Random(seed)  # noqa: S311
        self._bookmark_due = clock.monotonic() + _BOOKMARK_SECONDS

    def tick(self) -> None:
        """Do what is due by the clock."""
        bookmark = self._clock.monotonic() >= self._bookmark_due
        if bookmark:
            self._bookmark_due = self._clock.monotonic() + _BOOKMARK_SECONDS
        self.writes.tick()
        self.reads.tick(bookmark=bookmark)

    def handle(self, request: Request) -> Response:
        """Answer one request; never raises for anything a client can send."""
        try:
            return self._answer(request)
        except ApiError as error:
            headers = () if error.retry_after is None else (("Retry-After", str(error.retry_after)),)
            return reply(error.status, error.code, headers)
        except ShapeError as error:
            refusal = _of_another_shape(request, str(error))
            return reply(refusal.status, refusal.code)

    def _answer(self, request: Request) -> Response:
        user = self.access.user_of(request.headers)
        call = call_of(request)
        if call is None:
            if request.path == REVIEWS and request.method == "POST":
                return reply(self.access.review(user, object_in(request)), 201)
            self.access.check_path(user, request.path)
            if request.method not in ("GET", "HEAD"):
                raise method_not_allowed()
            return discover(request.path)
        self.requests[user, call.verb, call.target] += 1
        fault, late = self.faults.draw(self._chance) if self.faults.concern(call, user) else (None, 0.0)
        if fault in ("reset_before", "hang"):
            return Response(fate="reset" if fault == "reset_before" else "hang")
        if fault in _FAILURES:
            raise _failure(fault, self.faults.retry_after)
        self.access.check(user, call)
        response = self._done(call, user, request.headers.get("accept", ""))
        return msgspec.structs.replace(response, delay=late, fate="reset" if fault == "reset_after" else "answered")

    def _done(self, call: Call, user: str, accept: str) -> Response:
        if call.subresource == "eviction":
            return reply(self.evictions.evict(call, user), 201)
        if call.verb == "watch":
            return Response(watch=self.reads.watch(call))
        if call.verb == "create":
            return reply(self.writes.create(call, user), 201)
        if call.verb == "deletecollection":
            return reply(self._delete_all(call, user))
        if call.verb == "update":
            code, value = self.writes.replace(call, user)
            return reply(self._with_budgets(value), code)
        value = {
            "get": lambda: self.reads.get(call),
            "list": lambda: self._listed(call, accept),
            "patch": lambda: self.writes.patch(call, user),
            "delete": lambda: self.writes.delete(call, user),
        }[call.verb]()
        return reply(self._with_budgets(value))

    def _listed(self, call: Call, accept: str) -> Object:
        found = self.reads.list(call)
        return table_of(found, call.query.get("includeObject", "")) if wants_table(accept) else found

    def _delete_all(self, call: Call, user: str) -> Object:
        found = self.reads.list(call)
        for each in found["items"]:
            metadata = each["metadata"]
            one = msgspec.structs.replace(
                call, name=metadata["name"], namespace=metadata.get("namespace", ""), verb="delete"
            )
            self.writes.delete(one, user)
        return found

    def _with_budgets(self, value: Object) -> Object:
        if value.get("kind") == "PodDisruptionBudget":
            return self.evictions.status_of(value)
        if value.get("kind") == "PodDisruptionBudgetList":
            return {**value, "items": [self.evictions.status_of(each) for each in value["items"]]}
        return value


def _of_another_shape(request: Request, why: str) -> ApiError:
    if request.method != "PATCH":
        return bad_request(why)
    cause = {"reason": "FieldValueInvalid", "message": f"Invalid value: {why}", "field": "patch"}
    return ApiError(422, "Invalid", f' "" is invalid: patch: Invalid value: {why}', {"causes": [cause]})


def _failure(fault: Fault | None, retry_after: int) -> ApiError:
    code, reason, message = _FAILURES[fault]
    return ApiError(code, reason, message, {"retryAfterSeconds": retry_after} if retry_after and code != 500 else {})
