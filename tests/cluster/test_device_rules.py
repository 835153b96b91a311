"""DeviceTaintRules on a real API server with the gates on: discovered, owned, deleted; a stolen token adds none."""

from typing import Any

import pytest

from gpuwatch.kube.errors import AlreadyExists
from gpuwatch.kube.objects import TAINT, DeviceRule, GpuDevice
from gpuwatch.kube.transport import Transport
from gpuwatch.remediation.model import DeleteRule, WriteRule
from gpuwatch.remediation.service.node_writer import NodeWriter
from tests import fast_yaml
from tests.cluster.api import Answer, Api
from tests.cluster.conftest import DEVICE_TAINTS, PLANES
from tests.cluster.manifests import ACCOUNT
from tests.cluster.tenant import Tenant
from tests.deploy.rendering import DEPLOY
from tests.remediation.model.remediating import NAMESPACE
from tests.waiting import until

pytestmark = pytest.mark.cluster

DRA = "/apis/resource.k8s.io"
RULES = f"{DRA}/v1beta2/devicetaintrules"
FORBIDDEN = 403


@pytest.fixture(scope="module")
def api(tmp_path_factory) -> Api:
    """An API server that serves DeviceTaintRules, with the component's rights and policy."""
    api = Api(PLANES.get("device-taints", tmp_path_factory, DEVICE_TAINTS))
    PLANES.once(api, prepare)
    return api


def prepare(api: Api) -> None:
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
    for file in ("own-devices-policy.yaml", "rbac.yaml"):
        for body in fast_yaml.load_all((DEPLOY / "components/remediation-devices" / file).read_text()):
            group, plural = body["apiVersion"], f"{body['kind'].lower()}s".replace("policys", "policies")
            answer = api.request("POST", f"/apis/{group}/{plural}", body)
            assert answer.status == 201, answer


@pytest.fixture(scope="module")
def tenant(api):
    made = Tenant(api, ACCOUNT)
    made_up = rule("probe", made.other, "gpu-0")
    until(lambda: made.asks("POST", f"{RULES}?dryRun=All", made_up).status == FORBIDDEN, "the policy is in force")
    yield made
    made.remove()


def rule(name: str, pool: str, device: str | None, **more: Any) -> dict[str, Any]:
    selector = {"driver": more.get("driver", "gpu.nvidia.com"), "pool": pool, **({"device": device} if device else {})}
    return {
        "metadata": {"name": name, "labels": more.get("labels", {"app.kubernetes.io/managed-by": "gpuwatch"})},
        "spec": {"deviceSelector": selector, "taint": {"key": more.get("key", TAINT), "effect": "NoSchedule"}},
    }


def publish(api: Api, node: str, driver: str = "gpu.nvidia.com", pool: str = "") -> None:
    names = {
        "gpu-0": {"uuid": "GPU-b"},
        "gpu-1": {"uuid": "GPU-a"},
        "gpu-2-mig-9-0-4": {"uuid": "MIG-x", "parentUUID": "GPU-c"},
    }
    devices = [
        {"name": name, "attributes": {key: {"string": text} for key, text in attributes.items()}}
        for name, attributes in names.items()
    ]
    spec = {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": pool or node, "generation": 1, "resourceSliceCount": 1},
        "devices": devices,
    }
    answer = api.request("POST", f"{DRA}/v1/resourceslices", {"metadata": {"generateName": "slice-"}, "spec": spec})
    assert answer.status == 201, answer


