"""GPUs that pods have by ResourceClaims: scheduler, kubelet and a DRA driver allocate, gpuwatch reports."""

import json
import sys
import time

import pytest

from tests.fakes.libnvml import FakeMig
from tests.node.cluster import NODE, NodeCluster
from tests.node.dra_driver import DRIVER
from tests.node.work import SECONDS, WORK, gpuwatch, holders, lose, taints
from tests.waiting import until

API = {"apiVersion": "resource.k8s.io/v1"}
CUT = 7
"""The GPU in MIG mode: two instances of one profile, and one of another."""


def device_class(name, kind):
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'"
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    return {**API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def claim(name, count=1, kind=DRIVER, selector="", config=False):
    selectors = {"selectors": [{"cel": {"expression": selector}}]} if selector else {}
    exactly = {"deviceClassName": kind, "count": count, **selectors}
    devices = {"requests": [{"name": "gpu", "exactly": exactly}]}
    if config:
        parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
        parameters["sharing"] = {"strategy": "TimeSlicing"}
        devices["config"] = [{"requests": ["gpu"], "opaque": {"driver": DRIVER, "parameters": parameters}}]
    metadata = {"name": name, "namespace": "claims"}
    return {**API, "kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": devices}}


def pod(name, *claims, containers=1):
    """A pod of namespace `claims`; each container has all the claims."""
    own = [
        {"name": f"c{number}", **WORK, "resources": {"claims": [{"name": each} for each in claims]}}
        for number in range(containers)
    ]
    asked = [{"name": each, "resourceClaimName": each} for each in claims]
    spec = {"terminationGracePeriodSeconds": 1, "containers": own, "resourceClaims": asked}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "claims"}, "spec": spec}


@pytest.fixture(scope="module")
def claims(deployed: NodeCluster):
    """The device plugin gives way to a DRA driver, as on a node that moves to claims."""
    deployed.stop("device-plugin")
    deployed.driver.set_mig(CUT, [FakeMig(gi=1), FakeMig(gi=2), FakeMig(gi=3, profile="2g.20gb")])
    start(deployed)
    deployed.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "claims"}},
        device_class(DRIVER, "gpu"),
        device_class("mig.nvidia.com", "mig"),
    )
    yield deployed
    deployed.kubectl("delete", "namespace", "claims")
    deployed.stop("dra-driver")
    deployed.kubectl("delete", "resourceslices,deviceclasses", "--all")
    deployed.driver.set_mig(CUT, None)
    deployed.start_plugin()


def start(node):
    kubeconfig = str(node.folder / "keys/admin.kubeconfig")
    node.start("dra-driver", sys.executable, "-m", "tests.node.dra_driver", NODE, kubeconfig, **node.driver.env)
    until(lambda: "registered: yes" in node.log("dra-driver"), "the kubelet knows the driver", SECONDS, step=0.3)


def allocated(node, name):
    """Names of the devices of a claim."""
    status = node.get("-n", "claims", "resourceclaim", name).get("status", {})
    return [each["device"] for each in status.get("allocation", {}).get("devices", {}).get("results", [])]


def ready(node):
    node.kubectl("-n", "claims", "wait", "--for=condition=Ready", "pod", "--all", f"--timeout={SECONDS:.0f}s")


def rows(node):
    """Pod -> (GPU, GPU instance, container) of all it holds, as gpuwatch has it."""
    found = {}
    for item in json.loads(gpuwatch(node, "get", "pods", "-o", "json"))["items"]:
        found.setdefault(item["pod"], set()).add((item["gpu"], item["gi"], item["container"]))
    return found


def known(node, *pods):
    until(lambda: set(pods) <= set(holders(node)), f"{pods} are known", SECONDS, step=1)


def gone(node, *pods):
    node.kubectl("-n", "claims", "delete", "pod", *pods)
    until(lambda: not set(pods) & set(holders(node)), f"{pods} hold nothing", SECONDS, step=1)


