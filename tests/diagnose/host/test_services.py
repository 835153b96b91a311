"""Daemons, sockets, switches and adapters are read from files as the kernel and NVIDIA's packages write them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.diagnose.host.fabric import Adapter, fabric_manager, parse_log
from gpuwatch.diagnose.host.services import ServiceProcess, Services, services

STAT = "{pid} ({name}) {state} 1 {pid} {pid} 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 900 0 0"
TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:15B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 20212 1 000000 100 0 0 10 0
   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 23110 1 000000 100 0 0 10 0
   2: 0100007F:8F2E 0100007F:15B3 01 00000000:00000000 00:00000000 00000000  1000        0 99102 1 000000 20 4 30 10 -1
"""
TCP6 = """  sl  local_address                         remote_address                        st tx_queue rx_queue
   0: 00000000000000000000000000000000:24B8 00000000000000000000000000000000:0000 0A 00000000:00000000 00:0000
"""
OPTIONS = b"is running with the following configuration options"
LOG = b"""[Nov 20 2026 09:11:02] [INFO] [tid 990] Fabric Manager version 570.86.15 %b
[Nov 20 2026 09:11:02] [ERROR] [tid 990] old trouble
[Nov 21 2026 14:06:40] [INFO] [tid 1101] Fabric Manager version 570.124.06 %b
[Nov 21 2026 14:06:40] [INFO] [tid 1101] Logging level = 4
""" % (OPTIONS, OPTIONS)
LOST = b"[Nov 21 2026 14:07:02] [ERROR] [tid 1101] failed to find any NVSwitch: NV_WARN_NOTHING_TO_DO\n"
MISMATCH = (
    b"fabric manager NVIDIA GPU driver interface version 580.126.09 don't match with driver version 580.105.08. "
    b"Please update with matching NVIDIA driver package.\n"
)
DPKG = b"""Package: nvidia-fabricmanager-dev
Status: install ok installed
Version: 590.48.01-1

Package: nvidia-fabricmanager-570
Status: deinstall ok config-files
Architecture: amd64
Version: 570.133.20-1

Package: nvidia-fabricmanager-575
Status: install ok installed
Architecture: amd64
Version: 575.57.08-0ubuntu0.24.04.1
Description: Fabric Manager for NVSwitch based systems.
 Fabric Manager for NVIDIA NVSwitch based systems.

Package: zlib1g
Status: install ok installed
Version: 1:1.3
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with a pid namespace of its own and an empty PCI bus."""
    run(tmp_path, 2, "kthreadd")
    (tmp_path / "sys/bus/pci/devices").mkdir(parents=True)
    return tmp_path


def run(root: Path, pid: int, name: str, state: str = "S") -> None:
    write(root, f"proc/{pid}/comm", f"{name[:15]}\n")
    write(root, f"proc/{pid}/stat", STAT.format(pid=pid, name=name[:15], state=state))


def write(root: Path, path: str, text: str | bytes) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(text.encode() if isinstance(text, str) else text)