def test_the_version_is_found_devices_go_by_uuid_and_foreign_rules_stay(api) -> None:
    node = "dra-1"
    publish(api, node)
    publish(api, node, driver="evil.example.com")
    publish(api, node, pool="elsewhere")
    writer = NodeWriter(Transport(str(api.server.kubeconfig())), node)
    state = writer.devices()
    assert (state.version, state.why) == ("v1beta2", "")
    assert state.devices == (
        GpuDevice(gpu="GPU-b", pool=node, name="gpu-0"),
        GpuDevice(gpu="GPU-a", pool=node, name="gpu-1"),
        GpuDevice(gpu="GPU-c", pool=node, name="gpu-2-mig-9-0-4"),
    )
    name = f"gpuwatch-{node}-gpu-1"
    made = DeviceRule(name=name, owner="q1", pool=node, device="gpu-1", value="x", effect="NoSchedule")
    assert writer.change_rule(WriteRule(rule=made))
    assert not writer.change_rule(WriteRule(rule=made))
    found = next(each for each in writer.devices().rules if each.name == made.name)
    assert (found.owner, found.pool, found.device, found.value) == ("q1", node, "gpu-1", "x")
    assert not writer.change_rule(DeleteRule(name=made.name, owner="q2"))
    with pytest.raises(AlreadyExists):
        writer.change_rule(
            WriteRule(rule=DeviceRule(name=made.name, owner="q2", pool=node, device="gpu-1", effect="NoSchedule"))
        )
    assert writer.change_rule(DeleteRule(name=made.name, owner="q1"))
    assert not writer.change_rule(DeleteRule(name=made.name, owner="q1"))


def test_without_the_gates_nothing_is_served_and_that_is_no_error(control_plane) -> None:
    state = NodeWriter(Transport(str(control_plane.kubeconfig())), "any").devices()
    assert (state.version, "no DeviceTaintRules" in state.why) == ("", True)


def test_a_token_makes_and_deletes_rules_of_its_own_node(tenant) -> None:
    name = f"gpuwatch-{tenant.node}-gpu-0"
    assert tenant.asks("POST", RULES, rule(name, tenant.node, "gpu-0")).status == 201
    assert tenant.asks("DELETE", f"{RULES}/{name}").status == 200


@pytest.mark.parametrize(
    ("attempt", "why"),
    [
        ("another node's device", "not about a GPU of the token's Node"),
        ("the whole pool", "not about a GPU of the token's Node"),
        ("another driver", "not about a GPU of the token's Node"),
        ("no node", "not about a GPU of the token's Node"),
        ("another name", "gpuwatch-NODE-DEVICE"),
        ("no label", "managed-by"),
        ("another taint", "only the taint"),
    ],
)
def test_a_stolen_token_makes_no_other_rule(tenant, attempt: str, why: str) -> None:
    name = f"gpuwatch-{tenant.node}-gpu-0"
    bodies = {
        "another node's device": rule(f"gpuwatch-{tenant.other}-gpu-0", tenant.other, "gpu-0"),
        "the whole pool": rule(name, tenant.node, None),
        "another driver": rule(name, tenant.node, "gpu-0", driver="nic.example.com"),
        "no node": rule(name, tenant.node, "gpu-0"),
        "another name": rule("gpuwatch-x", tenant.node, "gpu-0"),
        "no label": rule(name, tenant.node, "gpu-0", labels={}),
        "another taint": rule(name, tenant.node, "gpu-0", key="example.com/x"),
    }
    answer: Answer = tenant.asks("POST", RULES, bodies[attempt], bound=attempt != "no node")
    assert answer.status == FORBIDDEN
    assert why in answer.body["message"]


def test_a_stolen_token_deletes_and_changes_no_rule_of_others(tenant) -> None:
    for body in (
        rule(f"gpuwatch-{tenant.other}-gpu-0", tenant.other, "gpu-0"),
        rule("by-hand", tenant.node, "gpu-0", labels={}),
    ):
        assert tenant.api.request("POST", RULES, body).status == 201
        path = f"{RULES}/{body['metadata']['name']}"
        assert tenant.asks("DELETE", path).status == FORBIDDEN
        patch = {"spec": {"taint": {"effect": "NoExecute"}}}
        assert tenant.asks("PATCH", path, patch, "application/merge-patch+json").status == FORBIDDEN
        assert tenant.api.request("DELETE", path).status == 200
