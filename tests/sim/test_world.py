"""A hosted node: kernel log, kubelet, /proc and sysfs agree with the driver, in this process and in another."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.collect.kernel_log.follower import KernelLog
from gpuwatch.collect.kernel_log.ring import KmsgRecords
from gpuwatch.config import Config
from gpuwatch.host.pci import bus_gpus, driver_gpus
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.errors import GpuwatchError, NoGpuStack, UsageError
from gpuwatch.model.finding import Severity
from gpuwatch.sim.directory import inject
from gpuwatch.sim.node import pods
from gpuwatch.sim.node.machine import LogLine
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.node.scenario import load
from gpuwatch.sim.nvml import open_node
from gpuwatch.sim.playback import views
from gpuwatch.sim.world import KernelRing, World
from gpuwatch.workloads.podresources import PodResources
from gpuwatch.workloads.procfs import PodLogs, Processes
from tests.sim.node.nodes import scenario, work
from tests.waiting import until

OTHER = """
import sys, time
from gpuwatch.sim.nvml import open_node
driver = open_node(sys.argv[1])
driver.nvmlInit()
events = driver.nvmlEventSetCreate()
driver.nvmlDeviceRegisterEvents(driver.nvmlDeviceGetHandleByIndex(1), 8, events)
print("ready", flush=True)
while True:
    event = driver.nvmlEventSetWait_v2(events, 90000)
    print(event.device.gpu, event.eventData, time.time(), flush=True)
