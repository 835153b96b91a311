"""Checks of containers and kubelet on machines of all kinds, and with facts that are only half there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.diagnose.check import CheckContext
from gpuwatch.diagnose.checks.container_devices import device_injection, runtime_config, runtime_kind
from gpuwatch.diagnose.checks.kubelet.capacity import expected_devices, gpus_without_device, nvidia_resources
from gpuwatch.diagnose.checks.sharing import check_instances
from gpuwatch.diagnose.checks.table import CHECKS
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.host.cdi import CdiSpec
from gpuwatch.diagnose.host.container_runtime import ContainerRuntime
from gpuwatch.diagnose.host.kubelet_files import KubeletFiles
from gpuwatch.diagnose.host.runtime_config import RuntimeConfig, ToolkitConfig
from gpuwatch.diagnose.host.services import OperatorFiles, ServiceProcess, Services
from gpuwatch.diagnose.model import CheckResult, CheckStatus, ClusterFacts, NodePod
from gpuwatch.kube.objects import NodeObject
from gpuwatch.model.snapshot import Gpu, Identity, MigInstance, SourceStatus
from gpuwatch.model.workload import Attribution, DeviceUse, Holder, ProcessOwner, Workload
from tests.diagnose.checks.broken_containers import alone, attributed, crio, docker, held, no_kubelet
from tests.diagnose.hosts import Host, seen

ROWS = {check.id: check for check in CHECKS if check.id[0] in "TK"}
NODE = NodeObject(name="n1", uid="1", resource_version="1")
WELL = frozenset({CheckStatus.PASS, CheckStatus.SKIP})


def results(host: Host) -> dict[str, CheckResult]:
    return {result.id: result for result in host.diagnose().results if result.id in ROWS}


def wrong(host: Host) -> list[tuple[str, str]]:
    return [(r.id, r.message) for r in results(host).values() if r.result not in WELL]


def bare(host: Host) -> None:
    """Neither containers nor Kubernetes: a Slurm node."""
    no_kubelet(host)
    alone(host)
    for path in ("etc/containerd", "usr/bin/containerd", "run/cdi", "etc/nvidia-container-runtime", "proc/812"):
        host.remove(path)


def k3s(host: Host) -> None:
    """containerd and kubelet inside one program, with a configuration of its own."""
    (host.root / "var/lib/rancher/k3s/agent/etc").mkdir(parents=True)
    (host.root / "etc/containerd").rename(host.root / "var/lib/rancher/k3s/agent/etc/containerd")
    at = "var/lib/rancher/k3s/agent/etc/containerd"
    host.edit(f"{at}/config.toml", "/etc/containerd/conf.d", f"/{at}/conf.d")
    host.write("etc/containerd/config.toml", "version = 2\n")
    host.remove("var/lib/kubelet/config.yaml")
    alone(host)


def podman(host: Host) -> None:
    bare(host)
    host.write("usr/bin/podman", "\x7fELF")
    host.write("etc/cdi/nvidia.yaml", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ncontainerEdits: {}\n")


def google(host: Host) -> None:
    """Google's nodes: a device plugin of their own mounts the driver."""
    for name in ("nvidia-ctk", "nvidia-container-runtime", "nvidia-container-runtime-hook", "nvidia-cdi-hook"):
        host.remove(f"usr/bin/{name}")
    for path in ("etc/containerd/conf.d", "etc/nvidia-container-runtime", "run/cdi"):
        host.remove(path)
    alone(host)
    host.write("home/kubernetes/bin/nvidia/lib64/libcuda.so.1", "")
    plugins = host.root / "var/lib/kubelet/device-plugins"
    (plugins / "nvidia-gpu.sock").rename(plugins / "nvidiaGPU-1764000000.sock")


