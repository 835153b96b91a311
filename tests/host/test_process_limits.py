"""Limits and capabilities, as /proc tells them."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.host.machine import capabilities, memlock, process_limits

OWN = "Max locked memory         8388608              8388608              bytes     \n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_runtimes_limit_counts_more_than_ones_own(tmp_path: Path) -> None:
    write(tmp_path / "self/status", "Uid:\t1000\t1001\t1000\t1000\nCapEff:\t0000000000200000\n")
    write(tmp_path / "self/limits", OWN)
    found = process_limits(tmp_path, tmp_path)
    assert (found.euid, found.memlock, found.memlock_of) == (1001, 8 << 20, "self")
    assert (found.capabilities, found.shm) == (("CAP_SYS_ADMIN",), None)
    write(tmp_path / "77/comm", "containerd\n")
    write(tmp_path / "77/limits", OWN.replace("8388608", "unlimited"))
    found = process_limits(tmp_path, tmp_path)
    assert (found.memlock, found.memlock_of) == (None, "containerd")


def test_a_process_of_another_user_is_no_runtime_whatever_its_name(tmp_path: Path) -> None:
    write(tmp_path / "self/status", "Uid:\t0\t0\t0\t0\n")
    write(tmp_path / "self/limits", OWN)
    write(tmp_path / "12/comm", "dockerd\n")
    write(tmp_path / "12/status", "Name:\tdockerd\nUid:\t65534\t65534\t65534\t65534\n")
    write(tmp_path / "12/limits", OWN.replace("8388608", "65536"))
    assert process_limits(tmp_path, tmp_path).memlock_of == "self"
    write(tmp_path / "77/comm", "containerd\n")
    write(tmp_path / "77/status", "Name:\tcontainerd\nUid:\t0\t0\t0\t0\n")
    write(tmp_path / "77/limits", OWN.replace("8388608", "unlimited"))
    assert process_limits(tmp_path, tmp_path).memlock_of == "containerd"


def test_a_tree_without_processes_has_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        process_limits(tmp_path, tmp_path)


def test_of_this_very_process() -> None:
    found = process_limits(Path("/proc"), Path("/dev"))
    assert found.euid == os.geteuid()
    assert ("CAP_SYS_ADMIN" in found.capabilities) <= (os.geteuid() == 0)


@given(st.text())
def test_parsers_take_any_text(text: str) -> None:
    number = memlock(text)
    assert number is None or number >= 0
    assert all(name.startswith("CAP_") for name in capabilities(text))
