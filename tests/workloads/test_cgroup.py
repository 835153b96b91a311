"""A process's cgroup text names its pod, container or job in every layout, on made-up text and on real cgroups."""

import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.workload import Workload
from gpuwatch.sim.surroundings.proctree import CONTAINER_LAYOUTS, LAYOUTS, SLURM_LAYOUTS, SimProcess
from gpuwatch.workloads.procfs import CgroupOwner, cgroup_owner

POD = "0f2b7c1e-8d2b-4f7e-9a55-5a2f0e6f7c11"
STATIC_POD = "5dde9c3f27ca2d1d2a3c4e5f60718293"
CONTAINER = "ab" * 32
WORKLOAD = Workload(namespace="ml", pod="train-0", container="main", pod_uid=POD)


@pytest.mark.parametrize("runtime", ["cri-containerd", "crio", "docker"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_pods_process_is_found_in_every_layout(layout: str, runtime: str) -> None:
    process = SimProcess(pid=1, workload=WORKLOAD, layout=layout, runtime=runtime)
    assert cgroup_owner(process.cgroup) == CgroupOwner(pod_uid=POD, container_id=process.container_id)


@pytest.mark.parametrize("layout", ["v2-systemd", "v1-cgroupfs", "relative-cgroupfs", "kind"])
def test_a_static_pod_has_a_uid_without_dashes(layout: str) -> None:
    workload = Workload(namespace="kube-system", pod="etcd-node", container="etcd", pod_uid=STATIC_POD)
    assert cgroup_owner(SimProcess(pid=1, workload=workload, layout=layout).cgroup).pod_uid == STATIC_POD


@pytest.mark.parametrize("layout", SLURM_LAYOUTS)
def test_a_slurm_step_is_found_in_every_layout(layout: str) -> None:
    process = SimProcess(pid=1, slurm_job="4711", layout=layout, uid=1000)
    step = "batch" if layout == "slurm-v2-node" else "extern" if layout == "slurm-relative" else "0"
    assert cgroup_owner(process.cgroup) == CgroupOwner(slurm_job="4711", slurm_step=step)


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/system.slice/jupyter.service", "jupyter.service"),
        ("/system.slice/system-serving.slice/serving@7b.service", "serving@7b.service"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/train.service", "train.service"),
        ("/user.slice/user-1000.slice/user@1000.service/init.scope", None),
        ("/user.slice/user-1000.slice/session-3.scope", None),
        ("/system.slice/slurmd.service", None),
        (f"/system.slice/docker-{CONTAINER}.scope", None),
        ("/system.slice/evil\x1b[31m.service", None),
    ],
)
def test_a_systemd_service_is_the_innermost_one(path: str, unit: str | None) -> None:
    assert cgroup_owner(f"0::{path}\n").unit == unit


@pytest.mark.parametrize(
    "group",
    [
        f"kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-{CONTAINER}.scope",
        f"kubepods/pod{POD}/{CONTAINER}",
        f"docker-{CONTAINER}.scope",
        "system.slice/slurmstepd.scope/job_4711/step_0/user/task_0",
    ],
)
def test_a_user_cannot_be_in_the_pod_container_or_job_of_another(group: str) -> None:
    """systemd gives users a subtree in which they name groups as they like."""
    genuine = cgroup_owner(f"0::/{group}")
    assert genuine.pod_uid or genuine.container_id or genuine.slurm_job
    forged = f"/user.slice/user-1000.slice/user@1000.service/{group}"
    assert cgroup_owner(f"0::{forged}\n1:name=systemd:{forged}") == CgroupOwner()
    assert cgroup_owner(f"0::{forged}/a.service") == CgroupOwner(unit="a.service")


LINE_ENDS = ("\x0b", "\x0c", "\r", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
"""As `str.splitlines` has them; a cgroup's name may hold each."""


@pytest.mark.parametrize("end", LINE_ENDS, ids=ascii)
def test_what_looks_like_a_line_in_a_users_cgroup_is_a_name(end: str) -> None:
    forged = f"x{end}0::/kubepods.slice/kubepods-pod{POD}.slice/cri-containerd-{CONTAINER}.scope"
    found = cgroup_owner(f"0::/user.slice/user-1000.slice/user@1000.service/{forged}\n")
    assert (found.pod_uid, found.container_id, found.slurm_job) == (None, None, None)


def test_a_unit_that_is_named_like_a_users_manager_hides_nothing() -> None:
    assert cgroup_owner(f"0::/user@x.service/docker-{CONTAINER}.scope").container_id == CONTAINER


@pytest.mark.parametrize("layout", CONTAINER_LAYOUTS)
def test_a_container_outside_kubernetes_has_an_id_and_no_pod(layout: str) -> None:
    found = cgroup_owner(SimProcess(pid=1, layout=layout).cgroup)
    assert (found.pod_uid, len(found.container_id or "")) == (None, 64)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0::/",
        "0::/user.slice/user-1000.slice/session-3.scope",
        "no colons at all",
        f"0::/libpod_pod_{CONTAINER[:40]}",  # 40 digits are no container id
        f"0::/mypod{POD}",  # the word has to begin where a name begins
        f"0::/pod{POD[:-1]}",
        f"0::/pod{POD.replace('-', '_', 1)}",
    ],
)
def test_what_carries_no_identity_gives_none(text: str) -> None:
    assert cgroup_owner(text) == CgroupOwner()


