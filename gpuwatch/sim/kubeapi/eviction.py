"""The eviction subresource: delete a pod, unless its PodDisruptionBudget says no.

After kube-apiserver's pkg/registry/core/pod/storage/eviction.go.
"""

import math
from collections.abc import Mapping

from gpuwatch.model.clock import Clock
from gpuwatch.model.rfc3339 import rfc3339
from gpuwatch.sim.kubeapi.access import forbidden
from gpuwatch.sim.kubeapi.bodies import check_preconditions, decoded
from gpuwatch.sim.kubeapi.message import Object
from gpuwatch.sim.kubeapi.objects import controller_of, is_leaving, is_over, is_ready
from gpuwatch.sim.kubeapi.resources import BY_PLURAL
from gpuwatch.sim.kubeapi.route import Call
from gpuwatch.sim.kubeapi.selectors import label_selector
from gpuwatch.sim.kubeapi.status import ApiError, bad_request, not_found, success, too_many_requests
from gpuwatch.sim.kubeapi.store import Key, Store
from gpuwatch.sim.kubeapi.writes import Writes

_PODS, _BUDGETS = BY_PLURAL["pods"], BY_PLURAL["poddisruptionbudgets"]
_RETRY_SECONDS = 10


class Evictions:
    """Evict pods. With `live_budgets` a disruption controller that is never late keeps the budgets' status.

    Without, budgets keep the status that clients write, as on a server that runs no controllers.
    """

    def __init__(self, store: Store, writes: Writes, clock: Clock, *, live_budgets: bool) -> None:
        self._store, self._writes, self._clock = store, writes, clock
        self._live = live_budgets
        self.replicas: dict[str, int] = {}
        """By uid of a controller: how many pods it wants, which a percentage is taken of."""

    def evict(self, call: Call, user: str) -> Object:
        """Delete or refuse. Raises ApiError 404, 409 for a precondition, 429 for a budget."""
        eviction = decoded(call)
        if eviction["metadata"].get("name", call.name) != call.name:
            raise bad_request("name in URL does not match name in Eviction object")
        pod = self._store.get(Key("pods", call.namespace, call.name))
        if pod is None:
            raise not_found(_PODS, call.name)
        options = eviction.get("deleteOptions") or {}
        dry_run = call.dry_run or bool(options.get("dryRun"))
        if not (is_over(pod) or is_leaving(pod) or pod["status"].get("phase") == "Pending"):
            self._ask_budget(pod, dry_run=dry_run)
        check_preconditions(_PODS, pod["metadata"], options.get("preconditions") or {})
        if not dry_run:
            pod = self._store.put(Key("pods", call.namespace, call.name), self._marked(pod), user)
            without_revision = {**(options.get("preconditions") or {}), "resourceVersion": None}
            self._writes.remove(_PODS, pod, {**options, "preconditions": without_revision}, user)
        return success(201)

    def status_of(self, budget: Object) -> Object:
        """The budget with the status that holds now."""
        return {**budget, "status": self._computed(budget)} if self._live else budget

    def _ask_budget(self, pod: Object, *, dry_run: bool) -> None:
        metadata = pod["metadata"]
        matching = [each for each in self._store.all(_BUDGETS.plural, metadata["namespace"]) if _covers(each, pod)]
        if len(matching) > 1:
            message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise ApiError(500, "", message)
        for stored in matching:
            budget = self.status_of(stored)
            status = budget["status"]
            healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
            policy = budget["spec"].get("unhealthyPodEvictionPolicy")
            if not is_ready(pod) and (policy == "AlwaysAllow" or healthy >= desired > 0):
                return
            _check(budget)
            if not (dry_run or self._live):
                self._decrement(stored, metadata["name"])

    def _decrement(self, budget: Object, pod_name: str) -> None:
        metadata, status = budget["metadata"], budget["status"]
        disrupted = {**status.get("disruptedPods", {}), pod_name: rfc3339(self._clock.time())}
        status = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1, "disruptedPods": disrupted}
        if not status["disruptionsAllowed"]:
            status["conditions"] = [self._exhausted(metadata)]
        key = Key(_BUDGETS.plural, metadata["namespace"], metadata["name"])
        self._store.put(key, {**budget, "status": status}, "system:apiserver")

    def _exhausted(self, metadata: Object) -> Object:
        return {
            "type": "DisruptionAllowed",
            "status": "False",
            "reason": "InsufficientPods",
            "message": "",
            "observedGeneration": metadata["generation"],
            "lastTransitionTime": rfc3339(self._clock.time()),
        }

    def _computed(self, budget: Object) -> Object:
        pods = [pod for pod in self._store.all("pods", budget["metadata"]["namespace"]) if _covers(budget, pod)]
        healthy = sum(is_ready(pod) and not is_leaving(pod) for pod in pods)
        expected = self._expected(pods)
        desired = _desired(budget["spec"], expected)
        return {
            "observedGeneration": budget["metadata"]["generation"],
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "disruptionsAllowed": max(0, healthy - desired) if expected else 0,
        }

    def _expected(self, pods: list[Object]) -> int:
        wanted: dict[str, int] = {}
        for pod in pods:
            owner = controller_of(pod)
            uid = owner["uid"] if owner else pod["metadata"]["uid"]
            wanted[uid] = self.replicas.get(uid, wanted.get(uid, 0) + 1)
        return sum(wanted.values())

    def _marked(self, pod: Object) -> Object:
        conditions = [each for each in pod["status"].get("conditions", []) if each["type"] != "DisruptionTarget"]
        disruption = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": rfc3339(self._clock.time()),
        }
        return {**pod, "status": {**pod["status"], "conditions": [*conditions, disruption]}}


def _covers(budget: Object, pod: Object) -> bool:
    selector = label_selector(budget["spec"].get("selector"))
    labels: Mapping[str, str] = pod["metadata"].get("labels", {})
    return selector is not None and all(each.matches(labels) for each in selector)


def _desired(spec: Object, expected: int) -> int:
    """Pods that must stay healthy; percentages are rounded up, as the disruption controller does."""

    def scaled(value: int | str) -> int:
        return math.ceil(expected * int(value[:-1]) / 100) if isinstance(value, str) else value

    if "maxUnavailable" in spec:
        return max(0, expected - scaled(spec["maxUnavailable"]))
    return scaled(spec.get("minAvailable", 1))


def _check(budget: Object) -> None:
    metadata, status = budget["metadata"], budget["status"]
    name, allowed = metadata["name"], status.get("disruptionsAllowed", 0)
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if status.get("observedGeneration", 0) < metadata["generation"]:
        raise _blocked(f"The disruption budget {name} is still being processed by the server.", _RETRY_SECONDS)
    if allowed < 0:
        raise forbidden(_BUDGETS, name, "pdb disruptions allowed is negative")
    if allowed == 0 and healthy <= desired:
        raise _blocked(f"The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
    if allowed == 0:
        raise _blocked(f"The disruption budget {name} does not allow evicting pods currently")


def _blocked(why: str, retry_after: int = 0) -> ApiError:
    error = too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", retry_after)
    error.status["details"]["causes"] = [{"reason": "DisruptionBudget", "message": why}]
    return error
