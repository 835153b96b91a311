"""The simulated kubelet changes its answers while it runs, fails on request and leaves nothing behind."""

import os
import stat
import threading
from pathlib import Path

import pytest

from gpuwatch.model.workload import Allocation, Workload
from gpuwatch.sim.surroundings.kubelet import SimKubelet
from gpuwatch.workloads.podresources import PodResources


def allocations(count: int) -> list[Allocation]:
    return [
        Allocation(
            workload=Workload(namespace="ml", pod=f"pod-{number}", container="main"),
            resource="nvidia.com/gpu",
            device_ids=(f"GPU-{number}",),
        )
        for number in range(count)
    ]


def test_it_answers_with_whole_states_while_they_change(tmp_path: Path) -> None:
    sizes, stop = (3, 300), threading.Event()
    with SimKubelet(tmp_path / "kubelet.sock") as kubelet:
        kubelet.show(allocations(sizes[0]))

        def churn() -> None:
            while not stop.is_set():
                for size in sizes:
                    kubelet.show(allocations(size))

        thread = threading.Thread(target=churn)
        thread.start()
        client = PodResources(kubelet.path)
        seen = {len(client.allocations()) for _ in range(30)}
        stop.set()
        thread.join()
    assert seen <= set(sizes)
    assert kubelet.calls == ["List"] * 30


@pytest.mark.parametrize("fault", [None, "refused", "noise", "garbage", "slow", "absent"])
def test_stopping_leaves_no_socket_and_no_thread(tmp_path: Path, fault: str | None) -> None:
    kubelet = SimKubelet(tmp_path / "pod-resources" / "kubelet.sock")
    with kubelet:
        kubelet.fail(fault)
        present = kubelet.path.exists() and stat.S_ISSOCK(os.stat(kubelet.path).st_mode)
    assert present == (fault != "absent")
    assert not kubelet.path.exists()
    assert [thread for thread in threading.enumerate() if thread.name.startswith("sim-kubelet")] == []
