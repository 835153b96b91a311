"""The kubelet is asked over a real socket with real gRPC, in health and in every sickness it is known for."""

import importlib.resources
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.workload import Allocatable, Allocation, Workload
from gpuwatch.sim.surroundings.kubelet import Fault, SimKubelet
from gpuwatch.workloads.podresources import PodResources, PodResourcesError
from gpuwatch.workloads.podresources_proto import SCHEMA
from gpuwatch.workloads.wire import decode

TRAIN = Workload(namespace="ml", pod="train-0", container="main")
SIDE = Workload(namespace="ml", pod="train-0", container="side")
SERVE = Workload(namespace="web", pod="serve-7d9f-abcde", container="triton")


def allocation(workload: Workload, *ids: str, resource: str = "nvidia.com/gpu", claim: str | None = None) -> Allocation:
    return Allocation(workload=workload, resource=resource, device_ids=ids, claim=claim)


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[SimKubelet]:
    with SimKubelet(tmp_path / "kubelet.sock") as running:
        yield running


@pytest.fixture
def client(kubelet: SimKubelet) -> PodResources:
    return PodResources(kubelet.path, deadline=5)


def reason_of(client: PodResources) -> str:
    with pytest.raises(PodResourcesError) as caught:
        client.allocations()
    assert str(caught.value).count("; ") >= 2, "what, why and next step"
    return caught.value.reason


def test_every_kind_of_allocation_comes_back_as_it_was_given(kubelet: SimKubelet, client: PodResources) -> None:
    given_out = {
        allocation(TRAIN, "GPU-b", "GPU-a"),
        allocation(SIDE, "MIG-c", resource="nvidia.com/mig-1g.10gb"),
        allocation(SERVE, "GPU-d::3", resource="nvidia.com/gpu.shared"),
        allocation(SERVE, "gpu-5", resource="gpu.nvidia.com", claim="web/one-gpu"),
    }
    kubelet.show(given_out)
    assert set(client.allocations()) == given_out


def test_an_empty_node_has_no_allocations(client: PodResources) -> None:
    assert client.allocations() == ()


def test_an_answer_larger_than_the_windows_of_http2_arrives_whole(kubelet: SimKubelet, client: PodResources) -> None:
    given_out = {allocation(TRAIN, f"GPU-{number:0400}", resource="nvidia.com/gpu.shared") for number in range(1000)}
    kubelet.show(given_out)
    assert sum(len(found.device_ids) for found in client.allocations()) == 1000


def test_answers_follow_the_kubelet(kubelet: SimKubelet, client: PodResources) -> None:
    seen = []
    for number in range(3):
        kubelet.show([allocation(TRAIN, f"GPU-{number}")])
        seen += [found.device_ids for found in client.allocations()]
    assert seen == [("GPU-0",), ("GPU-1",), ("GPU-2",)]


def test_foreign_resources_are_left_out_and_configured_ones_are_let_in(kubelet: SimKubelet) -> None:
    named = {
        name: allocation(TRAIN, "x", resource=name) for name in ("nvidia.com/gpu", "nvidia.com/A100", "amd.com/gpu")
    }
    kubelet.show(
        [
            *named.values(),
            allocation(SERVE, "channel-0", resource="compute-domain.nvidia.com", claim="web/imex"),
        ]
    )
    plain, wider = PodResources(kubelet.path), PodResources(kubelet.path, resources=["nvidia.com/A*"])
    assert plain.allocations() == (named["nvidia.com/gpu"],)
    assert set(wider.allocations()) == {named["nvidia.com/gpu"], named["nvidia.com/A100"]}


def test_rows_of_several_numa_nodes_are_one_answer(kubelet: SimKubelet, client: PodResources) -> None:
    all_devices = Allocatable(resource="nvidia.com/gpu", device_ids=("GPU-a", "GPU-b", "GPU-c"))
    kubelet.show([], [all_devices, Allocatable(resource="intel.com/nic", device_ids=("eth1",))])
    assert client.allocatable() == (all_devices,)