def plug(root: Path, address: str, vendor: str, kind: str, driver: str | None = None, **files: bytes) -> None:
    folder = f"sys/bus/pci/devices/{address}"
    for name, text in {"vendor": vendor.encode(), "class": kind.encode(), **files}.items():
        write(root, f"{folder}/{name.replace('__', '/')}", text)
    if driver:
        (root / folder / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")


def read_services(root: Path) -> Services:
    return services(root, root / "proc", root / "sys")


def test_processes_that_matter_are_known_by_what_the_kernel_keeps_of_their_names(root: Path) -> None:
    run(root, 1101, "nv-fabricmanager")
    run(root, 1200, "nv-hostengine", state="D")
    run(root, 1300, "bash")
    run(root, 1400, "nvidia-imex", state="Z")
    write(root, "proc/1500/status", "Name:\tgone while we looked\n")
    found = read_services(root)
    assert found.processes == (
        ServiceProcess(pid=1101, name="nv-fabricmanage", state="S"),
        ServiceProcess(pid=1200, name="nv-hostengine", state="D"),
    )
    assert found.runs("nv-fabricmanager") is True
    assert found.runs("nvidia-imex") is False


def test_a_container_that_sees_its_own_processes_only_knows_of_none(root: Path) -> None:
    run(root, 1101, "nv-fabricmanager")
    run(root, 2, "sh")
    assert read_services(root).processes is None
    assert read_services(root).runs("nv-fabricmanager") is None


def test_ports_are_those_of_process_1s_network(root: Path) -> None:
    write(root, "proc/net/tcp", TCP)
    assert read_services(root).ports == (22, 5555)
    write(root, "proc/1/net/tcp", TCP.replace("0016", "0017"))
    write(root, "proc/1/net/tcp6", TCP6)
    assert read_services(root).ports == (23, 5555, 9400)


def test_without_the_table_of_sockets_ports_are_unknown(root: Path) -> None:
    assert read_services(root).ports is None


def test_sockets_and_units_are_the_hosts(root: Path) -> None:
    for path in ("run/nvidia-persistenced/socket", "run/nvidia/mps/nvidia.com/gpu/pipe/control", "run/other.sock"):
        write(root, path, "")
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True)
    (wants / "nvidia-fabricmanager.service").symlink_to("/usr/lib/systemd/system/nvidia-fabricmanager.service")
    found = read_services(root)
    assert found.sockets == ("/run/nvidia-persistenced/socket", "/run/nvidia/mps/nvidia.com/gpu/pipe/control")
    assert found.units == ("nvidia-fabricmanager.service",)
    unseen = services(None, root / "proc", root / "sys")
    assert (unseen.sockets, unseen.units, unseen.fabric_manager) == (None, None, None)


def test_nvswitches_are_bridges_of_nvidia(root: Path) -> None:
    plug(root, "0000:05:00.0", "0x10de\n", "0x068000\n")
    plug(root, "0000:06:00.0", "0x10de\n", "0x068000\n")
    plug(root, "0000:1b:00.0", "0x10de\n", "0x030200\n")
    plug(root, "0000:00:00.0", "0x8086\n", "0x068000\n")
    assert read_services(root).switches == 2
    assert services(root, root / "proc", root / "nowhere").switches is None


def test_connectx_that_manages_switches_is_distinguished_from_one_for_data(root: Path) -> None:
    managing = b"\x82\x1f\x00Nvidia ConnectX-7 mezz\x90\x1c\x00V0\x19MLX:MN=MLNX:SMDL=SW_MNG\x00"
    data = {"infiniband__mlx5_0__node_type": b"1: CA\n"}
    plug(root, "0000:0d:00.0", "0x15b3\n", "0x020700\n", "mlx5_core", vpd=managing, **data)
    plug(root, "0000:18:00.0", "0x15b3\n", "0x020700\n", "mlx5_core", vpd=b"\x82ConnectX-7", **data)
    plug(root, "0000:18:00.1", "0x15b3\n", "0x020000\n", physfn=b"")
    plug(root, "0000:20:00.0", "0x1d0f\n", "0x020000\n", "efa", infiniband__rdmap0__node_type=b"7\n")
    plug(root, "0000:30:00.0", "0x8086\n", "0x020000\n", "ice")
    found = read_services(root)
    assert found.adapters == (
        Adapter(address="0000:0d:00.0", driver="mlx5_core", infiniband=True, rdma=("mlx5_0",), manages_switches=True),
        Adapter(address="0000:18:00.0", driver="mlx5_core", infiniband=True, rdma=("mlx5_0",)),
        Adapter(address="0000:18:00.1", virtual=True),
        Adapter(address="0000:20:00.0", driver="efa", rdma=("rdmap0",)),
    )
    assert found.bridges == 1
    assert found.user_mad is False
    write(root, "sys/class/infiniband_mad/umad0/ibdev", "mlx5_0\n")
    assert read_services(root).user_mad is True