"""


@pytest.fixture
def world(tmp_path):
    of = scenario(workloads=[work(0, load="steady", container="trainer")])
    with World(of, tmp_path / "node") as running:
        yield running


def kernel_log(world):
    return KernelLog.open(Path(world.sources.kmsg), boot_id_path=Path(world.sources.proc) / "sys/kernel/random/boot_id")


def events_of(log, kind):
    return until(lambda: [event for event in log.read(0.5) if event.line.kind == kind], kind)


def test_an_injection_is_seen_by_the_kernel_log_and_by_another_process_at_the_same_time(world):
    log = kernel_log(world)
    other = subprocess.Popen([sys.executable, "-c", OTHER, world.backend.target], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "ready\n"
        assert any(apart(world, log, other) < 0.3 for _ in range(5)), "on a busy machine a process may be late"
    finally:
        other.kill()
        other.communicate()
        log.close()


def test_each_reader_of_the_kernel_log_has_every_record(world):
    """As of /dev/kmsg: an agent loses no XID to a diagnosis beside it, and one that comes later finds it, too."""
    early, beside = kernel_log(world), kernel_log(world)
    world.inject({"do": "xid", "gpu": 1, "xid": 79})
    found = [events_of(log, "xid") for log in (early, beside, kernel_log(world))]
    assert [[event.line.xid for event in each] for each in found] == [[79]] * 3
    early.close()
    beside.close()


def test_a_full_kernel_log_loses_what_it_has_and_the_numbers_continue(tmp_path):
    ring = KernelRing(tmp_path / "kmsg", SystemClock(), room=500)
    records = KmsgRecords(tmp_path / "kmsg")
    found = []
    for number in range(100):
        ring.write(LogLine(0.0, f"line {number}"))
        found += records.read() if number < 10 or number > 90 else []
    assert [frame.message for frame in found[:10]] == [f"line {number}" for number in range(10)]
    assert found[-1].message == "line 99"
    assert records.lost == 100 - len(found) > 0
    records.close()
    ring.close()


def apart(world, log, other):
    """Inject an XID; seconds between its line in the kernel log and its event in the other process."""
    world.inject({"do": "xid", "gpu": 1, "xid": 79})
    (event,) = events_of(log, "xid")
    gpu, xid, at = other.stdout.readline().split()
    assert (gpu, xid) == ("1", "79")
    assert event.line.xid == 79
    assert event.line.pci == "0000:43:00"
    return abs(float(at) - event.at)


def test_kubelet_proc_and_driver_name_the_same_gpu_and_process(world):
    driver = open_node(world.backend.target)
    driver.nvmlInit()
    handle = driver.nvmlDeviceGetHandleByIndex(0)
    (process,) = driver.nvmlDeviceGetComputeRunningProcesses_v2(handle)
    client = PodResources(Path(world.sources.pod_resources))
    (allocation,) = client.allocations()
    owner = Processes(Path(world.sources.proc), PodLogs(Path(world.sources.pod_logs).parent)).owners([process.pid])
    assert allocation.device_ids == (driver.nvmlDeviceGetUUID(handle),)
    assert allocation.workload.pod == owner[process.pid].workload.pod == "train-0"
    assert owner[process.pid].workload.container == "trainer"


def test_slurm_s_prolog_has_noted_account_and_partition(tmp_path):
    with World("a100", tmp_path / "node") as world:
        sources = world.sources
        processes = Processes(Path(sources.proc), PodLogs(tmp_path), jobs=Path(sources.slurm_jobs))
        owners = processes.owners(int(each) for each in os.listdir(sources.proc) if each.isdigit()).values()
    jobs = {(owner.slurm_job, owner.slurm_account, owner.slurm_partition) for owner in owners if owner.slurm_job}
    assert jobs == {("4711", "physics", "gpu"), ("4712", "chemistry", "gpu")}


def test_sysfs_and_the_module_list_what_the_driver_has(world):
    sys_devices = Path(world.sources.sys) / "bus/pci/devices"
    module = Path(world.sources.proc) / "driver/nvidia/gpus"
    driver = open_node(world.backend.target)
    driver.nvmlInit()
    uuid = driver.nvmlDeviceGetUUID(driver.nvmlDeviceGetHandleByIndex(0))
    assert [gpu.driver for gpu in bus_gpus(sys_devices)] == ["nvidia", "nvidia"]
    assert driver_gpus(module)[0].uuid == uuid
    world.inject({"do": "lose", "gpu": 0, "from_bus": True})
    until(lambda: len(bus_gpus(sys_devices)) == 1)
    assert [gpu.uuid for gpu in driver_gpus(module)] != [uuid]


def test_pods_come_and_go_everywhere(world):
    client = PodResources(Path(world.sources.pod_resources))
    new = {"name": "ns/fresh", "container": "c", "gpus": [1], "load": "idle"}
    world.inject({"do": "start", "workload": new})
    until(lambda: {a.workload.pod for a in client.allocations()} == {"train-0", "fresh"})
    until(lambda: any(path.name.startswith("ns_fresh_") for path in Path(world.sources.pod_logs).iterdir()))
    world.inject({"do": "stop", "name": "ns/fresh"})
    until(lambda: {a.workload.pod for a in client.allocations()} == {"train-0"})


def test_a_gpu_that_is_well_again_is_found_to_be_counted_out_until_the_device_plugin_is_restarted():
    found = [
        (view.snapshot.at, [(each.check, each.severity) for each in view.judgement.findings if each.gpu])
        for view in views(load("plugin-withheld"), Config(), 0.0, 480.0, short_step=2.0)
    ]
    held = [at for at, findings in found if findings == [("gpu_not_allocatable", Severity.WARNING)]]
    assert 120 < min(held) < 200
    assert 200 < max(held) <= 302
    assert found[-1][1] == []


def test_the_kubelet_may_give_away_what_the_device_plugin_calls_healthy():
    node = SimNode(
        scenario(timeline=[{"at": 5, "do": "device_plugin", "unhealthy": [1]}, {"at": 9, "do": "device_plugin"}])
    )
    counts = []
    for at in (1.0, 6.0, 10.0):
        node.advance(at)
        counts.append(len(pods.allocatable(node)[0].device_ids))
    assert counts == [2, 1, 2]


def test_the_kubelet_shows_claims_slots_and_instances_by_their_own_names():
    shared = SimNode(scenario(replicas=4, workloads=[work("0::3")]), physical=False)
    assert [a.device_ids for a in pods.allocations(shared)] == [(f"{shared.gpus[0].uuid}::3",)]
    assert len(pods.allocatable(shared)[0].device_ids) == 8
    claimed = SimNode(scenario(workloads=[work(1, claim="two")]), physical=False)
    (allocation,) = pods.allocations(claimed)
    assert (allocation.resource, allocation.claim) == ("gpu.nvidia.com", "ml/two")
    assert allocation.device_ids == ("gpu-1",)
    cut = SimNode(scenario(gpus=1, mig={0: ["1g.10gb"]}, workloads=[work("0:0")]), physical=False)
    (allocation,) = pods.allocations(cut)
    assert allocation.resource == "nvidia.com/mig-1g.10gb"
    assert allocation.device_ids[0].startswith("MIG-")


def test_the_kubelet_can_go_away_and_come_back(world):
    socket = Path(world.sources.pod_resources)
    world.inject({"do": "kubelet", "state": "absent"})
    until(lambda: not socket.exists())
    world.inject({"do": "kubelet", "state": "ok"})
    until(socket.exists)


def test_a_node_without_kubelet_has_no_place_for_one(tmp_path):
    with World("a100", tmp_path / "node") as world:
        assert not Path(world.sources.pod_resources).parent.exists()


def test_lines_from_user_space_do_not_count(world):
    log = kernel_log(world)
    forged = "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus."
    world.inject({"do": "kernel", "line": forged, "facility": 1})
    world.inject({"do": "xid", "gpu": 0, "xid": 43})
    (event,) = events_of(log, "xid")
    assert event.line.xid == 43
    assert event.line.name == "python3"
    log.close()


def test_a_directory_has_one_node_at_a_time_and_none_after_the_end(tmp_path):
    with World("healthy", tmp_path), pytest.raises(GpuwatchError, match="already runs"):
        World("healthy", tmp_path).start()
    with pytest.raises(NoGpuStack, match="sim run"):
        open_node(str(tmp_path))
    with pytest.raises(NoGpuStack):
        inject(tmp_path, {"do": "lose", "gpu": 0})
    with World("t4", tmp_path) as second:
        driver = open_node(second.backend.target)
        driver.nvmlInit()
        assert driver.nvmlDeviceGetCount() == 4


def test_what_a_dead_simulation_left_is_replaced(tmp_path):
    (tmp_path / "proc/4711").mkdir(parents=True)
    (tmp_path / "node.json").write_text("{}")
    (tmp_path / "inject.jsonl").write_text('{"do":"lose","gpu":0,"at":0}\n')
    with World("t4", tmp_path) as world:
        driver = open_node(world.backend.target)
        driver.nvmlInit()
        assert driver.nvmlDeviceGetPowerUsage(driver.nvmlDeviceGetHandleByIndex(0)) > 0
        assert not (tmp_path / "proc/4711").exists()


def test_a_wrong_injection_is_refused_before_any_view_has_it(world):
    with pytest.raises(UsageError, match="no GPU 2"):
        world.inject({"do": "xid", "gpu": 2, "xid": 79})
    with pytest.raises(UsageError, match="did you mean"):
        world.inject({"do": "xid", "gpu": 1, "xxid": 79})
    assert (world.directory / "inject.jsonl").read_bytes() == b""


def test_a_directory_that_cannot_be_written_is_reported(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(GpuwatchError, match="cannot simulate in"):
        World("t4", file).start()


def test_it_is_the_same_machine_each_time_and_another_one_elsewhere(tmp_path):
    def machine_id(place):
        with World(scenario("t4", 1), place) as world:
            return Path(world.sources.machine_id).read_text().strip()

    first, again, other = (machine_id(tmp_path / name) for name in ("a", "a", "b"))
    assert len(first) == 32
    assert first == again != other
    assert not (tmp_path / "a/etc").exists()
