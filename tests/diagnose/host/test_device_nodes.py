"""Device files, their links and numbers, as the driver and the kernel show them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.diagnose.host.driver_files import capability_minor, device_nodes, majors

DEVICES = """Character devices:
  1 mem
195 nvidia
195 nvidiactl
234 nvidia-caps
508 nvidia-uvm

Block devices:
  7 loop
259 nvidia-uvm
"""


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_files_links_numbers_and_capabilities(tmp_path: Path) -> None:
    dev, proc = tmp_path / "dev", tmp_path / "proc"
    write(dev / "nvidia-caps/nvidia-cap12")
    write(dev / "sda")
    (dev / "nvidia0").symlink_to("/dev/null")
    (dev / "nvidia-uvm").symlink_to("gone")
    (dev / "char").mkdir()
    (dev / "char/195:0").symlink_to("../nvidia0")
    (dev / "char/1:3").symlink_to("../null")
    write(proc / "devices", DEVICES)
    capability = proc / "driver/nvidia/capabilities/gpu0/mig/gi1/access"
    write(capability, "DeviceFileMinor: 12\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
    write(capability.with_name("odd"), "nothing\n")
    write(proc / "driver/nvidia/gpus/0000:61:00.0/information", "Device Minor: \t 3\n")
    found = device_nodes(dev, proc)
    assert found.files.keys() == {"nvidia0", "nvidia-caps/nvidia-cap12"}
    assert (found.files["nvidia0"].major, found.files["nvidia0"].minor) == (1, 3)  # /dev/null's
    assert found.files["nvidia-caps/nvidia-cap12"].major is None
    assert found.char_links == {"195:0": "../nvidia0"}
    assert found.majors["nvidia-uvm"] == 508
    assert found.capabilities == {"gpu0/mig/gi1/access": 12}
    assert found.gpus == {"0000:61:00.0": 3}


def test_without_a_driver_there_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    found = device_nodes(tmp_path / "dev", tmp_path / "proc")
    assert (found.files, found.majors, found.capabilities, found.gpus) == ({}, {}, {}, {})
    with pytest.raises(FileNotFoundError):
        device_nodes(tmp_path / "absent", tmp_path)


@given(st.text())
def test_parsers_take_any_text(text: str) -> None:
    assert all(number >= 0 for number in majors(f"Character devices:\n{text}").values())
    minor = capability_minor(text)
    assert minor is None or minor >= 0
