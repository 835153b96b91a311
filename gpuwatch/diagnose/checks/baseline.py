"""What a site expects of its nodes (`--expect`), compared with this one; skipped where nothing is expected.

A node that is less than was promised fails: model, memory, links, bandwidth. One whose versions or settings have
drifted still works, and gets a warning. The number of GPUs is H02's to judge.
"""

from gpuwatch.diagnose.check import DiagnosticCheck, failed, warned
from gpuwatch.diagnose.checks.baseline_compare import (
    BaselineKey,
    at_least,
    check_copy_bandwidth,
    gigabytes,
    is_link_speed,
    is_version,
    is_watts,
    nvidia_smi_command,
    of_each_gpu,
    of_node,
    on_or_off,
    speed,
)
from gpuwatch.diagnose.model import CheckStage

BASELINE: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "B01", CheckStage.BASELINE, "the GPUs are of the expected model",
        how="nvmlDeviceGetName holds the baseline's `model`",
        failure="GPU 3: NVIDIA A100-SXM4-40GB, expected H100",
        remedy="A board of another model is in this node. Compare it with what was ordered, and with the node pool's "
        "labels.",
        commands=("nvidia-smi -q | grep -E 'Product Name|Board Part Number'",),
        judge=of_each_gpu(
            failed,
            BaselineKey("model", lambda f, e: e.casefold() in f.casefold()),
        ),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B02", CheckStage.BASELINE, "the GPUs have the expected memory",
        how="nvmlDeviceGetMemoryInfo_v2 `total` against `memory`",
        failure="GPU 3: memory 42.9 GB, expected 85.9 GB",
        remedy="A smaller board is in this node, or part of its memory is set aside. Compare the part numbers.",
        commands=("nvidia-smi --query-gpu=index,name,memory.total,memory.reserved --format=csv",),
        judge=of_each_gpu(failed, BaselineKey("memory", at_least, gigabytes, name="memory")),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B03", CheckStage.BASELINE, "the driver is of the expected version",
        how="nvmlSystemGetDriverVersion begins with `driver`",
        failure="driver 550.54.15, expected 570.86",
        remedy="Drain the node and install the driver the site agreed on; with the GPU operator, look whether the "
        "rollout of its ClusterPolicy's driver version has reached this node.",
        commands=("nvidia-smi --query-gpu=driver_version --format=csv,noheader",
                  "kubectl get node {node} -L nvidia.com/gpu-driver-upgrade-state"),
        judge=of_node(warned, BaselineKey("driver", is_version, name="driver")),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B04", CheckStage.BASELINE, "the driver offers the expected CUDA version",
        how="nvmlSystemGetCudaDriverVersion_v2 begins with `cuda`",
        failure="CUDA 12.4, expected 12.8",
        remedy="The CUDA version comes with the driver: install the driver that brings it. Newer CUDA programs fail "
        "here.",
        commands=("nvidia-smi --version",),
        judge=of_node(warned, BaselineKey("cuda", is_version, name="CUDA")),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B05", CheckStage.BASELINE, "the GPUs' VBIOS is expected",
        how="nvmlDeviceGetVbiosVersion begins with one of `vbios`",
        failure="GPU 3: VBIOS 96.00.5E.00.01, expected 96.00.74",
        remedy="This board has other firmware than the rest, often after a replacement. Bring it up with the server "
        "vendor's firmware bundle, on a drained node; a power cycle follows.",
        commands=("nvidia-smi --query-gpu=index,vbios_version,serial --format=csv",),
        judge=of_each_gpu(
            warned, BaselineKey("vbios", lambda f, e: any(is_version(f, v) for v in e), name="VBIOS")
        ),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B06", CheckStage.BASELINE, "the GPUs' GSP firmware is expected",
        how="nvmlDeviceGetGspFirmwareVersion begins with `gsp_firmware`",
        failure="GPU 3: GSP firmware 550.54.15, expected 570.86.15",
        remedy="GSP firmware comes with the driver. Another version than the driver's means that files of an old "
        "driver are left in /lib/firmware/nvidia: reinstall the driver, then reboot.",
        commands=("nvidia-smi -q | grep -i gsp", "ls /lib/firmware/nvidia"),
        judge=of_each_gpu(warned, BaselineKey("gsp_firmware", is_version, name="GSP firmware")),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B07", CheckStage.BASELINE, "the GPUs' infoROM image is expected",
        how="nvmlDeviceGetInforomImageVersion begins with `inforom`",
        failure="GPU 3: infoROM G520.0200.00.03, expected G520.0200.00.05",
        remedy="Update it with the VBIOS by the server vendor's firmware bundle; a power cycle follows.",
        commands=("nvidia-smi --query-gpu=index,inforom.img --format=csv",),
        judge=of_each_gpu(warned, BaselineKey("inforom", is_version, name="infoROM")),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B08", CheckStage.BASELINE, "the PCIe links are as fast and wide as expected",
        how="nvmlDeviceGetMaxPcieLinkGeneration, nvmlDeviceGetCurrPcieLinkWidth against `pcie_generation`, "
        "`pcie_width`",
        failure="GPU 3: x8, expected x16",
        remedy="Reseat the board or its riser and look at bifurcation and link speed in the firmware's setup; a link "
        "that stays narrow after a power cycle is a hardware fault.",
        commands=("nvidia-smi -i {gpu} -q | grep -A12 'GPU Link Info'",
                  "sudo lspci -vv -d 10de: | grep -E 'LnkCap:|LnkSta:'"),
        judge=of_each_gpu(
            failed,
            BaselineKey("pcie_generation", at_least, lambda v: f"gen{v}"),
            BaselineKey("pcie_width", at_least, lambda v: f"x{v}"),
        ),
        needs=("N02", "H04"), reads=("view",),
    ),
    DiagnosticCheck(
        "B09", CheckStage.BASELINE, "the NVLinks are as many and as fast as expected",
        how="nvmlDeviceGetNvLinkState and the speed of each link against `nvlinks`, `nvlink_speed`",
        failure="GPU 3: 17 links, expected 18 links",
        remedy="Drain the node, reset the GPUs, and look again; links that stay down are a matter of board, bridge or "
        "switch.",
        commands=("nvidia-smi nvlink --status -i {gpu}",),
        judge=of_each_gpu(
            failed,
            BaselineKey("nvlinks", at_least, lambda v: f"{v} links"),
            BaselineKey("nvlink_speed", is_link_speed, lambda v: f"{speed(v)} a link"),
        ),
        needs=("N02", "F03"), reads=("view",),
    ),
    DiagnosticCheck(
        "B10", CheckStage.BASELINE, "ECC is switched as expected",
        how="nvmlDeviceGetEccMode against `ecc`",
        failure="GPU 3: ECC off, expected ECC on",
        remedy="Switch it on a drained node; it takes a reset of the GPU or a reboot to take effect.",
        judge=of_each_gpu(
            warned, BaselineKey("ecc", text=on_or_off("ECC"), commands=nvidia_smi_command("-e"))
        ),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B11", CheckStage.BASELINE, "MIG is switched as expected",
        how="nvmlDeviceGetMigMode against `mig`",
        failure="GPU 3: MIG off, expected MIG on",
        remedy="With the GPU operator, set the label nvidia.com/mig.config to the wanted layout and leave the rest to "
        "the MIG manager. Without it, switch the mode on a drained node.",
        commands=("kubectl get node {node} -L nvidia.com/mig.config,nvidia.com/mig.config.state",
                  "nvidia-smi -i {gpu} -q -d MIG_MODE"),
        judge=of_each_gpu(warned, BaselineKey("mig", text=on_or_off("MIG"))),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B12", CheckStage.BASELINE, "persistence mode is switched as expected",
        how="nvmlDeviceGetPersistenceMode against `persistence`",
        failure="GPU 3: persistence mode off, expected persistence mode on",
        remedy="Where it should be on, run nvidia-persistenced as a service: it holds the mode as long as the driver "
        "lives. Where it should be off, stop that service.",
        judge=of_each_gpu(
            warned, BaselineKey("persistence", text=on_or_off("persistence mode"), commands=nvidia_smi_command("-pm"))
        ),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B13", CheckStage.BASELINE, "the power limits are as expected",
        how="nvmlDeviceGetPowerManagementLimit against `power_limit`",
        failure="GPU 3: power limit 400 W, expected 700 W",
        remedy="Somebody has set another limit. Find out who before it is changed: gpuwatch's own settings are listed "
        "by `gpuwatch tune status`, and are given back by `gpuwatch tune restore`.",
        commands=("gpuwatch tune status", "nvidia-smi -i {gpu} -q -d POWER"),
        judge=of_each_gpu(
            warned, BaselineKey("power_limit", is_watts, lambda v: f"{v:.0f} W", name="power limit")
        ),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B14", CheckStage.BASELINE, "the kernel is of the expected version",
        how="/proc/sys/kernel/osrelease begins with `kernel`",
        failure="kernel 5.15.0-113-generic, expected 6.8",
        remedy="The node was updated too early or too late. A kernel needs a driver module built for it: change both.",
        commands=("uname -r",),
        judge=of_node(warned, BaselineKey("kernel", is_version, name="kernel")),
        reads=("kernel",),
    ),
    DiagnosticCheck(
        "B15", CheckStage.BASELINE, "the container toolkit is of the expected version",
        how="version of nvidia-ctk or nvidia-container-runtime begins with `container_toolkit`",
        failure="container toolkit 1.14.6, expected 1.17",
        remedy="Update the package nvidia-container-toolkit, or the GPU operator that brings it, and restart the "
        "container runtime on a drained node.",
        commands=("nvidia-ctk --version",),
        judge=of_node(warned, BaselineKey("container_toolkit", is_version, name="container toolkit")),
        reads=("runtime",),
    ),
    DiagnosticCheck(
        "B16", CheckStage.BASELINE, "the fabric manager is of the expected version",
        how="its log or package against `fabric_manager`",
        failure="fabric manager 550.54.15, expected 570.86",
        remedy="Fabric manager and driver must be of the same version: install the one that fits the driver, then "
        "restart nvidia-fabricmanager on a drained node.",
        commands=("nv-fabricmanager --version", "systemctl status nvidia-fabricmanager"),
        judge=of_node(warned, BaselineKey("fabric_manager", is_version, name="fabric manager")),
        reads=("services",),
    ),
    DiagnosticCheck(
        "B17", CheckStage.BASELINE, "data moves as fast as expected",
        how="the copies of the active checks against `host_to_device`, `device_to_host`, `peer_bandwidth`",
        failure="GPU 3: 6.1 GB/s from host to device, expected 20 GB/s from host to device",
        remedy="Look at width and speed of the PCIe link, at the NUMA node the copy ran on, and at the NVLinks for "
        "copies between GPUs; then measure again on an idle node.",
        commands=("gpuwatch diagnose --stage host --stage fabric --gpu {gpu}", "nvidia-smi topo -m"),
        judge=check_copy_bandwidth,
        needs=("N02", "X01", "X02"), reads=("active",), level="full", active=True,
    ),
)  # fmt: skip
