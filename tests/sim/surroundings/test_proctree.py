"""The simulated /proc and log folders show exactly what they were told, and nothing of what is gone."""

from pathlib import Path
from zlib import crc32

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.model.workload import Workload
from gpuwatch.sim.surroundings.proctree import LAYOUTS, ProcTree, SimProcess
from gpuwatch.workloads.procfs import PodLogs, Processes

PODS = [
    Workload(namespace="ml", pod=f"train-{number}", container=container, pod_uid=f"{number:032x}")
    for number in range(3)
    for container in ("main", "side")
]
PROCESSES = st.builds(
    SimProcess,
    pid=st.integers(1, 9),
    uid=st.sampled_from([0, 1000]),
    workload=st.none() | st.sampled_from(PODS),
    layout=st.none(),
) | st.builds(
    SimProcess, pid=st.integers(1, 9), workload=st.sampled_from(PODS), layout=st.sampled_from(sorted(LAYOUTS))
)


@settings(max_examples=40)
@given(st.lists(st.lists(PROCESSES, max_size=6, unique_by=lambda process: process.pid), min_size=1, max_size=4))
def test_the_readers_see_each_state_and_no_other(
    tmp_path_factory: pytest.TempPathFactory, states: list[list[SimProcess]]
) -> None:
    tree = ProcTree(tmp_path_factory.mktemp("node"))
    processes = Processes(tree.proc, PodLogs(tree.logs))
    for drawn in states:
        state = [msgspec.structs.replace(shown, start_time=crc32(repr(shown).encode())) for shown in drawn]
        tree.show(state)
        seen = {pid: (owner.start_time, owner.workload) for pid, owner in processes.owners(range(1, 10)).items()}
        assert seen == {process.pid: (process.start_time, process.workload) for process in state}
        assert {path.name for path in tree.proc.iterdir() if path.is_dir()} == {str(process.pid) for process in state}


def test_pods_without_processes_leave_when_they_are_no_longer_shown(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    tree.show([], pods=PODS)
    shown = len(list((tmp_path / "log" / "containers").iterdir()))
    tree.show([SimProcess(pid=1, workload=PODS[0])])
    left = sorted(path.name for path in tmp_path.joinpath("log").glob("pods/*/*"))
    tree.show([])
    assert (shown, left) == (len(PODS), ["main"])
    assert list((tmp_path / "log" / "pods").iterdir()) == []
