"""What a site expects of its nodes, held against this one; skipped where nothing is expected.

A node that is less than was promised fails: model, memory, links, bandwidth. One whose versions or settings have
drifted works all the same and is warned of. The number of GPUs is the host stage's to judge.
"""

from collections.abc import Callable
from typing import Any

from gpuwatch.diagnose.baseline.inventory import active
from gpuwatch.diagnose.check import Case, Check, Verdict, failed, warned
from gpuwatch.diagnose.checks.held import (
    Held,
    at_least,
    driver,
    gigabytes,
    is_link_speed,
    is_version,
    is_watts,
    of_copies,
    of_each_gpu,
    of_node,
    set_by,
    slowest_link,
    speed,
    switched,
    toolkit,
)
from gpuwatch.model.diagnosis import Stage


def _row(
    id_: str, title: str, how: str, failure: str, remedy: str, judge: Callable[[Case], Verdict], **more: Any
) -> Check:
    rest = {"reads": ("view",), "needs": ("N02",)} | more
    return Check(id_, Stage.BASELINE, title, how, failure, remedy, judge, **rest)


BASELINE: tuple[Check, ...] = (
    _row(
        "B01",
        "the GPUs are of the expected model",
        "nvmlDeviceGetName holds the baseline's `model`",
        "GPU 3: NVIDIA A100-SXM4-40GB, expected H100",
        "A board of another model is in this node. Compare it with what was ordered, and with the node pool's labels.",
        of_each_gpu(failed, Held("model", lambda gpu: gpu.identity.name, lambda f, e: e.casefold() in f.casefold())),
        commands=("nvidia-smi -q | grep -E 'Product Name|Board Part Number'",),
    ),
    _row(
        "B02",
        "the GPUs have the expected memory",
        "nvmlDeviceGetMemoryInfo_v2 `total` against `memory`",
        "GPU 3: memory 42.9 GB, expected 85.9 GB",
        "A smaller board is in this node, or part of its memory is set aside. Compare the part numbers.",
        of_each_gpu(failed, Held("memory", lambda gpu: gpu.memory.total, at_least, gigabytes, name="memory")),
        commands=("nvidia-smi --query-gpu=index,name,memory.total,memory.reserved --format=csv",),
    ),
    _row(
        "B03",
        "the driver is of the expected version",
        "nvmlSystemGetDriverVersion begins with `driver`",
        "driver 550.54.15, expected 570.86",
        "Drain the node and install the driver the site agreed on; with the GPU operator, look whether the rollout of "
        "its ClusterPolicy's driver version has reached this node.",
        of_node(warned, Held("driver", lambda facts: driver(facts).version, is_version, name="driver")),
        commands=(
            "nvidia-smi --query-gpu=driver_version --format=csv,noheader",
            "kubectl get node {node} -L nvidia.com/gpu-driver-upgrade-state",
        ),
    ),
    _row(
        "B04",
        "the driver offers the expected CUDA version",
        "nvmlSystemGetCudaDriverVersion_v2 begins with `cuda`",
        "CUDA 12.4, expected 12.8",
        "The CUDA version comes with the driver: install the driver that brings it. Newer CUDA programs fail here.",
        of_node(warned, Held("cuda", lambda facts: driver(facts).cuda, is_version, name="CUDA")),
        commands=("nvidia-smi --version",),
    ),
    _row(
        "B05",
        "the GPUs' VBIOS is expected",
        "nvmlDeviceGetVbiosVersion begins with one of `vbios`",
        "GPU 3: VBIOS 96.00.5E.00.01, expected 96.00.74",
        "This board has other firmware than the rest, often after a replacement. Bring it up with the server vendor's "
        "firmware bundle, on a drained node; a power cycle follows.",
        of_each_gpu(
            warned,
            Held("vbios", lambda gpu: gpu.identity.vbios, lambda f, e: any(is_version(f, v) for v in e), name="VBIOS"),
        ),
        commands=("nvidia-smi --query-gpu=index,vbios_version,serial --format=csv",),
    ),
    _row(
        "B06",
        "the GPUs' GSP firmware is expected",
        "nvmlDeviceGetGspFirmwareVersion begins with `gsp_firmware`",
        "GPU 3: GSP firmware 550.54.15, expected 570.86.15",
        "GSP firmware comes with the driver. Another version than the driver's means that files of an old driver are "
        "left in /lib/firmware/nvidia: reinstall the driver, then reboot.",
        of_each_gpu(
            warned, Held("gsp_firmware", lambda gpu: gpu.identity.gsp_firmware, is_version, name="GSP firmware")
        ),
        commands=("nvidia-smi -q | grep -i gsp", "ls /lib/firmware/nvidia"),
    ),
    _row(
        "B07",
        "the GPUs' infoROM image is expected",
        "nvmlDeviceGetInforomImageVersion begins with `inforom`",
        "GPU 3: infoROM G520.0200.00.03, expected G520.0200.00.05",
        "Update it with the VBIOS by the server vendor's firmware bundle; a power cycle follows.",
        of_each_gpu(warned, Held("inforom", lambda gpu: gpu.identity.inforom_image, is_version, name="infoROM")),
        commands=("nvidia-smi --query-gpu=index,inforom.img --format=csv",),
    ),
    _row(
        "B08",
        "the PCIe links are as fast and wide as expected",
        "nvmlDeviceGetMaxPcieLinkGeneration, nvmlDeviceGetCurrPcieLinkWidth against `pcie_generation`, `pcie_width`",
        "GPU 3: x8, expected x16",
        "Reseat the board or its riser and look at bifurcation and link speed in the firmware's setup; a link that "
        "stays narrow after a power cycle is a hardware fault.",
        of_each_gpu(
            failed,
            Held("pcie_generation", lambda gpu: gpu.pcie.generation_max, at_least, lambda v: f"gen{v}"),
            Held("pcie_width", lambda gpu: gpu.pcie.width, at_least, lambda v: f"x{v}"),
        ),
        needs=("N02", "H04"),
        commands=(
            "nvidia-smi -i {gpu} -q | grep -A12 'GPU Link Info'",
            "sudo lspci -vv -d 10de: | grep -E 'LnkCap:|LnkSta:'",
        ),
    ),
    _row(
        "B09",
        "the NVLinks are as many and as fast as expected",
        "nvmlDeviceGetNvLinkState and the speed of each link against `nvlinks`, `nvlink_speed`",
        "GPU 3: 17 links, expected 18 links",
        "Drain the node, reset the GPUs, and look again; links that stay down are a matter of board, bridge or switch.",
        of_each_gpu(
            failed,
            Held("nvlinks", lambda gpu: len(active(gpu.nvlinks)), at_least, lambda v: f"{v} links"),
            Held(
                "nvlink_speed",
                slowest_link,
                is_link_speed,
                lambda v: f"{speed(v)} a link",
            ),
        ),
        needs=("N02", "F03"),
        commands=("nvidia-smi nvlink --status -i {gpu}",),
    ),
    _row(
        "B10",
        "ECC is switched as expected",
        "nvmlDeviceGetEccMode against `ecc`",
        "GPU 3: ECC off, expected ECC on",
        "Switch it on a drained node; it takes a reset of the GPU or a reboot to take effect.",
        of_each_gpu(warned, Held("ecc", lambda gpu: gpu.ecc.enabled, words=switched("ECC"), commands=set_by("-e"))),
    ),
    _row(
        "B11",
        "MIG is switched as expected",
        "nvmlDeviceGetMigMode against `mig`",
        "GPU 3: MIG off, expected MIG on",
        "With the GPU operator, set the label nvidia.com/mig.config to the wanted layout and leave the rest to the MIG "
        "manager. Without it, switch the mode on a drained node.",
        of_each_gpu(warned, Held("mig", lambda gpu: gpu.mig_enabled, words=switched("MIG"))),
        commands=(
            "kubectl get node {node} -L nvidia.com/mig.config,nvidia.com/mig.config.state",
            "nvidia-smi -i {gpu} -q -d MIG_MODE",
        ),
    ),
    _row(
        "B12",
        "persistence mode is switched as expected",
        "nvmlDeviceGetPersistenceMode against `persistence`",
        "GPU 3: persistence mode off, expected persistence mode on",
        "Where it should be on, run nvidia-persistenced as a service: it holds the mode as long as the driver lives. "
        "Where it should be off, stop that service.",
        of_each_gpu(
            warned,
            Held(
                "persistence",
                lambda gpu: gpu.persistence_mode,
                words=switched("persistence mode"),
                commands=set_by("-pm"),
            ),
        ),
    ),
    _row(
        "B13",
        "the power limits are as expected",
        "nvmlDeviceGetPowerManagementLimit against `power_limit`",
        "GPU 3: power limit 400 W, expected 700 W",
        "Somebody has set another limit. Find out who before it is changed: gpuwatch's own settings are listed by "
        "`gpuwatch tune status`, and are given back by `gpuwatch tune restore`.",
        of_each_gpu(
            warned,
            Held(
                "power_limit",
                lambda gpu: gpu.power.limit_configured,
                is_watts,
                lambda v: f"{v:.0f} W",
                name="power limit",
            ),
        ),
        commands=("gpuwatch tune status", "nvidia-smi -i {gpu} -q -d POWER"),
    ),
    _row(
        "B14",
        "the kernel is of the expected version",
        "/proc/sys/kernel/osrelease begins with `kernel`",
        "kernel 5.15.0-113-generic, expected 6.8",
        "The node was updated too early or too late. A kernel needs a driver module built for it: change both.",
        of_node(
            warned,
            Held("kernel", lambda facts: facts.kernel.release if facts.kernel else None, is_version, name="kernel"),
        ),
        reads=("kernel",),
        needs=(),
        commands=("uname -r",),
    ),
    _row(
        "B15",
        "the container toolkit is of the expected version",
        "version of nvidia-ctk or nvidia-container-runtime begins with `container_toolkit`",
        "container toolkit 1.14.6, expected 1.17",
        "Update the package nvidia-container-toolkit, or the GPU operator that brings it, and restart the container "
        "runtime on a drained node.",
        of_node(warned, Held("container_toolkit", toolkit, is_version, name="container toolkit")),
        reads=("runtime",),
        needs=(),
        commands=("nvidia-ctk --version",),
    ),
    _row(
        "B16",
        "the fabric manager is of the expected version",
        "its log or package against `fabric_manager`",
        "fabric manager 550.54.15, expected 570.86",
        "Fabric manager and driver must be of the same version: install the one that fits the driver, then restart "
        "nvidia-fabricmanager on a drained node.",
        of_node(
            warned,
            Held(
                "fabric_manager",
                lambda facts: facts.services.fabric_manager if facts.services else None,
                is_version,
                name="fabric manager",
            ),
        ),
        reads=("services",),
        needs=(),
        commands=("nv-fabricmanager --version", "systemctl status nvidia-fabricmanager"),
    ),
    _row(
        "B17",
        "data moves as fast as expected",
        "the copies of the active checks against `host_to_device`, `device_to_host`, `peer_bandwidth`",
        "GPU 3: 6.1 GB/s from host to device, expected 20 GB/s from host to device",
        "Look at width and speed of the PCIe link, at the NUMA node the copy ran on, and at the NVLinks for copies "
        "between GPUs; then measure again on an idle node.",
        of_copies,
        reads=("active",),
        needs=("N02", "X01", "X02"),
        level="full",
        active=True,
        commands=("gpuwatch diagnose --stage host --stage fabric --gpu {gpu}", "nvidia-smi topo -m"),
    ),
)
