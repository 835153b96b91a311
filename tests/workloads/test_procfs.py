"""From a pid to its user, pod and container: on a simulated tree as it changes, and on the real /proc."""

import os
import pwd
import subprocess
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.workload import Allocation, Workload
from gpuwatch.sim.surroundings.proctree import LAYOUTS, ProcTree, SimProcess
from gpuwatch.workloads.procfs import PodLogs, Processes, user_name
from tests.waiting import until

POD = "0f2b7c1e-8d2b-4f7e-9a55-5a2f0e6f7c11"
TRAIN = Workload(namespace="ml", pod="train-0", container="main", pod_uid=POD)
SIDE = Workload(namespace="ml", pod="train-0", container="side", pod_uid=POD)


class Node:
    """A simulated tree with the reader on top of it."""

    def __init__(self, root: Path) -> None:
        self.tree = ProcTree(root)
        self.logs = PodLogs(self.tree.logs)
        self.processes = Processes(self.tree.proc, self.logs, users={0: "root", 1000: "ada"}.get)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pods_process_is_named_by_the_log_folders(node: Node, layout: str) -> None:
    node.tree.show([SimProcess(pid=7, workload=TRAIN, layout=layout), SimProcess(pid=8, workload=SIDE, layout=layout)])
    owners = node.processes.owners([7, 8])
    assert {pid: owner.workload for pid, owner in owners.items()} == {7: TRAIN, 8: SIDE}


def test_a_container_is_named_without_container_links_when_it_is_the_only_one(node: Node) -> None:
    node.tree.show([SimProcess(pid=7, workload=TRAIN)])
    for link in (node.tree.logs / "containers").iterdir():
        link.unlink()
    assert node.processes.owners([7])[7].workload == TRAIN
    (node.tree.logs / "pods" / f"ml_train-0_{POD}" / "side").mkdir()
    again = Processes(node.tree.proc, node.logs, users=user_name).owners([7])[7]
    assert again.workload == Workload(namespace="ml", pod="train-0", pod_uid=POD)


