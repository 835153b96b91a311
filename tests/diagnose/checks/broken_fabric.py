"""Hosts on which checks fail: fabric, sharing, exporters."""

from collections.abc import Callable

from gpuwatch.diagnose.model import CheckStatus
from tests.diagnose.changes import every_gpu, gone, process, several, view
from tests.diagnose.checks.broken import Broken
from tests.diagnose.checks.broken_exporters import EXPORTERS
from tests.diagnose.checks.broken_sharing import SHARING
from tests.diagnose.hosts import Host

B200 = {"model": "b200"}
STATUS, LOG = "var/lib/dpkg/status", "var/log/fabricmanager.log"
MANAGER, SUBNET = "proc/1101", "proc/1097"
ADAPTER = "sys/bus/pci/devices/0000:18:00.0"


def versions(package: str | None, log: str | None = None) -> Callable[[Host], None]:
    """Another fabric manager is installed; one was started."""

    def change(host: Host) -> None:
        assert host.node.driver in (host.root / LOG).read_text()
        if package:
            host.edit(STATUS, host.node.driver, package)
        if log:
            host.edit(LOG, host.node.driver, log)

    return change


def adapter(*, bound: bool = True, rdma: bool = True) -> Callable[[Host], None]:
    """A ConnectX-7 for user data."""

    def change(host: Host) -> None:
        for name, text in {
            "vendor": "0x15b3",
            "class": "0x020700",
            "device": "0x1021",
            "vpd": "\x02ConnectX-7",
        }.items():
            host.write(f"{ADAPTER}/{name}", text)
        if bound:
            host.link(f"{ADAPTER}/driver", "../../../../bus/pci/drivers/mlx5_core")
        if rdma:
            host.write(f"{ADAPTER}/infiniband/mlx5_0/node_type", "1: CA\n")

    return change


def module(name: str) -> Callable[[Host], None]:
    """It is loaded."""
    return lambda host: host.write("proc/modules", f"{name} 16384 0 - Live 0x0\n" + _modules(host))


def without_module(name: str) -> Callable[[Host], None]:
    """It is not."""

    def change(host: Host) -> None:
        lines = _modules(host).splitlines(keepends=True)
        host.write("proc/modules", "".join(line for line in lines if not line.startswith(f"{name} ")))

    return change


def _modules(host: Host) -> str:
    return (host.root / "proc/modules").read_text()


def proprietary(host: Host) -> None:
    """The kernel modules are NVIDIA's own: no dma-buf."""
    version = (host.root / "proc/driver/nvidia/version").read_text()
    host.write(
        "proc/driver/nvidia/version",
        version.replace("NVIDIA UNIX Open Kernel Module for x86_64", "NVIDIA UNIX x86_64 Kernel Module"),
    )


def channel(host: Host) -> None:
    """An IMEX channel."""
    host.write("dev/nvidia-caps-imex-channels/channel0", "")


GB200 = every_gpu(identity={"name": "NVIDIA GB200"})
NVSWITCH_FATAL = {"do": "sxid", "sxid": 20034, "switch": 2, "severity": "Fatal", "link": 30}
RESET_ASKED = {"do": "recovery_action", "gpu": 3, "action": 1}
"""The driver's own state, which confirms it; the line of the kernel log alone is a warning."""

