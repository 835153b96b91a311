"""A remediator's service account on a real API server, and whatever it may ask there, allowed or not."""

import random
from typing import Any

from gpuwatch.kube.objects import TAINT
from tests.cluster.api import EVENTS, MERGE, NODES, PODS, STRATEGIC, Answer, Api
from tests.cluster.remediating import BUDGETS, make_node
from tests.cluster.story import OWN_PODS, pod_on
from tests.remediation.model.remediating import NAMESPACE

OURS = {"key": TAINT, "value": "gpu_lost", "effect": "NoSchedule"}


class Tenant:
    """A remediator's service account with its own node, and the node of somebody else."""

    def __init__(self, api: Api, account: str) -> None:
        self.api, self.account = api, account
        self.node, self.other = f"{account}-own", f"{account}-other"
        self.pod, self.slot = f"{account}-victim", f"gpuwatch-slot-{random.randrange(10**6)}"
        for node in (self.node, self.other):
            make_node(api, node, f"boot-of-{node}")
        pod_on(api, PODS, self.pod, self.other)
        mine = pod_on(api, OWN_PODS, account, self.node, serviceAccountName=account)
        issue = api.server.service_account_token
        self.token, self.unbound = issue(NAMESPACE, account, mine), issue(NAMESPACE, account)

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

    def creates_slot(self, holder: str, name: str = "", *, bound: bool = True) -> Answer:
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 900}
        return self.asks("POST", BUDGETS, {"metadata": {"name": name or self.slot}, "spec": spec}, bound=bound)

    def frees_slot_of(self, holder: str) -> Answer:
        body = {"metadata": {"name": self.slot}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 900}}
        assert self.api.request("POST", BUDGETS, body).status == 201
        return self.asks("PATCH", f"{BUDGETS}/{self.slot}", {"spec": {"holderIdentity": None}}, MERGE)

    def tells(self, about: str, by: str, *, bound: bool = True) -> Answer:
        involved = {"kind": "Node", "name": about} if about else {"kind": "Pod", "name": "p", "namespace": "default"}
        event = {"metadata": {"generateName": "e-"}, "involvedObject": involved, "reason": "Test"}
        return self.asks("POST", EVENTS, {**event, "reportingInstance": by}, bound=bound)

    def evicts(self, *, bound: bool = True, **options: Any) -> Answer:
        uid = self.api.request("GET", f"{PODS}/{self.pod}").body["metadata"]["uid"]
        told = {"deleteOptions": {"preconditions": {"uid": uid}, **options}}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": self.pod}, **told}
        return self.asks("POST", f"{PODS}/{self.pod}/eviction", body, bound=bound)
