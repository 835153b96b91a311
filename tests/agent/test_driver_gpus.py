"""Files of the driver are read by a child that can be left alone: a wedged driver keeps no thread of the caller."""

import os
import threading
import time
from pathlib import Path

import pytest

from gpuwatch.agent.driver_gpus import DriverGpus
from gpuwatch.host.pci import driver_gpus

INFORMATION = "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-4e8d\nDevice Minor: \t {}\nGPU Excluded:\t No\n"


def gpu(folder: Path, minor: int) -> Path:
    file = folder / f"0000:{minor:02x}:00.0" / "information"
    file.parent.mkdir(parents=True)
    file.write_text(INFORMATION.format(minor))
    return file


def test_the_child_finds_what_a_direct_read_finds(tmp_path: Path) -> None:
    for minor in (3, 1):
        gpu(tmp_path, minor)
    (tmp_path / "0000:09:00.0").mkdir()  # a GPU whose file cannot be read
    found = DriverGpus(tmp_path).read()
    assert [each.minor for each in found] == [1, 3, None]
    assert found == driver_gpus(tmp_path)


def test_without_the_module_there_are_none(tmp_path: Path) -> None:
    assert DriverGpus(tmp_path / "none").read() == ()


def test_a_child_that_fails_is_no_driver_without_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a GPU that this container may not see would be called missing."""
    gpu(tmp_path, 0)
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(OSError, match="ended with 1"):
        DriverGpus(tmp_path).read()


def test_a_read_that_does_not_return_is_given_up_and_not_repeated_while_it_lasts(tmp_path: Path) -> None:
    """A FIFO that nobody writes stands for a file of a wedged driver; other than there, SIGKILL ends this child."""
    os.mkfifo(gpu_file := tmp_path / "information")
    folder = tmp_path / "gpus" / "0000:01:00.0"
    folder.mkdir(parents=True)
    (folder / "information").symlink_to(gpu_file)
    reader = DriverGpus(tmp_path / "gpus", seconds=0.3)
    before = threading.active_count()
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="wedged"):
        reader.read()
    assert time.monotonic() - began < 30
    assert threading.active_count() == before
    (folder / "information").unlink()
    (folder / "information").write_text(INFORMATION.format(0))
    while True:  # the child that was given up has to end first
        try:
            (found,) = reader.read()
        except TimeoutError:
            assert time.monotonic() - began < 60
        else:
            break
    assert found.minor == 0
