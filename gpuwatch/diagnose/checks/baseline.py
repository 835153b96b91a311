"""What a site expects of its nodes (`--expect`), compared with this one; skipped where nothing is expected.

A node with less than expected fails: model, memory, links, bandwidth. One whose versions or settings have drifted
still works, and gets a warning. H02 judges the number of GPUs.
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
)
from gpuwatch.diagnose.model import CheckStage

BASELINE: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "B01", CheckStage.BASELINE, "the GPUs are of the expected model",
        how="nvmlDeviceGetName holds the baseline's `model`",
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
        remedy="A smaller board is in this node, or part of its memory is set aside. Compare the part numbers.",
        commands=("nvidia-smi --query-gpu=index,name,memory.total,memory.reserved --format=csv",),
        judge=of_each_gpu(failed, BaselineKey("memory", at_least, gigabytes, name="memory")),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B03", CheckStage.BASELINE, "the driver is of the expected version",
        how="nvmlSystemGetDriverVersion begins with `driver`",
        remedy="Drain the node and install the site's driver; with the GPU operator, check whether its driver rollout "
        "has reached this node.",
        commands=("nvidia-smi --query-gpu=driver_version --format=csv,noheader",
                  "kubectl get node {node} -L nvidia.com/gpu-driver-upgrade-state"),
        judge=of_node(warned, BaselineKey("driver", is_version, name="driver")),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B04", CheckStage.BASELINE, "the driver offers the expected CUDA version",
        how="nvmlSystemGetCudaDriverVersion_v2 begins with `cuda`",
        remedy="The CUDA version comes with the driver: install the driver that brings it. Newer CUDA programs fail "
        "here.",
        commands=("nvidia-smi --version",),
        judge=of_node(warned, BaselineKey("cuda", is_version, name="CUDA")),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B05", CheckStage.BASELINE, "the GPUs' VBIOS is expected",
        how="nvmlDeviceGetVbiosVersion begins with one of `vbios`",
        remedy="This board has other firmware, often after a replacement. Drain the node and update it with the "
        "server vendor's firmware bundle; a power cycle follows.",
        commands=("nvidia-smi --query-gpu=index,vbios_version,serial --format=csv",),
        judge=of_each_gpu(
            warned, BaselineKey("vbios", lambda f, e: any(is_version(f, v) for v in e), name="VBIOS")
        ),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B06", CheckStage.BASELINE, "the GPUs' GSP firmware is expected",
        how="nvmlDeviceGetGspFirmwareVersion begins with `gsp_firmware`",
        remedy="GSP firmware comes with the driver. Another version means leftover files of an old driver in "
        "/lib/firmware/nvidia: reinstall the driver, then reboot.",
        commands=("nvidia-smi -q | grep -i gsp", "ls /lib/firmware/nvidia"),
        judge=of_each_gpu(warned, BaselineKey("gsp_firmware", is_version, name="GSP firmware")),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B07", CheckStage.BASELINE, "the GPUs' infoROM image is expected",
        how="nvmlDeviceGetInforomImageVersion begins with `inforom`",
        remedy="Update it with the VBIOS by the server vendor's firmware bundle; a power cycle follows.",
        commands=("nvidia-smi --query-gpu=index,inforom.img --format=csv",),
        judge=of_each_gpu(warned, BaselineKey("inforom", is_version, name="infoROM")),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B08", CheckStage.BASELINE, "the PCIe links are as fast and wide as expected",
        how="nvmlDeviceGetMaxPcieLinkGeneration, nvmlDeviceGetCurrPcieLinkWidth against `pcie_generation`, "
        "`pcie_width`",
        remedy="Reseat the board or its riser and check bifurcation and link speed in the firmware's setup; a link "
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
        remedy="Drain the node, reset the GPUs, and look again; links that stay down are a matter of board, bridge or "
        "switch.",
        commands=("nvidia-smi nvlink --status -i {gpu}",),
        judge=of_each_gpu(
            failed,
            BaselineKey("nvlinks", at_least, lambda v: f"{v} links"),
            BaselineKey("nvlink_speed", is_link_speed, lambda v: f"{gigabytes(v)}/s a link"),
        ),
        needs=("N02", "F03"), reads=("view",),
    ),
    DiagnosticCheck(
        "B10", CheckStage.BASELINE, "ECC is switched as expected",
        how="nvmlDeviceGetEccMode against `ecc`",
        remedy="Switch it on a drained node; it takes a reset of the GPU or a reboot to take effect.",
        judge=of_each_gpu(
            warned, BaselineKey("ecc", text=on_or_off("ECC"), commands=nvidia_smi_command("-e"))
        ),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B11", CheckStage.BASELINE, "MIG is switched as expected",
        how="nvmlDeviceGetMigMode against `mig`",
        remedy="With the GPU operator, set the label nvidia.com/mig.config to the wanted layout. Without it, switch "
        "the mode on a drained node.",
        commands=("kubectl get node {node} -L nvidia.com/mig.config,nvidia.com/mig.config.state",
                  "nvidia-smi -i {gpu} -q -d MIG_MODE"),
        judge=of_each_gpu(warned, BaselineKey("mig", text=on_or_off("MIG"))),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B12", CheckStage.BASELINE, "persistence mode is switched as expected",
        how="nvmlDeviceGetPersistenceMode against `persistence`",
        remedy="Where it should be on, run nvidia-persistenced as a service: it holds the mode while the driver "
        "lives. Else stop that service.",
        judge=of_each_gpu(
            warned, BaselineKey("persistence", text=on_or_off("persistence mode"), commands=nvidia_smi_command("-pm"))
        ),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B13", CheckStage.BASELINE, "the power limits are as expected",
        how="nvmlDeviceGetPowerManagementLimit against `power_limit`",
        remedy="Find out who set another limit before you change it: `gpuwatch tune status` lists gpuwatch's own, "
        "`gpuwatch tune restore` reverts them.",
        commands=("gpuwatch tune status", "nvidia-smi -i {gpu} -q -d POWER"),
        judge=of_each_gpu(
            warned, BaselineKey("power_limit", is_watts, lambda v: f"{v:.0f} W", name="power limit")
        ),
        needs=("N02",), reads=("view",),
    ),
    DiagnosticCheck(
        "B14", CheckStage.BASELINE, "the kernel is of the expected version",
        how="/proc/sys/kernel/osrelease begins with `kernel`",
        remedy="The node was updated too early or too late. A kernel needs a driver module built for it: change both.",
        commands=("uname -r",),
        judge=of_node(warned, BaselineKey("kernel", is_version, name="kernel")),
        reads=("kernel",),
    ),
    DiagnosticCheck(
        "B15", CheckStage.BASELINE, "the container toolkit is of the expected version",
        how="version of nvidia-ctk or nvidia-container-runtime begins with `container_toolkit`",
        remedy="Update nvidia-container-toolkit, or the GPU operator that brings it, and restart the container "
        "runtime on a drained node.",
        commands=("nvidia-ctk --version",),
        judge=of_node(warned, BaselineKey("container_toolkit", is_version, name="container toolkit")),
        reads=("runtime",),
    ),
    DiagnosticCheck(
        "B16", CheckStage.BASELINE, "the fabric manager is of the expected version",
        how="its log or package against `fabric_manager`",
        remedy="Install the fabric manager of the driver's version, then restart nvidia-fabricmanager on a drained "
        "node.",
        commands=("nv-fabricmanager --version", "systemctl status nvidia-fabricmanager"),
        judge=of_node(warned, BaselineKey("fabric_manager", is_version, name="fabric manager")),
        reads=("services",),
    ),
    DiagnosticCheck(
        "B17", CheckStage.BASELINE, "data moves as fast as expected",
        how="the copies of the active checks against `host_to_device`, `device_to_host`, `peer_bandwidth`",
        remedy="Check width and speed of the PCIe link, the NUMA node of the copy, and the NVLinks for copies between "
        "GPUs; then measure again on an idle node.",
        commands=("gpuwatch diagnose --stage host --stage fabric --gpu {gpu}", "nvidia-smi topo -m"),
        judge=check_copy_bandwidth,
        needs=("N02", "X01", "X02"), reads=("active",), level="full", active=True,
    ),
)  # fmt: skip