def claims(host: Host) -> None:
    """NVIDIA's DRA driver instead of a device plugin."""
    host.remove("var/lib/kubelet/device-plugins/nvidia-gpu.sock")
    host.remove("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
    host.write("var/lib/kubelet/plugins_registry/gpu.nvidia.com-reg.sock", "")
    assert host.cluster is not None
    node = msgspec.structs.replace(host.cluster.node, capacity={}, allocatable={})
    host.cluster = msgspec.structs.replace(host.cluster, node=node)


def hidden(host: Host) -> None:
    """A container that sees nothing of the host but /proc, /sys, /dev and the kubelet's pod-resources."""
    for section in ("runtime", "cdi", "operator", "driver_roots"):
        host.unread[section] = "mount the host's / and name it with --root"
    for name in ("device-plugins", "config.yaml"):
        host.remove(f"var/lib/kubelet/{name}")
    host.cluster = None
    host.unread["cluster"] = "no right"


def unmanaged(host: Host) -> None:
    """The label of the GPU operator says that this node gets no device plugin."""
    host.remove("var/lib/kubelet/device-plugins/nvidia-gpu.sock")
    assert host.cluster is not None
    host.cluster.node.labels["nvidia.com/gpu.deploy.device-plugin"] = "false"
    node = msgspec.structs.replace(host.cluster.node, capacity={}, allocatable={})
    host.cluster = msgspec.structs.replace(host.cluster, node=node)


MACHINES = (bare, k3s, podman, crio, google, claims, hidden, docker({}), no_kubelet, unmanaged)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_machines_of_other_kinds_are_well_too(tmp_path: Path, machine: Callable[[Host], None]) -> None:
    host = Host(tmp_path)
    machine(host)
    found = results(host)
    assert wrong(host) == []
    assert all(result.message for result in found.values())


def test_a_bare_machine_has_nothing_to_judge(tmp_path: Path) -> None:
    host = Host(tmp_path)
    bare(host)
    assert {result.result for result in results(host).values()} == {CheckStatus.SKIP}


def test_podman_needs_a_specification(tmp_path: Path) -> None:
    host = Host(tmp_path)
    podman(host)
    assert results(host)["T04"].result is CheckStatus.PASS
    host.remove("etc/cdi/nvidia.yaml")
    assert "podman" in results(host)["T04"].message
    assert results(host)["T04"].result is CheckStatus.WARN


def judged(id_: str, **facts: Any) -> tuple[CheckStatus, str]:
    verdict = ROWS[id_].judge(CheckContext(NodeFacts(at=1.0, **facts)))
    return verdict.result, verdict.message


def test_a_plugin_that_has_ended_and_what_its_pod_says() -> None:
    socket = "/var/lib/kubelet/device-plugins/nvidia-gpu.sock"
    kubelet = KubeletFiles(present=True, kubelet_socket=True, plugins=(socket,), refusing=(socket,))
    pod = NodePod(namespace="gpu-operator", name="nvidia-device-plugin-daemonset-x", uid="1",
                  app="nvidia-device-plugin-daemonset", waiting="CrashLoopBackOff")  # fmt: skip
    cluster = ClusterFacts(node=NODE, pods=(pod,))
    verdict = ROWS["K02"].judge(CheckContext(NodeFacts(at=1.0, kubelet=kubelet, cluster=cluster)))
    assert verdict.result is CheckStatus.FAIL
    assert verdict.evidence == {pod.path: "CrashLoopBackOff"}


def test_what_we_may_not_see_is_no_failure() -> None:
    kubelet = KubeletFiles(present=True, pod_resources="refused", pod_resources_reason="permission")
    assert judged("K01", kubelet=kubelet)[0] is CheckStatus.SKIP
    denied = RuntimeConfig(kind="containerd", path="/etc/containerd/config.toml", error="denied", denied=True)
    assert judged("T02", runtime=ContainerRuntime(configs=(denied,)))[0] is CheckStatus.SKIP
    unread = KubeletFiles(present=True, checkpoint_error="cannot be read: Permission denied")
    assert judged("K06", kubelet=unread)[0] is CheckStatus.SKIP


def test_a_kubelet_that_does_not_answer_is_one() -> None:
    kubelet = KubeletFiles(present=True, pod_resources="DEADLINE_EXCEEDED", pod_resources_reason="deadline")
    assert judged("K01", kubelet=kubelet) == (CheckStatus.FAIL, "DEADLINE_EXCEEDED")


def test_a_mount_that_is_not_there_counts_on_a_real_machine_only() -> None:
    """A recording has not all files of the host."""
    cdi = (CdiSpec(path="/etc/cdi/nvidia.yaml", kind="nvidia.com/gpu", missing=("/usr/bin/nvidia-smi",)),)
    runtime = ContainerRuntime(configs=(RuntimeConfig(kind="containerd", path="x", cdi=True),))
    assert judged("T04", cdi=cdi, runtime=runtime)[0] is CheckStatus.FAIL
    assert judged("T04", cdi=cdi, runtime=runtime, plain=True)[0] is CheckStatus.PASS


CONTAINERD, CRIO, DOCKER = (RuntimeConfig(kind=kind, path=f"/etc/{kind}") for kind in ("containerd", "crio", "docker"))
K3S = RuntimeConfig(kind="containerd", path="/var/lib/rancher/k3s/agent/etc/containerd/config.toml")


@pytest.mark.parametrize(
    ("configs", "running", "kubelet", "kind"),
    [
        ((CONTAINERD, DOCKER), ("containerd", "dockerd"), None, "docker"),
        ((CONTAINERD, DOCKER), ("containerd", "dockerd"), KubeletFiles(present=True), "containerd"),
        ((CONTAINERD, CRIO), ("containerd", "crio"), KubeletFiles(present=True), "crio"),
        ((CONTAINERD, CRIO), ("crio",), KubeletFiles(present=True, endpoint="unix:///run/containerd/containerd.sock"),
         "containerd"),
        ((CONTAINERD, CRIO), (), KubeletFiles(present=True, endpoint="unix:///var/run/crio/crio.sock"), "crio"),
        ((CONTAINERD, DOCKER), (), KubeletFiles(present=True, endpoint="unix:///run/cri-dockerd.sock"), "docker"),
        ((CONTAINERD,), (), None, "containerd"),
        ((), (), None, None),
    ],
)  # fmt: skip
def test_which_of_several_runtimes_it_is(
    configs: tuple[RuntimeConfig, ...], running: tuple[str, ...], kubelet: KubeletFiles | None, kind: str | None
) -> None:
    processes = tuple(ServiceProcess(pid=i, name=name) for i, name in enumerate(running, 2))
    facts = NodeFacts(
        at=1.0, runtime=ContainerRuntime(configs=configs), services=Services(processes=processes), kubelet=kubelet
    )
    assert runtime_kind(facts) == kind
    found = runtime_config(facts)
    assert (found.kind if found else None) == kind


def test_the_distributions_containerd_comes_before_the_systems() -> None:
    facts = NodeFacts(at=1.0, runtime=ContainerRuntime(configs=(CONTAINERD, K3S)))
    assert runtime_config(facts) is K3S


@pytest.mark.parametrize(
    ("cdi", "specs", "strategy", "mode", "version", "expected_way"),
    [
        (True, 1, None, "auto", "1.17.8-1", "cdi"),
        (True, 1, "cdi-annotations", "legacy", "1.17.8-1", "cdi"),
        (True, 1, "envvar", "auto", "1.17.8-1", "hook"),
        (True, 0, None, "auto", "1.17.8-1", "hook"),
        (None, 1, None, None, "1.18.0-1", "cdi"),
        (None, 1, None, "legacy", "1.18.0-1", "hook"),
        (None, 0, None, "cdi", "", "cdi"),
        (None, 0, None, "auto", "", "unknown"),
    ],
)
def test_by_which_way_devices_get_into_containers(
    cdi: bool | None, specs: int, strategy: str | None, mode: str | None, version: str, expected_way: str
) -> None:
    config = RuntimeConfig(kind="containerd", path="x", cdi=cdi)
    toolkit = ContainerRuntime(
        toolkit={"/usr/bin/nvidia-ctk": version}, toolkit_config=ToolkitConfig(path="y", mode=mode)
    )
    environment = {"DEVICE_LIST_STRATEGY": strategy} if strategy else None
    cluster = ClusterFacts(node=NODE, plugin_environment=environment)
    specifications = (CdiSpec(path="z", kind="nvidia.com/gpu"),) * specs
    facts = NodeFacts(at=1.0, runtime=toolkit, cdi=specifications, cluster=cluster)
    assert device_injection(facts, config) == expected_way


def gpu(index: int, *profiles: str, mig: bool | None = False) -> Gpu:
    cut = tuple(
        MigInstance(index=i, uuid=f"MIG-{index}-{i}", gi=i, ci=0, profile=profile) for i, profile in enumerate(profiles)
    )
    identity = Identity(index=index, uuid=f"GPU-{index}", pci_bus_id=f"00000000:{index:02X}:00.0")
    return Gpu(identity=identity, mig=cut, mig_enabled=mig or bool(profiles))


WHOLE = (gpu(0), gpu(1, mig=None))
CUT = (gpu(0), gpu(1, "1g.10gb", "1g.10gb+me", "3g.40gb"))


@pytest.mark.parametrize(
    ("gpus", "labels", "advertised", "wanted"),
    [
        (WHOLE, {}, {"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 2}),
        (WHOLE, {}, {"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 2}),
        (WHOLE, {}, {"nvidia.com/gpu": 8}, {"nvidia.com/gpu": 8}),  # no label: four slots each
        (WHOLE, {"nvidia.com/gpu.replicas": "4"}, {"nvidia.com/gpu": 4}, {"nvidia.com/gpu": 8}),
        (WHOLE, {"nvidia.com/gpu.replicas": "0"}, {}, {"nvidia.com/gpu": 2}),
        (CUT, {"nvidia.com/mig.strategy": "mixed"}, {},
         {"nvidia.com/gpu": 1, "nvidia.com/mig-1g.10gb": 1, "nvidia.com/mig-1g.10gb.me": 1,
          "nvidia.com/mig-3g.40gb": 1}),
        (CUT, {"nvidia.com/mig.strategy": "single"}, {}, {"nvidia.com/gpu": 4}),
        (CUT, {"nvidia.com/mig.strategy": "none"}, {}, {"nvidia.com/gpu": 2}),
        (CUT, {}, {"nvidia.com/gpu": 2}, None),
        (WHOLE, {}, {"nvidia.com/mig-3g.40gb": 2}, {"nvidia.com/gpu": 2, "nvidia.com/mig-3g.40gb": 0}),
        ((), {}, {}, {}),
    ],
)  # fmt: skip
def test_how_many_devices_there_should_be(
    gpus: tuple[Gpu, ...], labels: dict[str, str], advertised: dict[str, int], wanted: dict[str, int] | None
) -> None:
    assert expected_devices(gpus, labels, advertised) == wanted


def test_shared_resources_count_under_the_plain_name_and_others_not_at_all() -> None:
    there = {"nvidia.com/gpu.shared": 8, "nvidia.com/gpumem": 100, "cpu": 4, "nvidia.com/mig-1g.5gb.shared": 2}
    assert nvidia_resources(there) == {"nvidia.com/gpu": 8, "nvidia.com/mig-1g.5gb": 2}


@pytest.mark.parametrize(
    ("registered", "missing"),
    [(("GPU-0",), (1,)), (("GPU-0::0", "GPU-0::1"), (1,)), (("0",), (1,)), (("MIG-1-0", "GPU-0"), ()), (("tegra",), ()),
     ((), (0, 1))],
)  # fmt: skip
def test_which_gpus_the_plugin_calls_unhealthy(registered: tuple[str, ...], missing: tuple[int, ...]) -> None:
    kubelet = KubeletFiles(present=True, checkpoint={"nvidia.com/gpu": registered, "rdma/hca": ("a",)})
    assert gpus_without_device(NodeFacts(at=1.0, kubelet=kubelet), CUT) == missing


def test_pods_of_a_shared_or_finished_kind_are_no_double_use(tmp_path: Path) -> None:
    shared = Host(tmp_path / "shared", model="l40s", gpus=2, replicas=4)
    uuid = shared.view.snapshot.gpus[0].identity.uuid if shared.view else ""
    two = (held("a"), held("b"))
    attribution = Attribution(devices=(DeviceUse(gpu=uuid, allocated=True, holders=two),))
    shared.view = msgspec.structs.replace(shared.view, attribution=attribution)
    assert results(shared)["K05"].result is CheckStatus.PASS

    finished = Host(tmp_path / "finished")
    attributed(*two)(finished)
    assert finished.cluster is not None
    pods = tuple(
        NodePod(namespace="ml", name=n, uid=n, gpus=1, phase=p) for n, p in (("a", "Succeeded"), ("b", "Running"))
    )
    finished.cluster = msgspec.structs.replace(finished.cluster, pods=pods)
    assert results(finished)["K05"].result is CheckStatus.PASS
    both = tuple(msgspec.structs.replace(pod, phase="Running") for pod in pods)
    finished.cluster = msgspec.structs.replace(finished.cluster, pods=both)
    assert results(finished)["K05"].result is CheckStatus.FAIL


def test_ids_of_other_plugins_are_not_stale(tmp_path: Path) -> None:
    host = Host(tmp_path)
    attributed(held("a"), unknown=("some-other-plugin's:name",))(host)
    assert results(host)["K05"].result is CheckStatus.PASS


def test_a_claimed_instance_that_may_be_one_of_several_is_not_stale(tmp_path: Path) -> None:
    host = Host(tmp_path)
    attributed(held("a"), unknown=("gpu-3-mig-19-0-1",))(host)
    assert results(host)["K05"].result is CheckStatus.FAIL
    assert host.view is not None
    cut = [
        msgspec.structs.replace(gpu, mig=tuple(MigInstance(index=at, uuid=f"MIG-{at}", gi=at, ci=0) for at in range(2)))
        for gpu in host.view.snapshot.gpus
    ]
    snapshot = msgspec.structs.replace(host.view.snapshot, gpus=tuple(cut))
    host.view = msgspec.structs.replace(host.view, snapshot=snapshot)
    assert results(host)["K05"].result is CheckStatus.SKIP


def test_the_server_of_mps_may_be_on_any_gpu(tmp_path: Path) -> None:
    host = Host(tmp_path)
    server = Workload(namespace="gpu-operator", pod="nvidia-device-plugin-mps-control-daemon-x")
    owner = ProcessOwner(pid=7, start_time=1, name="nvidia-cuda-mps-server"[:15], workload=server)
    attributed(held("a"), Holder(workload=server), process=owner)(host)
    assert results(host)["K09"].result is CheckStatus.PASS


def test_without_the_kubelets_word_nothing_is_reported_of_pods(tmp_path: Path) -> None:
    host = Host(tmp_path)
    attributed(held("a"), held("stray", None))(host)
    assert host.view is not None
    down = (SourceStatus(name="podresources", up=False, reason="deadline"),)
    snapshot = msgspec.structs.replace(host.view.snapshot, sources=down)
    host.view = msgspec.structs.replace(host.view, snapshot=snapshot)
    found = results(host)
    assert {found["K05"].result, found["K09"].result} == {CheckStatus.SKIP}
    assert "deadline" in found["K09"].message


HALVES: dict[str, st.SearchStrategy[Any]] = {
    "runtime": st.sampled_from([None, ContainerRuntime(), ContainerRuntime(configs=(K3S,), installed=("docker",))]),
    "cdi": st.sampled_from([None, (), (CdiSpec(path="x", error="no"),), (CdiSpec(path="x", devices=("GPU-9",)),)]),
    "kubelet": st.sampled_from(
        [None, KubeletFiles(), KubeletFiles(present=True), KubeletFiles(present=True, plugins=())]
    ),
    "operator": st.sampled_from([None, OperatorFiles(), OperatorFiles(present=True, validations={"driver-ready": ""})]),
    "services": st.sampled_from([None, Services()]),
    "cluster": st.sampled_from([None, ClusterFacts(node=NODE)]),
}


@given(st.fixed_dictionaries(HALVES))
def test_no_judge_falls_over_facts_that_are_half_there(facts: dict[str, Any]) -> None:
    known = {name: value for name, value in facts.items() if value is not None}
    for check in ROWS.values():
        if set(check.reads) <= known.keys():
            assert check.judge(CheckContext(NodeFacts(at=1.0, **known))).message


@pytest.mark.parametrize(("config", "profile"), [("all-1g.10gb.me", "1g.10gb+me"), ("all-1g.24gb.gfx", "1g.24gb+gfx")])
def test_what_a_profile_brings_along_is_part_of_the_labels_name(config: str, profile: str) -> None:
    node = msgspec.structs.replace(NODE, labels={"nvidia.com/mig.config": config})
    snapshot = msgspec.structs.replace(seen().snapshot, gpus=(gpu(0, profile),))
    view = msgspec.structs.replace(seen(), snapshot=snapshot)
    assert (
        check_instances(CheckContext(NodeFacts(at=1.0, cluster=ClusterFacts(node=node), view=view))).result
        is CheckStatus.PASS
    )