def test_without_log_folders_a_pod_is_known_by_its_uid(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    tree.show([SimProcess(pid=7, workload=TRAIN)])
    owner = Processes(tree.proc, PodLogs(tmp_path / "nothing")).owners([7])[7]
    assert owner.workload == Workload(pod_uid=POD)


def test_a_name_that_comes_after_the_process_is_picked_up(node: Node, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    node.tree.show([SimProcess(pid=7, workload=TRAIN)])
    node.tree.logs.rename(hidden)
    before = node.processes.owners([7])[7].workload
    hidden.rename(node.tree.logs)
    assert (before, node.processes.owners([7])[7].workload) == (Workload(pod_uid=POD), TRAIN)


def test_a_sibling_container_known_only_by_its_id_is_named_with_its_pods_uid(node: Node) -> None:
    node.tree.show([SimProcess(pid=7, workload=TRAIN)])
    cgroup = node.tree.proc / "7" / "cgroup"
    cgroup.write_text(f"0::/../cri-containerd-{SimProcess(pid=7, workload=TRAIN).container_id}.scope\n")
    owner = node.processes.owners([7])[7]
    assert (owner.workload, owner.pod_uid) == (TRAIN, POD)


def test_slurm_and_plain_users_are_reported_by_job_and_name(node: Node) -> None:
    node.tree.show([SimProcess(pid=7, slurm_job="42", uid=1000), SimProcess(pid=8, uid=1000, name="a (b) c")])
    owners = node.processes.owners([7, 8])
    assert [(owner.slurm_job, owner.user, owner.name, owner.workload) for owner in owners.values()] == [
        ("42", "ada", "python", None),
        (None, "ada", "a (b) c", None),
    ]


@pytest.mark.parametrize("name", ["a\x0bUid:\t0", "a\x1cUid:\t0", "a\x85Uid: 0"], ids=ascii)
def test_a_process_whose_name_looks_like_a_line_keeps_its_user(node: Node, name: str) -> None:
    node.tree.show([SimProcess(pid=7, uid=1000)])
    status = node.tree.proc / "7" / "status"
    status.write_text(f"Name:\t{name}\n{status.read_text()}")
    assert node.processes.owners([7])[7].uid == 1000


def test_a_reused_pid_is_another_process(node: Node) -> None:
    node.tree.show([SimProcess(pid=7, workload=TRAIN)])
    first = node.processes.owners([7])[7]
    node.tree.show([SimProcess(pid=7, uid=1000, start_time=200, name="other")])
    second = node.processes.owners([7])[7]
    assert (first.workload, second.workload, second.user) == (TRAIN, None, "ada")


def test_a_known_process_is_not_read_again(node: Node) -> None:
    node.tree.show([SimProcess(pid=7, workload=TRAIN)])
    first = node.processes.owners([7])
    (node.tree.proc / "7" / "cgroup").unlink()
    assert node.processes.owners([7]) == first
    node.processes.owners([])
    assert node.processes.owners([7]) == {}


def test_pids_that_cannot_be_read_are_skipped_and_counted(node: Node) -> None:
    node.tree.show([SimProcess(pid=pid) for pid in (7, 8, 9)])
    (node.tree.proc / "8" / "stat").write_text("8 (short")
    (node.tree.proc / "9" / "cgroup").unlink()
    (node.tree.proc / "9" / "cgroup").mkdir()
    assert set(node.processes.owners([6, 7, 8, 9])) == {7}
    assert (node.processes.vanished, node.processes.unreadable) == (1, 2)


def test_a_process_that_comes_and_goes_meanwhile_is_whole_or_missing(node: Node) -> None:
    stop = threading.Event()

    def churn() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            node.tree.show([SimProcess(pid=7, start_time=number, workload=TRAIN if number % 2 else None)])

    thread = threading.Thread(target=churn)
    thread.start()
    seen: set[str | None] = set()
    try:
        until(lambda: seen.update(each.pod_uid for each in node.processes.owners([7]).values()) or len(seen) == 2)
    finally:
        stop.set()
        thread.join()
    assert seen == {None, POD}
    assert node.processes.unreadable == 0


def test_the_real_proc_knows_this_process_and_a_child() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            owners = Processes().owners([os.getpid(), child.pid, 2**22 + 1])
        finally:
            child.kill()
    assert set(owners) == {os.getpid(), child.pid}
    assert {owner.user for owner in owners.values()} == {pwd.getpwuid(os.getuid()).pw_name}
    assert owners[child.pid].start_time >= owners[os.getpid()].start_time


def test_an_unknown_user_has_a_number_and_no_name() -> None:
    assert user_name(4_000_000_000) is None


@given(st.binary(max_size=200), st.binary(max_size=200), st.binary(max_size=200))
def test_garbage_in_proc_never_ends_the_reader(
    tmp_path_factory: pytest.TempPathFactory, stat: bytes, status: bytes, cgroup: bytes
) -> None:
    folder = tmp_path_factory.mktemp("proc") / "7"
    folder.mkdir()
    for name, content in {"stat": stat, "status": status, "cgroup": cgroup, "comm": cgroup}.items():
        (folder / name).write_bytes(content)
    processes = Processes(folder.parent, PodLogs(folder))
    assert len(processes.owners([7])) + processes.unreadable + processes.vanished == 1


def test_the_kubelets_allocation_gets_the_uid_of_the_only_pod_of_that_name(node: Node) -> None:
    allocation = Allocation(
        workload=msgspec.structs.replace(TRAIN, pod_uid=None), resource="nvidia.com/gpu", device_ids=("GPU-a",)
    )
    node.tree.show([], pods=[TRAIN])
    node.logs.refresh()
    assert node.logs.with_uid(allocation).workload == TRAIN
    replaced = msgspec.structs.replace(TRAIN, pod_uid=POD.replace("0f2b", "1111"))
    node.tree.show([], pods=[TRAIN, replaced])
    node.logs.refresh()
    assert node.logs.with_uid(allocation) == allocation, "an old pod's folder is still there: which one is not known"


def test_folders_that_are_not_kubelets_are_passed_over(tmp_path: Path) -> None:
    for name in ("pods/README", "pods/a_b_c_d", "containers/x.log", "containers/a_b_c-12.log"):
        (tmp_path / name).mkdir(parents=True)
    logs = PodLogs(tmp_path)
    logs.refresh()
    assert logs.workload(None, "12") is None