def verdict(node, check):
    """A check of `gpuwatch diagnose`: its result and what it says."""
    said = json.loads(gpuwatch(node, "diagnose", "-o", "json", check=False))["items"]
    return next((each["result"], each["message"]) for each in said if each["id"] == check)


def test_pods_with_claims_are_known_by_their_gpus(claims):
    """Two GPUs, two containers that share one claim's GPU, one GPU chosen by an attribute."""
    uuid = json.loads(gpuwatch(claims, "get", "gpus", "-o", "json"))["items"][5]["uuid"]
    chosen = f"device.attributes['{DRIVER}'].uuid == '{uuid}'"
    claims.apply(claim("chosen", selector=chosen))
    claims.apply(pod("by-uuid", "chosen"))
    ready(claims)
    claims.apply(claim("pair", 2), claim("both"))
    claims.apply(pod("two-gpus", "pair"), pod("containers", "both", containers=2))
    ready(claims)
    known(claims, "two-gpus", "by-uuid", "containers")
    found = rows(claims)
    assert holders(claims)["by-uuid"] == {5}
    assert {f"gpu-{gpu}" for gpu, _, _ in found["two-gpus"]} == set(allocated(claims, "pair"))
    assert {container for _, _, container in found["containers"]} == {"c0", "c1"}
    assert verdict(claims, "K05")[0] == "pass"
    gone(claims, "two-gpus", "by-uuid", "containers")


def test_a_claimed_instance_is_known_by_its_placement(claims):
    """Two instances of one profile differ by their first memory slice alone."""
    selector = "device.attributes['{}'].profile == '{}'"
    claims.apply(claim("small", kind="mig.nvidia.com", selector=selector.format(DRIVER, "1g.10gb")))
    claims.apply(claim("other", kind="mig.nvidia.com", selector=selector.format(DRIVER, "1g.10gb")))
    claims.apply(claim("large", kind="mig.nvidia.com", selector=selector.format(DRIVER, "2g.20gb")))
    pods = ("small", "other", "large")
    claims.apply(*(pod(name, name) for name in pods))
    ready(claims)
    known(claims, *pods)
    devices = claims.get("resourceslices")["items"][0]["spec"]["devices"]
    uuids = {each["name"]: each["attributes"]["uuid"]["string"] for each in devices}
    wanted = {(name, uuids[allocated(claims, name)[0]]) for name in pods}
    instances = json.loads(gpuwatch(claims, "get", "mig", "-o", "json"))["items"]
    by_instance = {(each["gpu"], each["gi"]): each["uuid"] for each in instances}
    found = {(name, by_instance[CUT, gi]) for name, held in rows(claims).items() for _, gi, _ in held}
    assert found == wanted
    assert verdict(claims, "K05")[0] == "pass"
    gone(claims, *pods)


def test_a_claim_that_two_pods_share_outlives_the_first(claims):
    """With NVIDIA's configuration for sharing: a second CDI name. Each pod holds the GPU for as long as it lives."""
    claims.apply(claim("shared", config=True))
    claims.apply(pod("first", "shared"), pod("second", "shared"))
    ready(claims)
    known(claims, "first", "second")
    found = holders(claims)
    (gpu,) = found["first"]
    assert found["second"] == {gpu}
    assert verdict(claims, "K05")[0] == "pass", "shared, not given twice"
    metrics = scrape(claims)
    for name in ("first", "second"):
        assert any(f'gpu="{gpu}"' in line and f'pod="{name}"' in line for line in metrics["gpuwatch_gpu_workload_info"])
    gone(claims, "first")
    assert holders(claims)["second"] == {gpu}, "the other one goes on"
    gone(claims, "second")
    assert claims.get("-n", "claims", "resourceclaim", "shared"), "the claim outlives both"
    assert f'gpu="{gpu}"' not in "".join(scrape(claims).get("gpuwatch_gpu_workload_info", []))
    claims.apply(pod("third", "shared"))
    ready(claims)
    known(claims, "third")
    assert {f"gpu-{gpu}" for gpu in holders(claims)["third"]} == set(allocated(claims, "shared"))
    gone(claims, "third")


