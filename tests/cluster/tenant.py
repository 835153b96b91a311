"""A remediator's service account on a real API server, and whatever it may ask there, allowed or not."""

import random
import time
from typing import Any

from gpuwatch.kube.objects import TAINT
from gpuwatch.remediation.model import QUARANTINED
from gpuwatch.remediation.service.node_writer import LABELS, slot_labels
from tests.cluster.api import EVENTS, MERGE, NODES, PODS, STRATEGIC, Answer, Api
from tests.cluster.remediating import BUDGETS, OTHER, make_node
from tests.cluster.story import GPU_CONTAINER, OWN_PODS, pod_on
from tests.remediation.model.remediating import NAMESPACE

CACHE_SECONDS = 120.0
"""How long a busy API server's cache may lag behind its store."""

OURS = {"key": TAINT, "value": "gpu_lost", "effect": "NoSchedule"}


class Tenant:
    """A remediator's service account with its own node, and the node of somebody else."""

    def __init__(self, api: Api, account: str) -> None:
        self.api, self.account = api, account
        self.node, self.other = f"{account}-own", f"{account}-other"
        self.pod, self.foreign_pod, self.pod_without_gpu = (
            f"{account}-{each}" for each in ("gpu", "foreign", "no-gpu")
        )
        self.slot = f"gpuwatch-slot-{random.randrange(10**6)}"
        for node in (self.node, self.other):
            make_node(api, node, f"boot-of-{node}")
        pod_on(api, PODS, self.pod, self.node, containers=[GPU_CONTAINER])
        pod_on(api, PODS, self.foreign_pod, self.other, containers=[GPU_CONTAINER])
        pod_on(api, PODS, self.pod_without_gpu, self.node)
        mine = pod_on(api, OWN_PODS, account, self.node, serviceAccountName=account)
        issue = api.server.service_account_token
        self.token, self.unbound = issue(NAMESPACE, account, mine), issue(NAMESPACE, account)

    def remove(self) -> None:
        """All objects that it was made of."""
        own = f"{OWN_PODS}/{self.account}"
        pods = (f"{PODS}/{each}" for each in (self.pod, self.foreign_pod, self.pod_without_gpu))
        for path in (own, *pods, *(f"{NODES}/{each}" for each in (self.node, self.other))):
            self.api.request("DELETE", f"{path}?gracePeriodSeconds=0")

    def asks(self, method: str, path: str, body: Any = None, form: str | None = None, *, bound: bool = True) -> Answer:
        """One request with the pod's token, or with one that names no pod and so no node."""
        return self.api.request(method, path, body, form, token=self.token if bound else self.unbound)

    def patch(self, body: Any, *, node: str = "", status: bool = False, bound: bool = True) -> Answer:
        path = f"{NODES}/{node or self.node}{'/status' if status else ''}"
        return self.asks("PATCH", path, body, STRATEGIC if status else MERGE, bound=bound)

    def taints(self, *new: dict[str, str], node: str = "") -> Answer:
        """Put these beside the taints that are there."""
        old = self.api.request("GET", f"{NODES}/{node or self.node}").body["spec"]["taints"]
        return self.patch({"spec": {"taints": [*(each for each in old if each["key"] != TAINT), *new]}}, node=node)

    def marks(self, bound: bool = True, **metadata: Any) -> Answer:
        return self.patch({"metadata": metadata}, bound=bound)

    def condition(self, kind: str = "GPUHealthy", node: str = "") -> Answer:
        entry = {"type": kind, "status": "False", "reason": "Test"}
        return self.patch({"status": {"conditions": [entry]}}, node=node, status=True)

    def creates_slot(self, holder: str, name: str = "", *, bound: bool = True, labels: Any = None) -> Answer:
        return self.asks("POST", BUDGETS, slot(name or self.slot, holder, labels), bound=bound)

    def frees_slot_of(self, holder: str) -> Answer:
        assert self.api.request("POST", BUDGETS, slot(self.slot, holder)).status == 201
        return self.asks("PATCH", f"{BUDGETS}/{self.slot}", {"spec": {"holderIdentity": None}}, MERGE)

    def tells(self, about: str, by: str, *, bound: bool = True) -> Answer:
        involved = {"kind": "Node", "name": about} if about else {"kind": "Pod", "name": "p", "namespace": "default"}
        event = {"metadata": {"generateName": "e-"}, "involvedObject": involved, "reason": "Test"}
        return self.asks("POST", EVENTS, {**event, "reportingInstance": by}, bound=bound)

    def takes_second_slot(self) -> Answer:
        """Beside one that it holds."""
        assert self.api.request("POST", BUDGETS, slot(f"{self.slot}0", self.node)).status == 201
        return self._refused_or_not("POST", BUDGETS, slot(self.slot, self.node))

    def takes_slot_of_quarantined(self) -> Answer:
        marked = {"metadata": {"labels": {QUARANTINED: "true"}}, "spec": {"taints": [OTHER, OURS]}}
        assert self.api.request("PATCH", f"{NODES}/{self.other}", marked, MERGE).status == 200
        assert self.api.request("POST", BUDGETS, slot(self.slot, self.other)).status == 201
        mine = {"metadata": {"labels": slot_labels(self.node)}, "spec": {"holderIdentity": self.node}}
        answer = self._refused_or_not("PATCH", f"{BUDGETS}/{self.slot}", mine)
        healthy = {"metadata": {"labels": {QUARANTINED: None}}, "spec": {"taints": [OTHER]}}
        assert self.api.request("PATCH", f"{NODES}/{self.other}", healthy, MERGE).status == 200
        return answer

    def _refused_or_not(self, method: str, path: str, body: Any) -> Answer:
        """Policies look into the server's cache, which learns of the preparations after a while."""
        until = time.monotonic() + CACHE_SECONDS
        while True:
            answer = self.asks(method, f"{path}?dryRun=All", body, MERGE if method == "PATCH" else None)
            if answer.status == 403 or time.monotonic() > until:
                return answer
            time.sleep(0.1)

    def evicts(self, pod: str = "", *, bound: bool = True, labels: Any = LABELS, **options: Any) -> Answer:
        path = f"{PODS}/{pod or self.pod}"
        uid = self.api.request("GET", path).body["metadata"]["uid"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod or self.pod, "labels": labels},
            "deleteOptions": {"dryRun": ["All"], "preconditions": {"uid": uid}, **options},
        }
        return self.asks("POST", f"{path}/eviction", body, bound=bound)


def slot(name: str, holder: str, labels: Any = None) -> dict[str, Any]:
    """A Lease of the budget, by default with the labels that it should have."""
    metadata = {"name": name, "labels": slot_labels(holder) if labels is None else labels}
    return {"metadata": metadata, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 900}}
