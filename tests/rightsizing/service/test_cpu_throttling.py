"""CPU throttling of containers: cgroups v1 and v2 as kernels lay them out, and nothing where they cannot be seen."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.rightsizing.service.cpu_throttling import CpuThrottling, Periods, read_periods

POD = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-a.scope"
V2 = "usage_usec 20\nuser_usec 10\nsystem_usec 10\nnr_periods {all}\nnr_throttled {throttled}\nthrottled_usec 9\n"
V1 = "nr_periods {all}\nnr_throttled {throttled}\nthrottled_time 9000\n"

LAYOUTS = {
    "v2": (f"0::/{POD}\n", f"fs/cgroup/{POD}", V2),
    "v1": (f"9:memory:/{POD}\n4:cpu,cpuacct:/{POD}\n1:name=systemd:/{POD}\n", f"fs/cgroup/cpu,cpuacct/{POD}", V1),
    "v1, other order": (f"4:cpuacct,cpu:/{POD}\n", f"fs/cgroup/cpuacct,cpu/{POD}", V1),
    "hybrid": (f"4:cpu,cpuacct:/{POD}\n0::/{POD}\n", f"fs/cgroup/cpu,cpuacct/{POD}", V1),
    "the host's root": ("0::/\n", "fs/cgroup", V2),
}


class Host:
    """/proc and /sys of one process."""

    def __init__(self, place: Path, layout: str, pid: int = 7) -> None:
        line, folder, self._form = LAYOUTS[layout]
        self.proc, self.sys = place / "proc", place / "sys"
        self._stat = self.sys / folder / "cpu.stat"
        self._stat.parent.mkdir(parents=True)
        (self.proc / str(pid)).mkdir(parents=True)
        (self.proc / str(pid) / "cgroup").write_text(line)

    def set(self, periods: int, throttled: int) -> None:
        self._stat.write_text(self._form.format(all=periods, throttled=throttled))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_share_of_periods_between_two_reads(tmp_path: Path, layout: str) -> None:
    host = Host(tmp_path, layout)
    host.set(1000, 900)
    seen = CpuThrottling(host.proc, host.sys)
    assert seen.shares([7]) == {}
    host.set(1400, 1000)
    assert seen.shares([7, 8]) == {7: 0.25}
    host.set(1400, 1000)
    assert seen.shares([7]) == {7: 0.0}, "it did nothing, and waited for nothing"


def test_a_cgroup_made_again_starts_over(tmp_path: Path) -> None:
    host = Host(tmp_path, "v2")
    host.set(1000, 900)
    seen = CpuThrottling(host.proc, host.sys)
    seen.shares([7])
    host.set(10, 5)
    assert seen.shares([7]) == {}
    host.set(20, 15)
    assert seen.shares([7]) == {7: 1.0}


def test_a_container_without_a_limit_is_never_held_back(tmp_path: Path) -> None:
    host = Host(tmp_path, "v2")
    host.set(0, 0)
    seen = CpuThrottling(host.proc, host.sys)
    seen.shares([7])
    assert seen.shares([7]) == {7: 0.0}


@pytest.mark.parametrize("line", ["0::/../../kubepods-podz.slice/a.scope\n", "", "nonsense\n", "0::relative\n"])
def test_what_a_cgroup_namespace_hides_is_unknown(tmp_path: Path, line: str) -> None:
    host = Host(tmp_path, "the host's root")
    host.set(1, 1)
    (host.proc / "7/cgroup").write_text(line)
    seen = CpuThrottling(host.proc, host.sys)
    assert [seen.shares([7]) for _ in range(2)] == [{}, {}]


def test_without_the_cpu_controller_it_is_unknown() -> None:
    assert read_periods("usage_usec 20\nuser_usec 10\nsystem_usec 10\n") is None


@given(st.text())
def test_garbage_is_unknown(text: str) -> None:
    assert read_periods(text) is None or isinstance(read_periods(text), Periods)