FABRIC: tuple[Broken, ...] = (
    Broken("F01", gone(MANAGER), "nv-fabricmanager does not run", "systemctl restart nvidia-fabricmanager"),
    Broken("F01", gone(MANAGER), "nv-fabricmanager does not run", "driver pod", node={"model": "a100"}),
    Broken(
        "F01",
        several(gone(MANAGER), gone(STATUS), gone(LOG)),
        "no package or log of it is there",
        "systemctl enable --now nvidia-fabricmanager",
    ),
    Broken(
        "F01",
        several(gone(MANAGER), versions("575.57.08")),
        "fabric manager 575.57.08, driver 580.105.08: it does not start so, and CUDA ends with error 802",
        "apt-get install 'nvidia-fabricmanager=580.105.08-*'",
    ),
    Broken(
        "F01",
        several(gone(MANAGER), versions("570.86.15")),
        "fabric manager 570.86.15, driver 570.124.06",
        "apt-get install 'nvidia-fabricmanager-570=570.124.06-*'",
        node={"driver": "570.124.06"},
    ),
    Broken(
        "F01",
        several(versions("575.57.08", "575.57.08"), every_gpu(fabric={"state": 2})),
        "runs, but must be of the same version",
        "exactly the same version",
    ),
    Broken(
        "F01",
        versions("590.48.01"),
        "it will not start again",
        "apt-get install",
        result=CheckStatus.WARN,
    ),
    Broken(
        "F02",
        view({"do": "fabric", "gpu": 3, "state": 2}),
        "GPU 3: it is not registered with the NVSwitch fabric yet",
        "reset all GPUs together",
    ),
    Broken(
        "F02",
        view({"do": "fabric", "gpu": [2, 5], "state": 1}),
        "GPUs 2, 5: its registration with the NVSwitch fabric has not begun",
        "systemctl restart nvidia-fabricmanager",
    ),
    Broken("F02", view({"do": "fabric", "gpu": 1, "status": 999}), "failed (status 999)", "error 802"),
    Broken(
        "F02",
        view({"do": "fabric", "gpu": 1, "health": 0b01}),
        "degraded bandwidth",
        "nvidia-smi -q",
        result=CheckStatus.WARN,
    ),
    Broken(
        "F03",
        view({"do": "nvlink", "gpu": 3, "link": 4, "active": False}),
        "(17 of 18 links)",
        "nvidia-smi nvlink -s -i 3",
        result=CheckStatus.WARN,
    ),
    Broken(
        "F03",
        view({"do": "nvlink", "gpu": 3, "active": False}),
        "(0 of 18 links)",
        "XIDs 74",
    ),
    Broken(
        "F04",
        view({"do": "nvlink", "gpu": 2, "link": 7, "errors": {"replay": 40}}, earlier=True),
        "GPU 2: 40 NVLink errors while we looked, most on link 7",
        "nvidia-smi nvlink -e -i 2",
        result=CheckStatus.WARN,
    ),
    Broken(
        "F05",
        without_module("nvidia_peermem"),
        "1 RDMA adapter, but no way to GPU memory",
        "modprobe nvidia-peermem",
        result=CheckStatus.WARN,
        well=several(adapter(), proprietary, module("nvidia_peermem")),
    ),
    Broken(
        "F05",
        proprietary,
        "nvidia_peermem is not loaded",
        "driver.rdma.enabled=true",
        result=CheckStatus.WARN,
        well=several(adapter(), without_module("nvidia_peermem")),
    ),
    Broken(
        "F06",
        gone(f"{ADAPTER}/driver"),
        "adapter 0000:18:00.0 has no driver",
        "modprobe mlx5_core",
        result=CheckStatus.WARN,
        well=adapter(),
    ),
    Broken(
        "F06",
        gone(f"{ADAPTER}/infiniband"),
        "has no InfiniBand device",
        "modprobe mlx5_ib",
        result=CheckStatus.WARN,
        well=adapter(),
    ),
    Broken(
        "F06",
        gone("run/mellanox/drivers/.driver-ready"),
        "driver container is not ready",
        "mofed",
        result=CheckStatus.WARN,
        well=several(adapter(), lambda host: host.write("run/mellanox/drivers/.driver-ready", "")),
    ),
    Broken(
        "F07",
        several(gone("proc/1500"), gone("dev/nvidia-caps-imex-channels")),
        "neither nvidia-imex nor an IMEX channel",
        "ComputeDomain",
        result=CheckStatus.WARN,
        well=several(GB200, process(1500, "nvidia-imex"), channel),
        node=B200,
    ),
    Broken(
        "F07",
        gone("dev/nvidia-caps-imex-channels"),
        "nvidia-imex runs, but there is no channel",
        "NVreg_CreateImexChannel0=1",
        result=CheckStatus.WARN,
        well=several(GB200, process(1500, "nvidia-imex"), channel),
        node=B200,
    ),
    Broken("F08", gone("sys/class/infiniband_mad"), "ib_umad is not loaded", "modprobe ib_umad", node=B200),
    Broken("F08", gone(SUBNET), "subnet manager (nvlsm) does not", "systemctl restart nvidia-fabricmanager", node=B200),
    Broken("F09", view(NVSWITCH_FATAL), "SXid 20034 of NVSwitch 2", "dmesg -T | grep -i sxid", result=CheckStatus.WARN),
    Broken("F09", view(NVSWITCH_FATAL, RESET_ASKED), "SXid 20034 of NVSwitch 2", "nvidia-smi --gpu-reset"),
)

BROKEN: tuple[Broken, ...] = (*FABRIC, *SHARING, *EXPORTERS)