@pytest.mark.parametrize("fault", ["old", "gated"])
def test_a_call_the_kubelet_does_not_offer_is_none_and_asked_once_per_kubelet(
    kubelet: SimKubelet, client: PodResources, fault: Fault
) -> None:
    kubelet.fail(fault)
    kubelet.show([allocation(TRAIN, "GPU-a")])
    for _ in range(3):
        assert client.allocatable() is None
        assert len(client.allocations()) == 1
    assert kubelet.calls.count("GetAllocatableResources") == 1
    kubelet.fail(None)
    assert client.allocatable() == ()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("absent", "absent"),
        ("refused", "unavailable"),
        ("noise", "unavailable"),
        ("garbage", "garbage"),
        ("limited", "rate_limit"),
    ],
)
def test_a_sick_kubelet_is_an_error_with_a_reason_and_heals(
    kubelet: SimKubelet, client: PodResources, fault: Fault, reason: str
) -> None:
    kubelet.show([allocation(TRAIN, "GPU-a")])
    kubelet.fail(fault)
    assert [reason_of(client), reason_of(client)] == [reason, reason]
    kubelet.fail(None)
    assert len(client.allocations()) == 1


def test_a_slow_kubelet_costs_one_deadline(kubelet: SimKubelet) -> None:
    kubelet.fail("slow")
    client = PodResources(kubelet.path, deadline=0.2)

    def took() -> float:
        began = time.monotonic()
        assert reason_of(client) == "deadline"
        return time.monotonic() - began

    assert any(0.2 <= took() < 2 for _ in range(3)), "a busy machine is late now and then"


@pytest.mark.parametrize(("size", "reason"), [(5 << 20, None), (17 << 20, "too_large")])
def test_replies_above_grpcs_own_limit_are_read_up_to_ours(tmp_path: Path, size: int, reason: str | None) -> None:
    with SimKubelet(tmp_path / "kubelet.sock", reply_bytes=size) as kubelet:
        kubelet.fail("oversized")
        kubelet.show([allocation(TRAIN, "GPU-a")])
        client = PodResources(kubelet.path)
        if reason:
            assert reason_of(client) == reason
        else:
            assert client.allocations() == (allocation(TRAIN, "GPU-a"),)


