"""One request from arrival to answer: authentication, injected faults, authorization, and execution."""

import base64
import random
from collections import Counter
from collections.abc import Iterable

import msgspec

from gpuwatch.model.clock import Clock
from gpuwatch.model.decoding import prepared
from gpuwatch.sim.kubeapi.access import Access
from gpuwatch.sim.kubeapi.eviction import EvictionApi
from gpuwatch.sim.kubeapi.faults import ApiFault, ApiFaults
from gpuwatch.sim.kubeapi.messages import ApiError, ApiRequest, ApiResponse, Object, bad_request, not_found, reply
from gpuwatch.sim.kubeapi.resources import ServerCall, call_of, discovered
from gpuwatch.sim.kubeapi.selectors import Selection
from gpuwatch.sim.kubeapi.store import ObjectKey, ObjectStore
from gpuwatch.sim.kubeapi.writes import ObjectWriter, decoded

_FAILURES: dict[ApiFault | None, tuple[int, str, str]] = {
    "throttle": (429, "TooManyRequests", "Too many requests, please try again later."),
    "internal_error": (500, "InternalError", "Internal error occurred: simulated"),
    "unavailable": (503, "ServiceUnavailable", "the server is currently unable to handle the request"),
}
_TABLE_COLUMNS = [{"name": "Name", "type": "string", "format": "", "description": "", "priority": 0}]
"""Columns of every table here; the real server has more for nodes and pods."""


class Api:
    """The API over a store. Not thread-safe: its callers hold the cluster's lock."""

    def __init__(self, store: ObjectStore, clock: Clock, *, seed: int) -> None:
        self.access = Access()
        self.faults = ApiFaults()
        self.absent = {"devicetaintrules"}
        """Resources that discovery does not list, as a cluster whose feature gates are off."""
        self.requests: Counter[tuple[str, str, str]] = Counter()
        """Requests by user, verb and resource (`nodes`, `nodes/status`), also refused and failed ones."""
        self.writer = ObjectWriter(store, clock, seed)
        self.evictions = EvictionApi(store, self.writer, clock)
        self._store, self._chance = store, random.Random(seed)  # noqa: S311

    def handle(self, request: ApiRequest) -> ApiResponse:
        """Answer one request; never raises for anything a client can send."""
        try:
            user = self.access.user_of(request.headers)
            if request.method == "GET" and (found := discovered(request.path, self.absent)) is not None:
                return reply(found, 200)
            call = call_of(request)
            self.requests[user, call.verb, call.target] += 1
            fault, delay = self.faults.draw(self._chance) if self.faults.concern(call, user) else (None, 0.0)
            if fault in ("reset_before", "hang"):
                return ApiResponse(delivery="reset" if fault == "reset_before" else "hang")
            if fault in _FAILURES:
                code, reason, message = _FAILURES[fault]
                seconds = self.faults.retry_after if code != 500 else 0
                raise ApiError(code, reason, message, {"retryAfterSeconds": seconds} if seconds else {})
            self.access.check(user, call)
            value = self._done(call, user)
            if call.resource.kind == "PodDisruptionBudget" and "spec" in value:
                value = self.evictions.with_status(value)
            delivery = "reset" if fault == "reset_after" else "answered"
            response = reply(value, 201 if call.verb == "create" else 200)
            return msgspec.structs.replace(response, delay=delay, delivery=delivery)
        except ApiError as error:
            headers = () if error.retry_after is None else (("Retry-After", str(error.retry_after)),)
            return reply(error.status, error.code, headers)

    def _done(self, call: ServerCall, user: str) -> Object:
        if call.subresource == "eviction":
            return self.evictions.evict(call, user)
        match call.verb:
            case "create":
                return self.writer.create(call.resource, call.namespace, decoded(call.request), user)
            case "patch":
                return self.writer.patch(call, user)
            case "delete":
                return self.writer.delete(call, user)
            case "list":
                listed = self._list(call)
                accept, *parameters = call.request.headers.get("accept", "").partition(",")[0].split(";")
                is_table = accept == "application/json" and "as=Table" in parameters
                return _table(listed, call.request.query.get("includeObject", "")) if is_table else listed
        key = ObjectKey(call.resource.plural, call.namespace, call.name)
        found = self._store.get(key)
        if found is None:
            raise not_found(call.resource.group, call.resource.plural, call.name)
        is_cached = self.faults.stale and call.request.query.get("resourceVersion") == "0"
        before = self._store.before(key) if is_cached and self._chance.random() < self.faults.stale else None
        return before or found

    def _list(self, call: ServerCall) -> Object:
        """Objects in the order of namespace and name, in pages where `limit` is given.

        The `continue` token holds the last place that was listed. Pages after the first show the current state, while
        kube-apiserver shows the revision of the first.
        """
        resource, limit = call.resource, call.number("limit")
        selection = Selection.of(resource, call.request.query)
        name, node = selection.only("metadata.name"), selection.only("spec.nodeName")
        candidates: Iterable[Object]
        if name is not None and (call.namespace or not resource.namespaced):
            one = self._store.get(ObjectKey(resource.plural, call.namespace, name))
            candidates = [] if one is None else [one]
        elif node and resource.plural == "pods":
            pods = self._store.pods_on(node)
            candidates = (pod for pod in pods if call.namespace in ("", pod["metadata"]["namespace"]))
        else:
            candidates = self._store.all(resource.plural, call.namespace)
        found = [each for each in candidates if selection.matches(each)]
        if token := call.request.query.get("continue"):
            try:
                after = msgspec.json.decode(base64.urlsafe_b64decode(token), type=prepared(tuple[str, str]))
            except ValueError as error:
                raise bad_request(f"continue key is not valid: {error}") from error
            found = [each for each in found if _place(each) > after]
        metadata: Object = {"resourceVersion": str(self._store.revision)}
        if limit and len(found) > limit:
            place = msgspec.json.encode(_place(found[limit - 1]))
            metadata["continue"] = base64.urlsafe_b64encode(place).decode()
            found = found[:limit]
        return {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": metadata,
            "items": [{key: part for key, part in each.items() if key not in ("kind", "apiVersion")} for each in found],
        }


def _place(value: Object) -> tuple[str, str]:
    return value["metadata"].get("namespace", ""), value["metadata"]["name"]


def _table(listed: Object, include: str) -> Object:
    """A list as a table, `Accept: application/json;as=Table`: cheap to count. `include`: the option includeObject."""
    kind, version = listed["kind"].removesuffix("List"), listed["apiVersion"]

    def included(each: Object) -> Object | None:
        if include == "None":
            return None
        if include == "Object":
            return {"kind": kind, "apiVersion": version, **each}
        return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": each["metadata"]}

    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": listed["metadata"],
        "columnDefinitions": _TABLE_COLUMNS,
        "rows": [{"cells": [each["metadata"]["name"]], "object": included(each)} for each in listed["items"]],
    }
