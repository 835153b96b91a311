"""The join of all sources into one View: pods, energy per pod, a kubelet that is gone, a /proc that shows nobody."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuwatch.agent.node_state import DriverReading
from gpuwatch.agent.view_builder import ViewBuilder, ViewInputs
from gpuwatch.config import AgentConfig, ChecksConfig, Config, SourcesConfig
from gpuwatch.model.snapshot import (
    Driver,
    Gpu,
    GpuProcess,
    GpuState,
    GpuStatus,
    Identity,
    MigInstance,
    Power,
    SourceStatus,
)
from gpuwatch.model.view import STALE_INTERVALS, AgentStatus, View
from gpuwatch.model.workload import Allocatable, Allocation, Workload
from gpuwatch.model.xid import XidEvent
from gpuwatch.sim.surroundings.kubelet import SimKubelet
from gpuwatch.sim.surroundings.proctree import ProcTree, SimProcess
from tests.waiting import BOUND_SECONDS

KUBELET_SECONDS = 10.0
NVML = SourceStatus(name="nvml", up=True)
UIDS = ("11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222")
PODS = [Workload(namespace="ml", pod=f"train-{i}", container="main", pod_uid=uid) for i, uid in enumerate(UIDS)]


class FakeClock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def time(self) -> float:
        return 1e9 + self.now

    def monotonic(self) -> float:
        return self.now


def gpu(index: int = 0, *, energy: float | None = None, at: float = 1.0, **parts: Any) -> Gpu:
    identity = Identity(index=index, uuid=f"GPU-{index}", pci_bus_id=f"00000000:0{index + 1}:00.0")
    return Gpu(identity=identity, at=at, power=Power(energy=energy), **parts)


def process(pid: int, sm: float | None = None, **parts: Any) -> GpuProcess:
    return GpuProcess(pid=pid, type="compute", used_memory=1 << 30, sm_utilization=sm, **parts)


class Node:
    """An ViewBuilder on a made-up node, and the clock it reads."""

    def __init__(self, folder: Path, **sources: Any) -> None:
        self.clock = FakeClock()
        self.tree = ProcTree(folder)
        self.bus = folder / "sys/bus/pci/devices"
        self.kubelet = folder / "pod-resources/kubelet.sock"
        places = {
            "proc": str(self.tree.proc),
            "pod_logs": str(self.tree.logs / "pods"),
            "sys": str(folder / "sys"),
            "dev": str(folder / "dev"),
            "pod_resources": str(self.kubelet),
            "pod_resources_interval": KUBELET_SECONDS,
        }
        self.config = Config(agent=AgentConfig(expected_gpus=2), sources=SourcesConfig(**{**places, **sources}))
        self.builder = ViewBuilder(self.config, self.clock, "node-7")

    def view(
        self,
        *gpus: Gpu,
        answered: bool = True,
        last_seen: tuple[Gpu, ...] = (),
        news: tuple[XidEvent, ...] = (),
        version: str | None = None,
    ) -> View:
        return self.builder.view(self.inputs(gpus, answered, last_seen, news, version))

    def inputs(
        self,
        gpus: tuple[Gpu, ...],
        answered: bool = True,
        last_seen: tuple[Gpu, ...] = (),
        news: tuple[XidEvent, ...] = (),
        version: str | None = None,
    ) -> ViewInputs:
        reading = DriverReading(
            gpus=gpus,
            last_seen=last_seen,
            statuses=tuple(GpuStatus(identity=one.identity, state=GpuState.FRESH) for one in (*gpus, *last_seen)),
            driver=Driver(version=version),
            answered=answered,
            unanswered={},
            awaited={},
            sources=(NVML,),
        )
        status = AgentStatus(version="1", started=0.0)
        return ViewInputs(at=self.clock.time(), reading=reading, sources=(), agent=status, xids=(), sxids=(), news=news)

    def put_on_bus(self, address: str, driver: str | None = None) -> None:
        folder = self.bus / address
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "vendor").write_text("0x10de\n")
        (folder / "class").write_text("0x030200\n")
        if driver:
            target = self.bus.parent / "drivers" / driver
            target.mkdir(parents=True, exist_ok=True)
            (folder / "driver").symlink_to(target)

    def source(self, view: View, name: str) -> SourceStatus:
        return next(source for source in view.snapshot.sources if source.name == name)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def kubelet(node: Node) -> Iterator[SimKubelet]:
    with SimKubelet(node.kubelet) as kubelet:
        yield kubelet


def joules(view: View) -> dict[tuple[str, str | None], float]:
    found: dict[tuple[str, str | None], float] = {}
    for row in view.pod_energy:
        key = (row.gpu, row.workload.pod)
        found[key] = found.get(key, 0.0) + row.joules
    return found


def holders(view: View) -> dict[str, set[str | None]]:
    return {use.gpu: {holder.workload.pod for holder in use.holders} for use in view.attribution.devices}


def allocation(pod: Workload, *devices: str) -> Allocation:
    bare = Workload(namespace=pod.namespace, pod=pod.pod, container=pod.container)
    return Allocation(workload=bare, resource="nvidia.com/gpu", device_ids=devices)


# ---- energy


def test_energy_goes_to_the_pods_that_use_the_gpu(node: Node) -> None:
    node.tree.show([SimProcess(pid=10, workload=PODS[0]), SimProcess(pid=20, workload=PODS[1])])
    busy = (process(10, 0.6), process(20, 0.2))
    first = node.view(gpu(energy=1000.0, processes=busy))
    assert joules(first) == {("GPU-0", "train-0"): 0.0, ("GPU-0", "train-1"): 0.0}
    second = node.view(gpu(energy=1400.0, processes=busy))
    assert joules(second) == {
        ("GPU-0", "train-0"): pytest.approx(300.0),
        ("GPU-0", "train-1"): pytest.approx(100.0),
    }


def test_the_same_sample_twice_counts_once(node: Node) -> None:
    node.tree.show([SimProcess(pid=10, workload=PODS[0])])
    sample = gpu(energy=1400.0, processes=(process(10, 0.5),))
    node.view(gpu(energy=1000.0, processes=(process(10, 0.5),)))
    assert joules(node.view(sample)) == joules(node.view(sample))


def test_energy_is_counted_by_instance_and_adds_up_to_that_of_the_board(node: Node) -> None:
    node.tree.show([SimProcess(pid=10, workload=PODS[0]), SimProcess(pid=11, workload=PODS[0])])
    mig = tuple(MigInstance(index=i, uuid=f"MIG-{i}", gi=i, ci=0, multiprocessors=16) for i in (1, 2))
    on = (process(10, gi=1, ci=0), process(11, gi=2, ci=0))
    node.view(gpu(energy=0.0, mig=mig, processes=on))
    view = node.view(gpu(energy=50.0, mig=mig, processes=on))
    assert {(row.gi, row.method): row.joules for row in view.pod_energy} == {
        (1, "size"): pytest.approx(25.0),
        (2, "size"): pytest.approx(25.0),
    }


def test_a_pod_s_energy_does_not_fall_when_it_leaves_one_of_its_instances(node: Node) -> None:
    node.tree.show([SimProcess(pid=10, workload=PODS[0]), SimProcess(pid=11, workload=PODS[0])])
    mig = tuple(MigInstance(index=i, uuid=f"MIG-{i}", gi=i, ci=0, multiprocessors=16) for i in (1, 2))
    both = (process(10, gi=1, ci=0), process(11, gi=2, ci=0))
    for energy, on in ((0.0, both), (50.0, both), (50.0, both[:1])):
        view = node.view(gpu(energy=energy, mig=mig, processes=on))
    assert joules(view) == {("GPU-0", "train-0"): pytest.approx(50.0)}
    assert joules(node.view(gpu(energy=90.0, mig=mig, processes=()))) == {}


def test_another_way_of_sharing_begins_a_counter_of_its_own_and_keeps_the_other(node: Node) -> None:
    """Nothing is known of the process at first, then it computes, then nothing again."""
    node.tree.show([SimProcess(pid=10, workload=PODS[0])])
    for energy, busy in ((0.0, None), (10.0, None), (30.0, 0.5), (35.0, None)):
        view = node.view(gpu(energy=energy, processes=(process(10, busy),)))
    assert {row.method: row.joules for row in view.pod_energy} == {"size": 15.0, "utilization": 20.0}


def test_a_counter_that_started_over_takes_nothing_back(node: Node) -> None:
    node.tree.show([SimProcess(pid=10, workload=PODS[0])])
    on = (process(10, 0.5),)
    for energy in (1000.0, 1100.0):
        node.view(gpu(energy=energy, processes=on))
    after_reload = node.view(gpu(energy=5.0, processes=on))
    assert joules(after_reload) == {("GPU-0", "train-0"): pytest.approx(100.0)}
    assert joules(node.view(gpu(energy=25.0, processes=on))) == {("GPU-0", "train-0"): pytest.approx(120.0)}


def test_no_energy_counter_no_energy(node: Node) -> None:
    node.tree.show([SimProcess(pid=10, workload=PODS[0])])
    node.view(gpu(processes=(process(10, 0.5),)))
    assert set(joules(node.view(gpu(processes=(process(10, 0.5),)))).values()) <= {0.0}


def test_pods_that_left_are_forgotten(node: Node) -> None:
    node.tree.show([SimProcess(pid=10, workload=PODS[0])])
    node.view(gpu(energy=1.0, processes=(process(10, 0.5),)))
    assert joules(node.view(gpu(energy=9.0, processes=()))) == {}


# ---- kubelet


def test_without_a_kubelet_pods_are_known_by_their_processes(node: Node) -> None:
    node.builder.refresh_allocations()
    node.tree.show([SimProcess(pid=10, workload=PODS[0])])
    view = node.view(gpu(0, processes=(process(10),)), gpu(1, processes=()))
    assert holders(view) == {"GPU-0": {"train-0"}, "GPU-1": set()}
    assert [use.allocated for use in view.attribution.devices] == [True, None]
    source = node.source(view, "podresources")
    assert source.up is None
    assert "no kubelet" in source.reason
    assert "monitoring_degraded" not in {finding.check for finding in view.judgement.findings}


def test_a_kubelet_says_who_has_what(node: Node, kubelet: SimKubelet) -> None:
    kubelet.show([allocation(PODS[0], "GPU-0")])
    node.builder.refresh_allocations()
    view = node.view(gpu(0), gpu(1))
    assert holders(view) == {"GPU-0": {"train-0"}, "GPU-1": set()}
    assert [use.allocated for use in view.attribution.devices] == [True, False]


def test_gpus_that_the_kubelet_may_give_nobody_are_known_while_it_may_give_others(
    node: Node, kubelet: SimKubelet
) -> None:
    def withheld(*devices: str) -> tuple[str, ...] | None:
        kubelet.show((), [Allocatable(resource="nvidia.com/gpu", device_ids=devices)])
        node.builder.refresh_allocations()
        return node.view(gpu(0), gpu(1)).attribution.withheld

    assert withheld("GPU-0", "GPU-1") == ()
    assert withheld("GPU-0::0", "GPU-0::1") == ("GPU-1",)
    assert withheld() is None  # no device plugin is registered
    kubelet.fail("old")
    assert withheld("GPU-0") is None


def test_a_kubelet_that_is_gone_is_trusted_for_a_while(node: Node, kubelet: SimKubelet) -> None:
    kubelet.show([allocation(PODS[0], "GPU-0")])
    node.builder.refresh_allocations()
    kubelet.stop()
    node.clock.now += KUBELET_SECONDS
    node.builder.refresh_allocations()
    view = node.view(gpu(0))
    assert holders(view) == {"GPU-0": {"train-0"}}
    assert node.source(view, "podresources").up is False
    node.clock.now += KUBELET_SECONDS * (STALE_INTERVALS - 1) + 0.1
    view = node.view(gpu(0))
    assert holders(view) == {"GPU-0": set()}
    assert view.attribution.devices[0].allocated is None


def test_a_kubelet_whose_answer_is_withheld_is_not_up(node: Node, kubelet: SimKubelet) -> None:
    """Else a pod would seem to use what it was not given: it is known by its processes alone."""
    kubelet.show([allocation(PODS[0], "GPU-0")])
    node.builder.refresh_allocations()
    assert node.source(node.view(gpu(0)), "podresources").up is True
    node.clock.now += KUBELET_SECONDS * STALE_INTERVALS + 0.1
    assert node.source(node.view(gpu(0)), "podresources").up is False


def test_a_lost_gpu_keeps_its_pod(node: Node, kubelet: SimKubelet) -> None:
    kubelet.show([allocation(PODS[0], "GPU-1")])
    node.builder.refresh_allocations()
    view = node.view(gpu(0), last_seen=(gpu(1),))
    assert holders(view)["GPU-1"] == {"train-0"}
    assert [one.identity.index for one in view.snapshot.gpus] == [0]


def test_each_stranger_is_asked_about_once(node: Node, kubelet: SimKubelet) -> None:
    node.tree.show([SimProcess(pid=10, workload=PODS[0])])
    node.view(gpu(0, processes=(process(10),)))
    assert node.builder.needs_allocations
    node.view(gpu(0, processes=(process(10),)))
    assert not node.builder.needs_allocations
    node.tree.show([SimProcess(pid=10, workload=PODS[0]), SimProcess(pid=11, workload=PODS[1])])
    node.view(gpu(0, processes=(process(10), process(11))))
    assert node.builder.needs_allocations


def test_switched_off_is_not_asked(tmp_path: Path) -> None:
    node = Node(tmp_path, disabled=("podresources", "procfs", "pci"))
    with SimKubelet(node.kubelet) as kubelet:
        node.builder.refresh_allocations()
        assert not node.builder.refresh_bus()
        node.tree.show([SimProcess(pid=10, workload=PODS[0])])
        view = node.view(gpu(0, processes=(process(10),)))
        assert kubelet.calls == []
    assert view.owners == ()
    assert {source.up for source in view.snapshot.sources if source.name != "nvml"} == {None}


# ---- /proc


def test_processes_that_just_ended_are_no_failure_of_proc(node: Node) -> None:
    sample = gpu(0, at=1.0, processes=(process(10),))
    assert node.source(node.view(sample), "procfs").up is True
    assert node.source(node.view(sample), "procfs").up is True  # the same sample, looked at twice
    later = node.view(gpu(0, at=3.0, processes=(process(10),)))
    assert node.source(later, "procfs").up is False
    assert "hostPID" in node.source(later, "procfs").reason
    assert node.source(node.view(gpu(0, at=5.0, processes=())), "procfs").up is True


def test_one_visible_process_shows_that_the_namespace_is_right(node: Node) -> None:
    node.tree.show([SimProcess(pid=11)])
    for at in (1.0, 3.0):
        view = node.view(gpu(0, at=at, processes=(process(10), process(11))))
        assert node.source(view, "procfs").up is True


# ---- the bus


def test_the_bus_is_compared_once_nvml_has_shown_its_gpus(node: Node) -> None:
    for number in (1, 2):
        node.put_on_bus(f"0000:0{number}:00.0")
    node.builder.refresh_bus()
    early = node.view(gpu(0), answered=False)
    assert (early.snapshot.bus, early.snapshot.expected_gpus) == (None, None)
    assert early.judgement.findings == ()
    late = node.view(gpu(0))
    assert late.snapshot.bus == ("0000:01:00.0", "0000:02:00.0")
    assert "gpu_missing" in {finding.check for finding in late.judgement.findings}


def test_gpus_of_virtual_machines_are_not_missed(node: Node) -> None:
    node.put_on_bus("0000:01:00.0", "nvidia")
    node.put_on_bus("0000:02:00.0", "vfio-pci")
    node.put_on_bus("0000:03:00.0", "nouveau")
    node.builder.refresh_bus()
    assert node.view(gpu(0), gpu(1)).snapshot.bus == ("0000:01:00.0",)


def test_gpus_that_a_container_may_not_see_are_not_missing(node: Node, tmp_path: Path) -> None:
    """The bus shows all GPUs to every container; device files say which ones this container was given."""
    for minor, address in enumerate(("0000:01:00.0", "0000:02:00.0")):
        node.put_on_bus(address, "nvidia")
        facts = node.tree.proc / "driver/nvidia/gpus" / address
        facts.mkdir(parents=True)
        (facts / "information").write_text(f"Device Minor: \t {minor}\n")
    devices = Path(node.config.sources.dev)
    devices.mkdir()
    (devices / "nvidia0").touch()
    node.builder.refresh_bus()
    assert node.view(gpu(0)).snapshot.bus == ("0000:01:00.0",)


def test_gpus_that_the_container_runtime_does_not_list_are_not_missing(node: Node) -> None:
    for address in ("0000:01:00.0", "0000:02:00.0"):
        node.put_on_bus(address, "nvidia")
    node.put_on_bus("0000:03:00.0")
    (node.tree.proc / "driver/nvidia/gpus/0000:01:00.0").mkdir(parents=True)
    node.builder.refresh_bus()
    assert node.view(gpu(0)).snapshot.bus == ("0000:01:00.0", "0000:03:00.0")


def test_a_read_of_the_bus_counts_once_it_is_complete(node: Node) -> None:
    """While the driver keeps its files to itself, a GPU that this container may not see is not called missing."""
    node.put_on_bus("0000:01:00.0", "nvidia")
    node.builder.refresh_bus()
    node.put_on_bus("0000:02:00.0", "nvidia")  # of another container
    facts = node.tree.proc / "driver/nvidia/gpus/0000:01:00.0"
    facts.mkdir(parents=True)
    os.mkfifo(facts / "information")
    looking = threading.Thread(target=node.builder.refresh_bus)
    looking.start()
    writer = os.open(facts / "information", os.O_WRONLY)  # returns once the file is being read
    assert node.builder.bus == ("0000:01:00.0",)
    os.write(writer, b"Device Minor: 0\n")
    os.close(writer)
    (Path(node.config.sources.dev)).mkdir(exist_ok=True)
    looking.join(BOUND_SECONDS)
    assert "0000:02:00.0" not in (node.builder.bus or ())


def test_what_changes_on_the_bus_asks_for_a_fresh_reader(node: Node) -> None:
    node.put_on_bus("0000:01:00.0", "nvidia")
    assert not node.builder.refresh_bus()
    assert not node.builder.refresh_bus()
    node.put_on_bus("0000:02:00.0")
    assert node.builder.refresh_bus()
    node.put_on_bus("0000:02:00.0", "nvidia")
    assert node.builder.refresh_bus()
    assert not node.builder.refresh_bus()


def test_a_bus_that_cannot_be_read_is_off(node: Node) -> None:
    assert not node.builder.refresh_bus()
    view = node.view(gpu(0))
    assert view.snapshot.bus is None
    assert node.source(view, "pci").up is None


# ---- what happened


def xid(number: int) -> XidEvent:
    return XidEvent(at=1e9, xid=number, source="nvml", uuid="GPU-0", pci="0000:01:00")


def test_news_are_judged_with_who_has_the_gpu(node: Node, kubelet: SimKubelet) -> None:
    kubelet.show([allocation(PODS[0], "GPU-0")])
    node.builder.refresh_allocations()
    view = node.view(gpu(0), gpu(1), news=(xid(79),), version="580")
    (finding,) = view.judgement.findings
    assert (finding.key, finding.evidence["driver"]) == ("xid_fatal/GPU-0/79", "580")
    assert [workload.pod for workload in finding.pods] == ["train-0"]


def test_news_outlive_a_view_that_could_not_be_made(node: Node) -> None:
    odd = node.inputs((gpu(0),), news=(xid(79),))
    odd = odd._replace(reading=odd.reading._replace(statuses=None))
    with pytest.raises(TypeError):
        node.builder.view(odd)
    assert [finding.check for finding in node.view(gpu(0)).judgement.findings if finding.xid] == ["xid_fatal"]


def test_settings_change_what_is_found(node: Node) -> None:
    node.builder.configure(msgspec.structs.replace(node.config, checks=ChecksConfig(xids={79: "ignore"})))
    assert node.view(gpu(0), gpu(1), news=(xid(79),)).judgement.findings == ()


def test_findings_of_an_earlier_life_continue(node: Node) -> None:
    found = node.view(gpu(0), gpu(1), news=(xid(79),)).judgement.findings
    node.builder = ViewBuilder(node.config, node.clock, "node-7", found)
    assert node.view(gpu(0), gpu(1)).judgement.findings == found


def test_the_join_of_a_full_node_is_quick(node: Node) -> None:
    """Eight GPUs with 14 processes each; the publisher does this every interval."""
    pods = [Workload(namespace="ml", pod=f"p{i}", container="c", pod_uid=f"{i:032x}") for i in range(112)]
    node.tree.show([SimProcess(pid=1000 + i, workload=pod) for i, pod in enumerate(pods)])
    gpus = [gpu(g, energy=1.0, processes=tuple(process(1000 + g * 14 + i) for i in range(14))) for g in range(8)]
    node.view(*gpus)
    best = min(_timed(lambda: node.view(*gpus)) for _ in range(5))
    print(f"112 processes joined in {best * 1e3:.1f} ms")
    assert best < 0.25


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