def test_a_socket_that_may_not_be_read_is_distinguished_from_an_absent_one(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert reason_of(PodResources(tmp_path / "file" / "kubelet.sock")) == "absent"


def test_threads_and_files_do_not_follow_the_number_of_calls(kubelet: SimKubelet, client: PodResources) -> None:
    def held() -> int:
        return len(list(Path("/proc/self/task").iterdir())) + len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(50):
        client.allocations()
    before = held()
    for _ in range(200):
        client.allocations()
    assert held() - before < 10, "a connection ends with its call"


API_PROTO = """
syntax = "proto3";
package v1;
message ListPodResourcesResponse { repeated PodResources pod_resources = 1; }
message PodResources {
  string name = 1; string namespace = 2; repeated ContainerResources containers = 3;
  repeated int64 cpu_ids = 4; repeated ContainerMemory memory = 5;
}
message ContainerResources {
  string name = 1; repeated ContainerDevices devices = 2; repeated int64 cpu_ids = 3;
  repeated ContainerMemory memory = 4; repeated DynamicResource dynamic_resources = 5;
}
message ContainerMemory { string memory_type = 1; uint64 size = 2; NUMATopology topology = 3; }
message ContainerDevices {
  string resource_name = 1; repeated string device_ids = 2; NUMATopology topology = 3;
}
message NUMATopology { repeated NUMANode nodes = 1; }
message NUMANode { int64 ID = 1; }
message DynamicResource {
  reserved 1; string claim_name = 2; string claim_namespace = 3; repeated ClaimResource claim_resources = 4;
}
message ClaimResource {
  repeated CDIDevice cdi_devices = 1; string driver_name = 2; string pool_name = 3; string device_name = 4;
  optional string share_id = 5;
}
message CDIDevice { string name = 1; }
"""


def test_messages_written_with_the_kubelets_whole_schema_are_understood(tmp_path: Path) -> None:
    (tmp_path / "api.proto").write_text(API_PROTO)
    include = str(importlib.resources.files("grpc_tools") / "_proto")
    out = tmp_path / "api.bin"
    assert protoc.main(["protoc", f"-I{tmp_path}", f"-I{include}", f"--descriptor_set_out={out}", "api.proto"]) == 0
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file:
        pool.Add(file)
    theirs = message_factory.GetMessageClass(pool.FindMessageTypeByName("v1.ListPodResourcesResponse"))()
    pod = theirs.pod_resources.add(name="train-0", namespace="ml", cpu_ids=[1, 2])
    container = pod.containers.add(name="main", cpu_ids=[1, 2])
    container.memory.add(memory_type="memory", size=1 << 40).topology.nodes.add(ID=1)
    container.devices.add(resource_name="nvidia.com/gpu", device_ids=["GPU-a"]).topology.nodes.add(ID=0)
    claim = container.dynamic_resources.add(claim_name="gpu", claim_namespace="ml")
    part = claim.claim_resources.add(driver_name="gpu.nvidia.com", device_name="gpu-0", share_id="s")
    part.cdi_devices.add(name="k8s.gpu.nvidia.com/device=gpu-0")

    ours = decode(SCHEMA, "ListPodResourcesResponse", theirs.SerializeToString()).pod_resources[0]
    assert (ours.namespace, ours.name, ours.containers[0].name) == ("ml", "train-0", "main")
    assert list(ours.containers[0].devices[0].device_ids) == ["GPU-a"]
    read = ours.containers[0].dynamic_resources[0]
    assert (read.claim_namespace, read.claim_name) == ("ml", "gpu")
    assert read.claim_resources[0].device_name == "gpu-0"
    assert read.claim_resources[0].cdi_devices[0].name == "k8s.gpu.nvidia.com/device=gpu-0"


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        (("nvidia.com/gpu=GPU-a",), ("nvidia.com/gpu=GPU-a",)),
        (("gpu-0-mig-1g5gb-19-3",), ("gpu-0-mig-1g5gb-19-3",)),
        (("k8s.gpu.nvidia.com/device=gpu-1",), ("k8s.gpu.nvidia.com/device=gpu-1",)),
    ],
)
def test_a_claimed_device_is_named_as_exactly_as_it_can_be(
    kubelet: SimKubelet, client: PodResources, ids: tuple[str, ...], told: tuple[str, ...]
) -> None:
    kubelet.show([allocation(TRAIN, *ids, resource="gpu.nvidia.com", claim="ml/gpu")])
    assert [found.device_ids for found in client.allocations()] == [told]


def test_a_claimed_device_has_its_cdi_name_too(kubelet: SimKubelet) -> None:
    """As the kubelet gives it for NVIDIA's DRA driver."""
    kubelet.show([allocation(TRAIN, "gpu-0", resource="gpu.nvidia.com", claim="ml/gpu")])
    with grpc.insecure_channel(f"unix:{kubelet.path}") as channel:
        raw = channel.unary_unary("/v1.PodResourcesLister/List")(b"")
    pod = decode(SCHEMA, "ListPodResourcesResponse", raw).pod_resources[0]
    (part,) = pod.containers[0].dynamic_resources[0].claim_resources
    assert (part.device_name, part.cdi_devices[0].name) == ("gpu-0", "k8s.gpu.nvidia.com/device=gpu-0")


def test_before_1_31_a_claim_is_recognised_by_its_cdi_name(kubelet: SimKubelet, client: PodResources) -> None:
    ours = allocation(TRAIN, "k8s.gpu.nvidia.com/device=gpu-1", resource="", claim="ml/gpu")
    imex = allocation(SIDE, "k8s.compute-domain.nvidia.com/device=channel-0", resource="", claim="ml/imex")
    kubelet.show([ours, imex])
    assert [(found.claim, found.device_ids) for found in client.allocations()] == [("ml/gpu", ours.device_ids)]


@given(st.binary(max_size=300))
def test_arbitrary_bytes_decode_or_are_refused_with_the_one_error_the_client_expects(payload: bytes) -> None:
    try:
        reply = decode(SCHEMA, "ListPodResourcesResponse", payload)
    except ValueError:
        return
    client = PodResources(Path("/nonexistent"))
    assert all(found.device_ids or found.resource for pod in reply.pod_resources for found in client._of_pod(pod))
