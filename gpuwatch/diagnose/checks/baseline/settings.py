"""How the GPUs are linked and set: PCIe, NVLink, modes, power limits, as a site expects them."""

from gpuwatch.diagnose.baseline.inventory import active
from gpuwatch.diagnose.check import DiagnosticCheck, failed, warned
from gpuwatch.diagnose.checks.baseline.compare import (
    Held,
    at_least,
    is_link_speed,
    is_watts,
    of_each_gpu,
    row,
    set_by,
    slowest_link,
    speed,
    switched,
)

SETTINGS: tuple[DiagnosticCheck, ...] = (
    row(
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
    row(
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
    row(
        "B10",
        "ECC is switched as expected",
        "nvmlDeviceGetEccMode against `ecc`",
        "GPU 3: ECC off, expected ECC on",
        "Switch it on a drained node; it takes a reset of the GPU or a reboot to take effect.",
        of_each_gpu(warned, Held("ecc", lambda gpu: gpu.ecc.enabled, words=switched("ECC"), commands=set_by("-e"))),
    ),
    row(
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
    row(
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
    row(
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
)