@pytest.mark.parametrize(("file", "ready"), [(None, None), ("other", False), (".driver-ready", True)])
def test_the_network_operators_driver_says_when_it_is_ready(root: Path, file: str | None, ready: bool | None) -> None:
    if file:
        write(root, f"run/mellanox/drivers/{file}", "")
    assert read_services(root).network_driver_ready is ready


@pytest.mark.parametrize(
    ("log", "version", "error"),
    [
        (b"", None, None),
        (LOG, "570.124.06", None),
        (LOG + LOST, "570.124.06", "failed to find any NVSwitch: NV_WARN_NOTHING_TO_DO"),
        (LOG + MISMATCH, "580.126.09", MISMATCH.decode().strip()),
        (LOST, None, "failed to find any NVSwitch: NV_WARN_NOTHING_TO_DO"),
        (b"Fabric Manager version is : 535.183.01\n", "535.183.01", None),
        (LOG[:71], None, None),
    ],
)
def test_the_log_shows_the_last_start_and_what_went_wrong_since(log, version, error):
    assert parse_log(log) == (version, error)


def test_only_an_installed_fabric_manager_counts(root: Path) -> None:
    def packaged(status: bytes) -> str | None:
        write(root, "var/lib/dpkg/status", status)
        return fabric_manager(root).packaged

    assert packaged(DPKG) == "575.57.08"
    assert packaged(DPKG.replace(b"install ok installed", b"deinstall ok config-files")) is None
    newer = b"\nPackage: nvidia-fabricmanager\nStatus: hold ok installed\nVersion: 1:580.95.05-1\n"
    assert packaged(DPKG + newer) == "580.95.05"


def test_the_log_counts_before_the_package_and_a_driver_container_before_the_host(root: Path) -> None:
    write(root, "var/lib/dpkg/status", DPKG)
    assert read_services(root).fabric_manager == "575.57.08"
    write(root, "var/log/fabricmanager.log", LOG)
    write(root, "run/nvidia/driver/var/lib/dpkg/status", DPKG.replace(b"575.57.08", b"575.64.03"))
    found = read_services(root)
    assert (found.fabric_manager, found.fabric_manager_package) == ("570.124.06", "575.64.03")


def test_the_log_that_was_written_last_counts(root: Path) -> None:
    write(root, "var/log/fabricmanager.log", LOG)
    write(root, "run/nvidia/driver/var/log/fabricmanager.log", LOG.replace(b"570.124.06", b"580.95.05"))
    os.utime(root / "var/log/fabricmanager.log", (1, 1))
    assert read_services(root).fabric_manager == "580.95.05"
    os.utime(root / "run/nvidia/driver/var/log/fabricmanager.log", (0, 0))
    assert read_services(root).fabric_manager == "570.124.06"


def test_what_cannot_be_read_is_unknown(root: Path) -> None:
    for path in ("var/log/fabricmanager.log", "var/lib/dpkg/status", "proc/net/tcp", "etc/systemd/system"):
        (root / path).mkdir(parents=True)
    found = read_services(root)
    assert (found.fabric_manager, found.ports, found.units) == (None, None, ())


def test_a_proc_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        services(tmp_path, tmp_path / "proc", tmp_path / "sys")


@given(st.binary(max_size=300), st.sampled_from([b"", LOG, MISMATCH]), st.integers(0, 400))
def test_any_text_is_a_log(noise: bytes, real: bytes, cut: int) -> None:
    text = real[:cut] + noise + real[cut:]
    version, error = parse_log(text)
    assert version is None or version.encode() in text
    assert error is None or "\n" not in error


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_table_of_sockets_gives_ports(tmp_path_factory: pytest.TempPathFactory, noise: str) -> None:
    base = tmp_path_factory.mktemp("host")
    write(base, "proc/net/tcp", TCP + noise)
    assert {22, 5555} <= set(read_services(base).ports or ())


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), lambda path: path.write_bytes(b"\xff\xfe\x00")])
def test_a_process_whose_files_are_odd_is_none(root: Path, make: Callable[[Path], object]) -> None:
    (root / "proc/1600").mkdir()
    make(root / "proc/1600/comm")
    assert read_services(root).processes == ()
