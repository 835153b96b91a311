"""GPUs are found on the bus without NVML, from files as the kernel writes them."""

from pathlib import Path

import pytest

from gpuwatch.host.pci import BusGpu, DriverGpu, bus_gpus, driver_gpus

H100 = {
    "vendor": "0x10de",
    "class": "0x030200",
    "device": "0x2330",
    "current_link_speed": "32.0 GT/s PCIe",
    "max_link_speed": "32.0 GT/s PCIe",
    "current_link_width": "16",
    "max_link_width": "16",
    "numa_node": "0",
}
DEAD = H100 | {"current_link_speed": "Unknown", "current_link_width": "255", "numa_node": "-1"}


@pytest.fixture
def bus(tmp_path: Path) -> Path:
    devices = tmp_path / "devices"
    devices.mkdir()
    return devices


def plug(bus: Path, address: str, files: dict[str, str], driver: str | None = None) -> Path:
    folder = bus / address
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
    if driver:
        (bus.parent / "drivers" / driver).mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(bus.parent / "drivers" / driver)
    return folder


def test_a_healthy_and_a_dead_gpu_are_both_listed_in_order_of_address(bus: Path) -> None:
    plug(bus, "0000:5e:00.0", DEAD)
    plug(bus, "0000:1b:00.0", H100, driver="nvidia")
    assert bus_gpus(bus) == (
        BusGpu(
            address="0000:1b:00.0",
            device_id="0x2330",
            driver="nvidia",
            link_width=16,
            link_width_max=16,
            numa_node=0,
        ),
        BusGpu(address="0000:5e:00.0", device_id="0x2330", link_width_max=16),
    )


@pytest.mark.parametrize("digits", [30, 5000])
def test_a_number_that_is_none_costs_only_itself(bus: Path, digits: int) -> None:
    plug(bus, "0000:1b:00.0", H100 | {"numa_node": "9" * digits, "max_link_width": "9" * digits})
    (gpu,) = bus_gpus(bus) or ()
    assert (gpu.device_id, gpu.link_width, gpu.link_width_max, gpu.numa_node) == ("0x2330", 16, None, None)


def test_only_physical_nvidia_gpus_count(bus: Path) -> None:
    plug(bus, "0000:01:00.0", H100 | {"vendor": "0x1002"})
    plug(bus, "0000:01:00.1", H100 | {"class": "0x040300"})
    plug(bus, "0000:02:00.0", H100 | {"class": "0x068000"})  # an NVSwitch
    virtual = plug(bus, "0000:03:00.4", H100)
    physical = plug(bus, "0000:03:00.0", H100 | {"class": "0x030000"}, driver="vfio-pci")
    (virtual / "physfn").symlink_to(physical)
    assert [(gpu.address, gpu.driver) for gpu in bus_gpus(bus) or ()] == [("0000:03:00.0", "vfio-pci")]


def test_no_bus_is_unknown_and_an_empty_bus_is_no_gpu(bus: Path) -> None:
    assert bus_gpus(bus) == ()
    assert bus_gpus(bus / "absent") is None


def test_this_machines_own_bus_can_be_read() -> None:
    found = bus_gpus()
    assert found is None or all(gpu.address.count(":") == 2 for gpu in found)


def test_the_kernel_modules_list_gives_minor_and_uuid(tmp_path: Path) -> None:
    known = {
        "0000:1b:00.0": "Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t GPU-1a2b\nDevice Minor: \t 3\n",
        "0000:5e:00.0": "Model: \t\t Unknown\nGPU UUID: \t GPU-????????-????\nDevice Minor: \t 4\n",
    }
    for address, text in known.items():
        (tmp_path / address).mkdir()
        (tmp_path / address / "information").write_text(text)
    (tmp_path / "0000:5f:00.0").mkdir()
    assert driver_gpus(tmp_path) == (
        DriverGpu(address="0000:1b:00.0", uuid="GPU-1a2b", minor=3, model="NVIDIA H100 80GB HBM3"),
        DriverGpu(address="0000:5e:00.0", minor=4, model="Unknown"),
        DriverGpu(address="0000:5f:00.0"),
    )
    assert driver_gpus(tmp_path / "absent") == ()
