"""No driver, no GPU, no kubelet or a broken one: said with its reason, and what is there is served."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.model.workload import Allocation, Workload
from gpuwatch.sim.surroundings.kubelet import SimKubelet
from gpuwatch.sim.surroundings.proctree import ProcTree, SimProcess
from tests.drills.agent_process import AgentProcess
from tests.e2e.library import needs_none
from tests.fakes.libnvml import FakeDriver, FakeProcess

SCRAPE_SECONDS = 0.05
Start = Callable[..., AgentProcess]
POD = Workload(namespace="ml", pod="train-0", container="main")


def allocation(uuid: str) -> Allocation:
    return Allocation(workload=POD, resource="nvidia.com/gpu", device_ids=(uuid,))


@needs_none
def test_no_library_ends_with_what_to_do(start: Start, tmp_path: Path) -> None:
    agent = start(None, env={"LD_LIBRARY_PATH": str(tmp_path)})
    agent.process.wait()
    assert agent.process.returncode == 5
    assert "try --source sim" in agent.end()


def test_a_library_that_is_none_ends_with_its_path(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "libnvidia-ml.so.1"
    path.write_text("not a library")
    agent = start(None, nvml_library=str(path))
    agent.process.wait()
    assert agent.process.returncode == 5
    assert str(path) in agent.end()


def test_a_library_without_its_driver_waits_for_the_driver(driver: FakeDriver, start: Start) -> None:
    """As while a driver is being installed: to end would only have it started again and again."""
    driver.error(9, "nvmlInit")  # NVML_ERROR_DRIVER_NOT_LOADED
    agent = start()
    agent.wait(lambda: agent.value("gpuwatch_source_up", source="nvml") == 0)
    agent.wait(lambda: 'reason="nvmlInit: Driver Not Loaded"' in agent.page)
    driver.clear()
    agent.wait_complete(4)


def test_a_node_without_gpus(start: Start, tmp_path: Path) -> None:
    with FakeDriver(tmp_path / "none", gpus=0) as driver:
        agent = start(driver)
        agent.wait(lambda: agent.value("gpuwatch_source_up", source="nvml", reason="no GPU in NVML") == 0)
        assert agent.value("gpuwatch_node_health", state="unknown") == 1
        agent.serves_within(SCRAPE_SECONDS)
        assert agent.terminate() <= 2


def test_no_kubelet_on_this_machine_is_no_failure(start: Start) -> None:
    agent = start()
    agent.wait_complete(4)
    assert agent.value("gpuwatch_source_up", source="podresources") is None
    assert agent.value("gpuwatch_node_health", state="healthy") == 1


@pytest.mark.parametrize(
    ("fault", "why"),
    [("absent", "No such file"), ("refused", "UNAVAILABLE"), ("noise", "UNAVAILABLE"), ("garbage", "not protobuf")],
)
def test_a_kubelet_that_does_not_answer(start: Start, tmp_path: Path, fault: str, why: str) -> None:
    kubelet = SimKubelet(tmp_path / "kubelet" / "kubelet.sock")
    kubelet.path.parent.mkdir()
    with kubelet:
        kubelet.fail(fault)  # type: ignore[arg-type]
        agent = start(pod_resources=str(kubelet.path))
        agent.wait_complete(4)
        agent.wait(lambda: agent.value("gpuwatch_source_up", source="podresources") == 0)
        assert why in next(line for line in agent.page.splitlines() if 'source="podresources",reason=' in line)
        assert agent.value("gpuwatch_gpu_health", gpu=0, state="healthy") == 1
        agent.serves_within(SCRAPE_SECONDS)
        assert agent.terminate() <= 2


def test_a_kubelet_with_more_than_four_mebibytes_to_say(driver: FakeDriver, start: Start, tmp_path: Path) -> None:
    kubelet = SimKubelet(tmp_path / "kubelet.sock", reply_bytes=5 << 20)
    kubelet.show([allocation(driver.get(1, "uuid"))])
    with kubelet:
        kubelet.fail("oversized")
        agent = start(pod_resources=str(kubelet.path))
        agent.wait(lambda: agent.value("gpuwatch_gpu_workload_info", gpu=1, pod="train-0") == 1)
        assert agent.value("gpuwatch_source_up", source="podresources") == 1


def test_a_kubelet_that_lets_all_wait(driver: FakeDriver, start: Start, tmp_path: Path) -> None:
    kubelet = SimKubelet(tmp_path / "kubelet.sock")
    with kubelet:
        kubelet.fail("slow")
        agent = start(pod_resources=str(kubelet.path))
        print(f"complete after {agent.wait_complete(4):.2f} s")
        before = agent.sample_times()
        agent.wait(lambda: min(agent.sample_times().values()) > max(before.values()))
        agent.serves_within(SCRAPE_SECONDS)
        assert agent.terminate() <= 2


def test_a_kubelet_that_comes_back_names_the_pods_again(driver: FakeDriver, start: Start, tmp_path: Path) -> None:
    kubelet = SimKubelet(tmp_path / "kubelet.sock")
    uuid = driver.get(2, "uuid")
    kubelet.show([allocation(uuid)])
    with kubelet:
        agent = start(pod_resources=str(kubelet.path), pod_resources_interval=1.0)
        agent.wait(lambda: agent.value("gpuwatch_gpu_workload_info", uuid=uuid, pod="train-0") == 1)
        kubelet.fail("refused")
        agent.wait(lambda: agent.value("gpuwatch_source_up", source="podresources") == 0)
        assert agent.value("gpuwatch_gpu_workload_info", uuid=uuid, pod="train-0") == 1  # a moment ago it was so
        agent.wait(lambda: agent.value("gpuwatch_gpu_workload_info", uuid=uuid) is None)  # nobody can say any more
        kubelet.fail(None)
        agent.wait(lambda: agent.value("gpuwatch_gpu_workload_info", uuid=uuid, pod="train-0") == 1)


def test_processes_that_end_are_no_fault_of_proc(driver: FakeDriver, start: Start, tmp_path: Path) -> None:
    """The driver still lists a process that /proc no longer has: once is chance, for ever a wrong namespace."""
    tree = ProcTree(tmp_path / "host")
    tree.show([SimProcess(pid=4242)])
    driver.set_processes(0, [FakeProcess(pid=4242, memory=1 << 30)])
    agent = start(proc=str(tree.proc))
    agent.wait(lambda: agent.value("gpuwatch_gpu_processes", gpu=0) == 1)
    tree.show([])
    agent.wait(lambda: agent.value("gpuwatch_source_up", source="procfs") == 0)
    assert "hostPID" in agent.page
    driver.set_processes(0, [])
    agent.wait(lambda: agent.value("gpuwatch_source_up", source="procfs") == 1)
    assert agent.value("gpuwatch_gpu_health", gpu=0, state="healthy") == 1
