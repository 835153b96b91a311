"""The API server without its sockets: who asks, may they, what goes wrong, what is done."""

import random
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.sim.kubeapi.access import ANONYMOUS, EVERYTHING, Access, Rule
from gpuwatch.sim.kubeapi.discovery import discover
from gpuwatch.sim.kubeapi.eviction import Evictions
from gpuwatch.sim.kubeapi.faults import ApiFaults, Fault
from gpuwatch.sim.kubeapi.message import Object, Request, Response, reply
from gpuwatch.sim.kubeapi.objects import node_object, pod_object, running
from gpuwatch.sim.kubeapi.reads import Reads
from gpuwatch.sim.kubeapi.resources import BY_PLURAL
from gpuwatch.sim.kubeapi.route import Call, call_of
from gpuwatch.sim.kubeapi.status import ApiError, method_not_allowed
from gpuwatch.sim.kubeapi.store import Key, Store, Write
from gpuwatch.sim.kubeapi.watch import Watch
from gpuwatch.sim.kubeapi.writes import Writes

ADMIN = "admin"
_BOOKMARK_SECONDS = 60.0
_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class Cluster:
    """A cluster's state behind one lock; any thread may call anything.

    Objects that methods return are the stored ones: look, never change them.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        seed: int = 0,
        history: int = 10_000,
        live_budgets: bool = True,
        anonymous: str = ANONYMOUS,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.lock = threading.RLock()
        self.store = Store(history)
        self.observers: list[Callable[[Write], None]] = []
        """Called with every committed write, under the lock, in the thread that wrote."""
        self.requests: Counter[tuple[str, str, str]] = Counter()
        """Requests by user, verb and resource (`nodes`, `nodes/status`), refused ones and failed ones too."""
        self.access = Access(anonymous)
        self.on_gone: list[Callable[[bool], None]] = []
        """Called when the server goes, and when it comes back."""
        self._faults = ApiFaults()
        self._chance = random.Random(seed)  # noqa: S311
        self._reads = Reads(self.store, self.clock)
        self._writes = Writes(self.store, self.clock, random.Random(f"names {seed}"))  # noqa: S311
        self._evictions = Evictions(self.store, self._writes, self.clock, live_budgets=live_budgets)
        self._bookmark_due = self.clock.monotonic() + _BOOKMARK_SECONDS
        self.store.listeners.append(self._observe)
        self.add_user(ADMIN)
        for name in _NAMESPACES:
            self.add_namespace(name)

    @property
    def faults(self) -> ApiFaults:
        """What goes wrong now; assign another one to change it."""
        return self._faults

    @faults.setter
    def faults(self, faults: ApiFaults) -> None:
        with self.lock:
            was, self._faults = self._faults, faults
        if was.gone != faults.gone:
            for tell in self.on_gone:
                tell(faults.gone)

    def handle(self, request: Request) -> Response:
        """Answer one request. Never raises for anything a client can send."""
        with self.lock:
            self.tick()
            try:
                return self._answer(request)
            except ApiError as error:
                return _refused(error)

    def tick(self) -> None:
        """Do what is due by the clock: pods go, watches end. Every request does it first, so does the server."""
        with self.lock:
            bookmark = self.clock.monotonic() >= self._bookmark_due
            if bookmark:
                self._bookmark_due = self.clock.monotonic() + _BOOKMARK_SECONDS
            self._writes.tick()
            self._reads.tick(bookmark=bookmark)

    def drop(self, watch: Watch) -> None:
        """Forget a watch whose reader has left."""
        with self.lock:
            self._reads.drop(watch)

    @property
    def open_watches(self) -> int:
        """Watches that are being fed."""
        return self._reads.open_watches

    def add_user(self, user: str, rules: Sequence[Rule] = EVERYTHING, *, token: str | None = None) -> str:
        """Let a user in, or give one other rights; returns a bearer token."""
        token = token or secrets.token_urlsafe(16)
        self.access.add(user, tuple(rules), token)
        return token

    def get(self, resource: str, namespace: str, name: str) -> Object | None:
        """One object; `namespace` is empty for cluster-scoped ones."""
        with self.lock:
            self.tick()
            return self.store.get(Key(resource, namespace, name))

    def objects(self, resource: str, namespace: str = "") -> list[Object]:
        """All objects of a resource, by namespace and name."""
        with self.lock:
            self.tick()
            return self.store.all(resource, namespace)

    def nodes(self) -> list[Object]:
        """All nodes, by name."""
        return self.objects("nodes")

    def add_namespace(self, name: str) -> Object:
        """Make sure that there is such a namespace."""
        with self.lock:
            found = self.store.get(Key("namespaces", "", name))
            return found or self.create("namespaces", {"metadata": {"name": name}})

    def create(self, resource: str, value: Object, *, namespace: str = "", user: str = ADMIN) -> Object:
        """Create any object by the server's rules. Raises ApiError."""
        with self.lock:
            return self._writes.insert(BY_PLURAL[resource], namespace, value, user)

    def put(self, resource: str, value: Object, *, user: str = ADMIN) -> Object:
        """Store an object as it is, status and all, whatever the rules: the hand of kubelets and controllers."""
        metadata = value["metadata"]
        with self.lock:
            return self.store.put(Key(resource, metadata.get("namespace", ""), metadata["name"]), value, user)

    def delete(self, resource: str, namespace: str, name: str, *, grace: int | None = None, user: str = ADMIN) -> None:
        """Delete an object, if it exists; pods get their own grace where `grace` is None."""
        with self.lock:
            found = self.store.get(Key(resource, namespace, name))
            if found is not None:
                self._writes.remove(BY_PLURAL[resource], found, {"gracePeriodSeconds": grace}, user)

    def add_node(
        self,
        name: str,
        machine_id: str = "",
        boot_id: str = "",
        labels: Mapping[str, str] | None = None,
        gpus: int = 8,
    ) -> Object:
        """A node that is Ready and has no taint."""
        value = node_object(
            name,
            machine_id=machine_id or f"machine-of-{name}",
            boot_id=boot_id or f"boot-of-{name}",
            labels=labels or {},
            gpus=gpus,
            now=self.clock.time(),
        )
        with self.lock:
            node = self.create("nodes", value, user=f"system:node:{name}")
            spec = {key: each for key, each in node["spec"].items() if key != "taints"}
            return self.put("nodes", {**node, "spec": spec}, user="system:node-controller")

    def add_pod(
        self,
        namespace: str,
        name: str,
        node: str | None = None,
        labels: Mapping[str, str] | None = None,
        gpus: int = 1,
        owner_kind: str | None = "ReplicaSet",
        *,
        owner: str | None = None,
        tolerations: Sequence[Object] = (),
    ) -> Object:
        """A pod, running and ready on `node`, or pending without one.

        `owner` is the name of its controller, by default the pod's name up to the last dash; every pod added to a
        controller is one more that it wants to have.
        """
        self.add_namespace(namespace)
        by = None if owner_kind is None else (owner_kind, owner or name.rpartition("-")[0] or name)
        value = pod_object(namespace, name, labels=labels or {}, gpus=gpus, owner=by, tolerations=tolerations)
        with self.lock:
            pod = self.create("pods", value, namespace=namespace)
            if by is not None:
                uid = pod["metadata"]["ownerReferences"][0]["uid"]
                self._evictions.replicas[uid] = self._evictions.replicas.get(uid, 0) + 1
            return pod if node is None else self.put("pods", running(pod, node, self.clock.time()))

    def add_pdb(
        self,
        namespace: str,
        name: str,
        labels: Mapping[str, str],
        *,
        min_available: int | str | None = None,
        max_unavailable: int | str | None = None,
    ) -> Object:
        """A PodDisruptionBudget for the pods with these labels; a string is a percentage."""
        self.add_namespace(namespace)
        bounds = {"minAvailable": min_available, "maxUnavailable": max_unavailable}
        spec: Object = {"selector": {"matchLabels": dict(labels)}, **bounds}
        return self.create("poddisruptionbudgets", {"metadata": {"name": name}, "spec": spec}, namespace=namespace)

    def _observe(self, write: Write) -> None:
        for observer in self.observers:
            observer(write)

    def _answer(self, request: Request) -> Response:
        user = self.access.user_of(request.headers)
        call = call_of(request)
        if call is None:
            self.access.check_path(user, request.path)
            if request.method not in ("GET", "HEAD"):
                raise method_not_allowed()
            return discover(request.path)
        self.requests[user, call.verb, call.target] += 1
        fault, late = self._faults.draw(self._chance) if self._faults.concern(call, user) else (None, 0.0)
        if fault in ("reset_before", "hang"):
            return Response(fate="reset" if fault == "reset_before" else "hang")
        if fault in _FAILURES:
            raise _failure(fault, self._faults.retry_after)
        self.access.check(user, call)
        response = self._done(call, user)
        return msgspec.structs.replace(response, delay=late, fate="reset" if fault == "reset_after" else "answered")

    def _done(self, call: Call, user: str) -> Response:
        if call.subresource == "eviction":
            return reply(self._evictions.evict(call, user), 201)
        if call.verb == "watch":
            return Response(watch=self._reads.watch(call))
        if call.verb == "create":
            return reply(self._writes.create(call, user), 201)
        if call.verb == "deletecollection":
            return reply(self._delete_all(call, user))
        value = {
            "get": lambda: self._reads.get(call),
            "list": lambda: self._reads.list(call),
            "update": lambda: self._writes.replace(call, user),
            "patch": lambda: self._writes.patch(call, user),
            "delete": lambda: self._writes.delete(call, user),
        }[call.verb]()
        return reply(self._with_budgets(value))

    def _delete_all(self, call: Call, user: str) -> Object:
        found = self._reads.list(call)
        for each in found["items"]:
            metadata = each["metadata"]
            one = msgspec.structs.replace(
                call, name=metadata["name"], namespace=metadata.get("namespace", ""), verb="delete"
            )
            self._writes.delete(one, user)
        return found

    def _with_budgets(self, value: Object) -> Object:
        if value.get("kind") == "PodDisruptionBudget":
            return self._evictions.status_of(value)
        if value.get("kind") == "PodDisruptionBudgetList":
            return {**value, "items": [self._evictions.status_of(each) for each in value["items"]]}
        return value


_FAILURES: dict[Fault | None, tuple[int, str, str]] = {
    "throttle": (429, "TooManyRequests", "Too many requests, please try again later."),
    "internal_error": (500, "InternalError", "Internal error occurred: simulated"),
    "unavailable": (503, "ServiceUnavailable", "the server is currently unable to handle the request"),
}


def _failure(fault: Fault | None, retry_after: int) -> ApiError:
    code, reason, message = _FAILURES[fault]
    return ApiError(code, reason, message, {"retryAfterSeconds": retry_after} if retry_after and code != 500 else {})


def _refused(error: ApiError) -> Response:
    headers = () if error.retry_after is None else (("Retry-After", str(error.retry_after)),)
    return reply(error.status, error.code, headers)
