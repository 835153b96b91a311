"""The eviction subresource: delete a pod, unless its PodDisruptionBudget forbids it.

After kube-apiserver's pkg/registry/core/pod/storage/eviction.go.
"""

import math

from gpuwatch.model.clock import Clock, rfc3339
from gpuwatch.sim.kubeapi.admission import refuse_malformed
from gpuwatch.sim.kubeapi.messages import ApiError, Object, bad_request, not_found
from gpuwatch.sim.kubeapi.objects import controller_of, is_leaving, is_over, is_ready
from gpuwatch.sim.kubeapi.resources import ServerCall
from gpuwatch.sim.kubeapi.selectors import label_requirements
from gpuwatch.sim.kubeapi.store import ObjectKey, ObjectStore
from gpuwatch.sim.kubeapi.writes import ObjectWriter, decoded, deletion_of


class EvictionApi:
    """Evicts pods, and keeps the status of budgets as a disruption controller that is never late."""

    def __init__(self, store: ObjectStore, writer: ObjectWriter, clock: Clock) -> None:
        self._store, self._writer, self._clock = store, writer, clock
        self.replicas: dict[str, int] = {}
        """By uid of a controller: how many pods it wants; a percentage is a share of these."""

    def evict(self, call: ServerCall, user: str) -> Object:
        """Delete or refuse. Raises ApiError 404, 409 for a precondition, 429 for a budget."""
        eviction = decoded(call.request)
        key = ObjectKey("pods", call.namespace, call.name)
        with refuse_malformed():
            if eviction["metadata"].get("name", call.name) != call.name:
                raise bad_request("name in URL does not match name in Eviction object")
            uid, grace = deletion_of(eviction.get("deleteOptions") or {})
        pod = self._store.get(key)
        if pod is None:
            raise not_found("", "pods", call.name)
        if not (is_over(pod) or is_leaving(pod) or pod["status"].get("phase") == "Pending"):
            self._check_budget(pod)
        self._writer.check_uid(call.resource, pod, uid)
        conditions = [each for each in pod["status"].get("conditions", []) if each["type"] != "DisruptionTarget"]
        target = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": rfc3339(self._clock.time()),
        }
        pod = self._store.put(key, {**pod, "status": {**pod["status"], "conditions": [*conditions, target]}}, user)
        self._writer.remove(call.resource, pod, grace, user)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    def with_status(self, budget: Object) -> Object:
        """The budget with the status that holds now."""
        selector = label_requirements(budget["spec"].get("selector"))
        pods = [
            pod
            for pod in self._store.all("pods", budget["metadata"]["namespace"])
            if selector is not None and all(each.matches(pod["metadata"].get("labels", {})) for each in selector)
        ]
        wanted: dict[str, int] = {}
        for pod in pods:
            owner = controller_of(pod)
            uid = owner["uid"] if owner else pod["metadata"]["uid"]
            wanted[uid] = self.replicas.get(uid, wanted.get(uid, 0) + 1)
        expected, spec = sum(wanted.values()), budget["spec"]

        def scaled(value: int | str) -> int:
            """Percentages are rounded up, as the disruption controller does."""
            return math.ceil(expected * int(value[:-1]) / 100) if isinstance(value, str) else value

        if "maxUnavailable" in spec:
            desired = max(0, expected - scaled(spec["maxUnavailable"]))
        else:
            desired = scaled(spec.get("minAvailable", 1))
        healthy = sum(is_ready(pod) and not is_leaving(pod) for pod in pods)
        status = {
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "disruptionsAllowed": max(0, healthy - desired) if expected else 0,
        }
        return {**budget, "status": status}

    def _check_budget(self, pod: Object) -> None:
        """Raise ApiError 429 where the pod's budget does not allow the eviction, 500 where there are two budgets."""
        labels = pod["metadata"].get("labels", {})
        budgets = [
            budget
            for budget in self._store.all("poddisruptionbudgets", pod["metadata"]["namespace"])
            if (selector := label_requirements(budget["spec"].get("selector"))) is not None
            and all(each.matches(labels) for each in selector)
        ]
        if len(budgets) > 1:
            message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            raise ApiError(500, "", message)
        for budget in budgets:
            name, status = budget["metadata"]["name"], self.with_status(budget)["status"]
            needed, healthy = status["desiredHealthy"], status["currentHealthy"]
            if status["disruptionsAllowed"] or (not is_ready(pod) and healthy >= needed > 0):
                continue
            error = ApiError(
                429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.", {}
            )
            why = f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
            error.status["details"]["causes"] = [{"reason": "DisruptionBudget", "message": why}]
            raise error