def test_a_container_beside_ours_in_the_same_pod_shows_only_its_own_id() -> None:
    assert cgroup_owner(f"0::/../cri-containerd-{CONTAINER}.scope") == CgroupOwner(container_id=CONTAINER)


@given(st.text())
def test_any_text_is_read_without_an_error(text: str) -> None:
    found = cgroup_owner(text)
    assert found.pod_uid is None or len(found.pod_uid) in (32, 36)


@given(
    st.uuids(), st.from_regex(r"\A[0-9a-f]{64}\Z"), st.lists(st.sampled_from(["/", "/..", "/a-b.slice"]), max_size=4)
)
def test_pod_and_container_are_found_wherever_the_path_begins(pod: uuid.UUID, container: str, head: list[str]) -> None:
    path = "".join(head).rstrip("/") + f"/kubepods-pod{str(pod).replace('-', '_')}.slice/crio-{container}.scope"
    assert cgroup_owner(f"3:pids:/\n0::{path}\n") == CgroupOwner(str(pod), container)


def _hierarchies() -> list[Path]:
    root = Path("/sys/fs/cgroup")
    places = [root, root / "unified", root / "memory"]
    return [place for place in places if (place / "cgroup.procs").exists() and os.access(place, os.W_OK)]


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


@pytest.fixture(params=["systemd", "cgroupfs"])
def real_cgroup(request: pytest.FixtureRequest) -> Iterator[tuple[Path, str, str]]:
    """A pod's folder made by hand in a real hierarchy, with its pod uid and container id."""
    if not _hierarchies():
        pytest.skip("no cgroup hierarchy is writable here: run as root on a machine with cgroups")
    pod, container = str(uuid.uuid4()), uuid.uuid4().hex * 2
    name = f"gpuwatch-test-{pod[:8]}"
    if request.param == "systemd":
        parts = [name, f"{name}-pod{pod.replace('-', '_')}.slice", f"cri-containerd-{container}.scope"]
    else:
        parts = [name, f"pod{pod}", container]
    folders = [_hierarchies()[-1].joinpath(*parts[: depth + 1]) for depth in range(len(parts))]
    for folder in folders:
        folder.mkdir()
    yield folders[-1], pod, container
    for folder in reversed(folders):
        folder.rmdir()


@pytest.mark.root
def test_a_process_in_a_real_cgroup_is_found(
    real_cgroup: tuple[Path, str, str], sleeper: subprocess.Popen[bytes]
) -> None:
    folder, pod, container = real_cgroup
    (folder / "cgroup.procs").write_text(str(sleeper.pid))
    assert cgroup_owner(Path(f"/proc/{sleeper.pid}/cgroup").read_text()) == CgroupOwner(pod, container)


@pytest.mark.root
def test_a_process_seen_from_another_cgroup_namespace_is_found(
    real_cgroup: tuple[Path, str, str], sleeper: subprocess.Popen[bytes]
) -> None:
    folder, pod, container = real_cgroup
    if shutil.which("unshare") is None:
        pytest.skip("unshare(1) is not installed")
    (folder / "cgroup.procs").write_text(str(sleeper.pid))
    beside = folder.parent.parent / "observer"
    beside.mkdir()
    enter = f"echo $$ > {beside}/cgroup.procs && exec unshare -C cat /proc/{sleeper.pid}/cgroup"
    seen = subprocess.run(["sh", "-c", enter], capture_output=True, text=True, check=False)
    beside.rmdir()
    if seen.returncode:
        pytest.skip(f"no cgroup namespace can be made here: {seen.stderr.strip()}")
    assert "/.." in seen.stdout, "the path has to be relative, else this shows nothing"
    assert cgroup_owner(seen.stdout) == CgroupOwner(pod, container)


@pytest.mark.parametrize("part", ["slurm", "slurm/", "job_", "pod", "a", "/"])
def test_a_path_of_any_length_costs_time_by_its_length(part: str) -> None:
    began = time.process_time()
    assert cgroup_owner(f"0::/{part * (500_000 // len(part))}\n") == CgroupOwner()
    assert time.process_time() - began < 5.0
