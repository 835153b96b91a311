"""Each right that deploy/ grants is needed: a real API server without it refuses the one operation that it is for.

test_remediator_rights.py holds that the remediator asks for all of them on its way, test_own_node_policy.py that they
are enough for the whole way on a real API server.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from gpuwatch.consents.kube import ConsentsReader
from gpuwatch.kube.errors import Forbidden
from gpuwatch.kube.objects import TAINT, Condition, DeviceRule, Taint
from gpuwatch.kube.transport import Transport
from gpuwatch.remediation.model import CreateEvent, DeleteRule, PatchNode, WriteRule
from gpuwatch.remediation.service.node_writer import NodeWriter
from tests.cluster.api import EVENTS, PODS, Api
from tests.cluster.conftest import DEVICE_TAINTS, PLANES
from tests.cluster.manifests import CONSENTS, DEVICES, DRAIN, ENFORCE, OBSERVE, RBAC, Right, manifests, rights
from tests.cluster.remediating import BUDGETS, make_node, remove
from tests.cluster.rights import full_name, listed
from tests.cluster.story import GPU_CONTAINER, OWN_PODS, pod_on
from tests.cluster.test_device_rules import publish
from tests.remediation.model.remediating import NAMESPACE, START
from tests.waiting import until

pytestmark = pytest.mark.cluster

NODE, POD, OWN_POD, SLOT, DEVICE = "each-right", "each-right", "gpuwatch-each-right", "gpuwatch-slot-77", "gpu-0"
GRANTED = {
    "remediator": rights(manifests(OBSERVE, ENFORCE, DRAIN, DEVICES)),
    "consents": rights(manifests(CONSENTS), "gpuwatch"),
}
CASES = [(part, right) for part, granted in GRANTED.items() for right in sorted(granted)]


class Asked(NamedTuple):
    """What asks with the rights in question, and what may do anything."""

    writer: NodeWriter
    consents: ConsentsReader
    admin: NodeWriter

    def changes_node(self) -> object:
        taint = Taint(key=TAINT, value="gpu_lost", effect="NoSchedule")
        node = self.admin.node()
        return self.writer.patch_node(node, PatchNode(step="taint", taints=(*node.taints, taint)))

    def evicts(self) -> object:
        (pod,) = (each for each in self.admin.pods() if each.name == POD)
        return self.writer.evict(pod)

    def devices(self) -> object:
        state = self.writer.devices()  # a right that lacks is no error to it
        if not state.version:
            raise AssertionError(state.why)
        return state

    def finds_a_rule(self) -> object:
        """One that is there already: it asks whose that is."""
        self.admin.change_rule(RULE)
        return self.writer.change_rule(RULE)

    def deletes_a_rule(self) -> object:
        self.admin.change_rule(RULE)
        return self.writer.change_rule(DeleteRule(name=RULE.rule.name, owner="q1"))


RULE = WriteRule(
    rule=DeviceRule(
        name=f"gpuwatch-{NODE}-{DEVICE}", owner="q1", pool=NODE, device=DEVICE, value="x", effect="NoSchedule"
    )
)
EVENT = CreateEvent(name="each-right", reason="GPUTest", message="a test")
CONDITION = Condition(type="GPUHealthy", status="False", reason="Test")

OPERATIONS: dict[tuple[str, str, str], Callable[[Asked], object]] = {
    ("remediator", "get", "nodes"): lambda it: it.writer.node(),
    ("remediator", "list", "nodes"): lambda it: it.writer.count_nodes("example.com/a=1"),
    ("remediator", "patch", "nodes"): Asked.changes_node,
    ("remediator", "patch", "nodes/status"): lambda it: it.writer.set_condition(it.admin.node(), CONDITION),
    ("remediator", "create", "events"): lambda it: it.writer.create_event(it.admin.node(), EVENT, START),
    ("remediator", "list", "leases"): lambda it: it.writer.leases(NAMESPACE),
    ("remediator", "get", "leases"): lambda it: it.writer.lease(NAMESPACE, SLOT),
    ("remediator", "create", "leases"): lambda it: it.writer.create_lease(NAMESPACE, f"{SLOT}7", START, 900),
    ("remediator", "patch", "leases"): lambda it: it.writer.hold_lease(
        NAMESPACE, it.admin.lease(NAMESPACE, SLOT), START, 900
    ),
    ("remediator", "get", "pods"): lambda it: it.writer.tolerates(NAMESPACE, OWN_POD),
    ("remediator", "list", "pods"): lambda it: it.writer.pods(),
    ("remediator", "create", "pods/eviction"): Asked.evicts,
    ("remediator", "list", "resourceslices"): Asked.devices,
    ("remediator", "list", "devicetaintrules"): Asked.devices,
    ("remediator", "get", "devicetaintrules"): Asked.finds_a_rule,
    ("remediator", "create", "devicetaintrules"): lambda it: it.writer.change_rule(RULE),
    ("remediator", "delete", "devicetaintrules"): Asked.deletes_a_rule,
    ("consents", "get", "nodes"): lambda it: it.consents.node(),
    ("consents", "get", "namespaces"): lambda it: it.consents.namespace("default"),
    ("consents", "list", "pods"): lambda it: it.consents.gpu_pods(),
}
"""Part, verb and resource -> the operation of gpuwatch that needs this right."""


def test_every_right_has_its_operation():
    assert set(OPERATIONS) == {(part, right.verb, right.resource) for part, right in CASES}


@pytest.fixture(scope="module")
def api(tmp_path_factory) -> Api:
    api = Api(PLANES.get("device-taints", tmp_path_factory, DEVICE_TAINTS))
    PLANES.once(api, prepare)
    return api


def prepare(api: Api) -> None:
    """A node with pods, a slot and devices, and an account for each right that lacks it alone."""
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    make_node(api, NODE, "boot-of-each-right")
    pod_on(api, OWN_PODS, OWN_POD, NODE)
    publish(api, NODE)
    NodeWriter(Transport(str(api.kubeconfig())), NODE).create_lease(NAMESPACE, SLOT, START, 900)
    for part, granted in GRANTED.items():
        grant(api, f"{part}-whole", granted)
        for right in granted:
            grant(api, account_without(part, right), granted - {right})


def account_without(part: str, right: Right) -> str:
    return f"{part}-{right.verb}-{right.resource.replace('/', '-')}"


def grant(api: Api, account: str, granted: set[Right]) -> None:
    """A service account that may do just this."""
    subject = [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]
    make(api, f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
    for place, kind, path in (("", "ClusterRole", RBAC), (NAMESPACE, "Role", f"{RBAC}/namespaces/{NAMESPACE}")):
        rules = [
            {"apiGroups": [each.group], "resources": [each.resource], "verbs": [each.verb]}
            for each in granted
            if each.namespace == place
        ]
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": account}
        make(api, f"{path}/{kind.lower()}s", account, rules=rules)
        make(api, f"{path}/{kind.lower()}bindings", account, roleRef=reference, subjects=subject)


def make(api: Api, path: str, name: str, **fields: Any) -> None:
    status, body = api.request("POST", path, {"metadata": {"name": name}, **fields})
    assert status == 201, body


def asked(api: Api, account: str, granted: set[Right]) -> Asked:
    """As this account, once the API server knows all its rights."""
    token = api.server.service_account_token(NAMESPACE, account)
    wanted = {(each.namespace, full_name(each.group, each.resource), each.verb) for each in granted}
    until(lambda: listed(api, token) == wanted, f"the rights of {account} are in force")
    own, whole = (Transport(str(file)) for file in (api.server.token_kubeconfig(token), api.kubeconfig()))
    return Asked(NodeWriter(own, NODE), ConsentsReader(own, NODE), NodeWriter(whole, NODE))


@pytest.fixture
def victim(api):
    """A pod with a GPU, a Node, Events and rules as before each operation."""
    pod_on(api, PODS, POD, NODE, containers=[GPU_CONTAINER])
    yield
    admin = NodeWriter(Transport(str(api.kubeconfig())), NODE)
    admin.change_rule(DeleteRule(name=RULE.rule.name, owner="q1"))
    node = admin.node()
    foreign = tuple(each for each in node.taints if each.key != TAINT)
    admin.patch_node(node, PatchNode(step="untaint", taints=foreign))
    for path in (f"{PODS}/{POD}", f"{BUDGETS}/{SLOT}7", f"{EVENTS}/{EVENT.name}"):
        remove(api, f"{path}?gracePeriodSeconds=0")


@pytest.mark.parametrize(("part", "right"), CASES, ids=[account_without(*each) for each in CASES])
def test_without_this_right_its_operation_is_forbidden(api, victim, part, right):
    operation = OPERATIONS[part, right.verb, right.resource]
    lacking = asked(api, account_without(part, right), GRANTED[part] - {right})
    with pytest.raises((Forbidden, AssertionError)) as refused:
        operation(lacking)
    assert f'cannot {right.verb} resource "{right.resource}"' in str(refused.value)
    operation(asked(api, f"{part}-whole", GRANTED[part]))
