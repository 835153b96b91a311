"""The API server without its sockets, with methods for tests and demonstrations to change and read its state."""

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence

from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.sim.kubeapi.access import EVERYTHING, AccessRule
from gpuwatch.sim.kubeapi.api import Api
from gpuwatch.sim.kubeapi.faults import ApiFaults
from gpuwatch.sim.kubeapi.messages import ApiRequest, ApiResponse, Object
from gpuwatch.sim.kubeapi.objects import node_object, pod_object, running
from gpuwatch.sim.kubeapi.resources import RESOURCES
from gpuwatch.sim.kubeapi.store import CommittedWrite, ObjectKey, ObjectStore

ADMIN = "admin"
_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class SimulatedCluster:
    """A cluster's state behind one lock; any thread may call anything.

    Objects that methods return are the stored ones: callers must not change them.
    """

    def __init__(self, clock: Clock | None = None, *, seed: int = 0) -> None:
        self.clock: Clock = clock or SystemClock()
        self.lock = threading.RLock()
        self._store = ObjectStore()
        self.observers: list[Callable[[CommittedWrite], None]] = self._store.listeners
        """Called with every committed write, under the lock, in the thread that wrote."""
        self.on_gone: list[Callable[[bool], None]] = []
        """Called when the server goes, and when it comes back."""
        self._api = Api(self._store, self.clock, seed=seed)
        self.access, self.requests = self._api.access, self._api.requests
        self.replicas = self._api.evictions.replicas
        """By uid of a controller: how many pods it wants."""
        self.add_user(ADMIN)
        for name in _NAMESPACES:
            self.add_namespace(name)

    @property
    def faults(self) -> ApiFaults:
        """The present faults; assign another value to change them, but not while holding the lock."""
        return self._api.faults

    @faults.setter
    def faults(self, faults: ApiFaults) -> None:
        with self.lock:
            was, self._api.faults = self._api.faults, faults
        if was.gone != faults.gone:
            for notify in self.on_gone:
                notify(faults.gone)

    def handle(self, request: ApiRequest) -> ApiResponse:
        """Answer one request. Never raises for anything a client can send."""
        with self.lock:
            self.tick()
            return self._api.handle(request)

    def tick(self) -> None:
        """Remove pods whose grace period is over. Every request and the server do it first."""
        with self.lock:
            self._api.writer.tick()

    def add_user(self, user: str, rules: Sequence[AccessRule] = EVERYTHING, *, token: str | None = None) -> str:
        """Add a user, or replace the rights of one; returns a bearer token."""
        token = token or secrets.token_urlsafe(16)
        self.access.add(user, tuple(rules), token)
        return token

    def get(self, resource: str, namespace: str, name: str) -> Object | None:
        """One object; `namespace` is empty for cluster-scoped ones."""
        with self.lock:
            self.tick()
            return self._store.get(ObjectKey(resource, namespace, name))

    def objects(self, resource: str, namespace: str = "") -> list[Object]:
        """All objects of a resource, by namespace and name."""
        with self.lock:
            self.tick()
            return self._store.all(resource, namespace)

    def pods_on(self, node: str) -> list[Object]:
        """Pods bound to a node."""
        with self.lock:
            self.tick()
            return self._store.pods_on(node)

    def nodes(self) -> list[Object]:
        """All nodes, by name."""
        return self.objects("nodes")

    def serve_device_taints(self) -> None:
        """Serve DeviceTaintRules from now on, as a cluster whose feature gates are on."""
        self._api.absent.discard("devicetaintrules")

    def add_namespace(self, name: str) -> Object:
        """Create the namespace if it does not exist."""
        with self.lock:
            found = self._store.get(ObjectKey("namespaces", "", name))
            return found or self.create("namespaces", {"metadata": {"name": name}})

    def create(self, resource: str, value: Object, *, namespace: str = "", user: str = ADMIN) -> Object:
        """Create any object by the server's rules. Raises ApiError."""
        with self.lock:
            return self._api.writer.create(RESOURCES[resource], namespace, value, user)

    def put(self, resource: str, value: Object, *, user: str = ADMIN) -> Object:
        """Store an object as it is, with its status and without any check, as kubelets and controllers do."""
        metadata = value["metadata"]
        with self.lock:
            return self._store.put(ObjectKey(resource, metadata.get("namespace", ""), metadata["name"]), value, user)

    def delete(self, resource: str, namespace: str, name: str, *, grace: int | None = None, user: str = ADMIN) -> None:
        """Delete an object, if it exists; pods get their own grace where `grace` is None."""
        with self.lock:
            found = self._store.get(ObjectKey(resource, namespace, name))
            if found is not None:
                self._api.writer.remove(RESOURCES[resource], found, grace, user)

    def add_node(
        self, name: str, machine_id: str = "", boot_id: str = "", labels: Mapping[str, str] | None = None, gpus: int = 8
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

        `owner` is the name of its controller, by default the pod's name up to the last dash; every pod that is
        added to a controller raises its number of wanted pods by one.
        """
        self.add_namespace(namespace)
        by = None if owner_kind is None else (owner_kind, owner or name.rpartition("-")[0] or name)
        value = pod_object(namespace, name, labels=labels or {}, gpus=gpus, owner=by, tolerations=tolerations)
        with self.lock:
            pod = self.create("pods", value, namespace=namespace)
            if by is not None:
                uid = pod["metadata"]["ownerReferences"][0]["uid"]
                self.replicas[uid] = self.replicas.get(uid, 0) + 1
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