def scrape(node):
    """Lines of the agent's metrics by family."""
    address = node.get("-n", "gpuwatch", "pods")["items"][0]["status"]["podIP"]
    found = {}
    for line in node.run("busybox", "wget", "-q", "-O", "-", f"http://{address}:9400/metrics").splitlines():
        found.setdefault(line.partition("{")[0], []).append(line)
    return found


def test_a_sick_device_loses_its_pods_alone(claims):
    """A DeviceTaintRule of gpuwatch with NoExecute: the cluster's own controller evicts, and the scheduler avoids."""
    foreign = rule("foreign", CUT - 1)
    claims.apply(foreign, claim("sick"), claim("well"))
    claims.apply(pod("sick-first", "sick"), pod("sick-second", "sick"), pod("well", "well"))
    ready(claims)
    known(claims, "sick-first", "sick-second", "well")
    (gpu,) = holders(claims)["sick-first"]
    (device,) = allocated(claims, "sick")
    since = time.monotonic()
    lose(claims, gpu)
    until(lambda: alive(claims) == {"well"}, "its pods are evicted", SECONDS, step=0.1)
    print(f"fault to eviction: {time.monotonic() - since:.1f} s")
    events = claims.get("-n", "claims", "events")["items"]
    evicted = {each["involvedObject"]["name"] for each in events if each["reason"] == "DeviceTaintManagerEviction"}
    assert evicted == {"sick-first", "sick-second"}, "by the cluster's controller"
    own = next(each for each in claims.get("devicetaintrules")["items"] if each["metadata"]["name"] != "foreign")
    assert own["spec"]["deviceSelector"] == {"driver": DRIVER, "pool": NODE, "device": device}
    assert own["spec"]["taint"]["effect"] == "NoExecute"
    until(lambda: taints(claims) == [], "the node has no taint of gpuwatch", SECONDS, step=0.5)
    claims.apply(claim("more", 4))  # of eight GPUs one is cut, one sick, one the foreign rule's and one in use
    claims.apply(pod("more", "more"))
    ready(claims)
    assert not {device, f"gpu-{CUT - 1}"} & set(allocated(claims, "more"))
    claims.driver.restore(gpu)
    until(lambda: "gpu_lost" not in gpuwatch(claims, "get", "findings", "-o", "json"), "it answers", SECONDS, step=1)
    gpuwatch(claims, "repaired", str(gpu))
    until(lambda: rules(claims) == {"foreign"}, "the GPU is given back, and the foreign rule is there", SECONDS, step=1)
    assert alive(claims) == {"well", "more"}, "they went on all along"
    claims.kubectl("delete", "devicetaintrule", "foreign")
    gone(claims, "well", "more")


def rule(name, gpu):
    """A rule of somebody else, about one GPU."""
    device = {"driver": DRIVER, "pool": NODE, "device": f"gpu-{gpu}"}
    taint = {"key": "example.com/reserved", "effect": "NoSchedule"}
    spec = {"deviceSelector": device, "taint": taint}
    metadata = {"name": name}
    return {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": metadata, "spec": spec}


def rules(node):
    return {each["metadata"]["name"] for each in node.get("devicetaintrules")["items"]}


def alive(node):
    """Pods that have not been told to end."""
    found = node.get("-n", "claims", "pods")["items"]
    return {each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"]}


def test_claims_outlive_a_restart_of_kubelet_and_driver(claims):
    claims.apply(claim("steady", 2))
    claims.apply(pod("steady", "steady"))
    ready(claims)
    known(claims, "steady")
    before = holders(claims)["steady"]
    claims.stop("kubelet")
    claims.stop("dra-driver")
    claims.start_kubelet()
    start(claims)
    claims.apply(pod("later", "both"))  # the kubelet prepares claims again
    ready(claims)
    known(claims, "steady", "later")
    assert holders(claims)["steady"] == before
    gone(claims, "steady", "later")
