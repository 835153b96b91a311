"""On a broken node the first failure is the cause, and what follows from it is blocked, not failed."""

import pytest

from gpuwatch.diagnose.model import CheckStatus
from tests.diagnose.checks.scenes import (
    LIBRARY_NOT_FOUND,
    MISMATCH,
    Scene,
    bound_to,
    cuda,
    devices,
    edited,
    fabric_manager,
    gone,
    gpu,
    kernel_says,
    labelled,
    names_the_cause,
    never_installed,
    no_libraries,
    no_nvml,
    no_plugin,
    no_toolkit,
    plugin_configs,
    record,
    tainted,
    unloaded,
    updated_libraries,
    upgraded_kernel,
    wedged,
    with_module,
    without_module,
)
from tests.seeds import a_third

PLUGINS = "var/lib/kubelet/device-plugins"
CDI = "run/cdi/nvidia.yaml"
OPEN_ONLY = (
    "NVRM: The NVIDIA GPU 0000:1b:00.0 (PCI ID: 10de:2901) installed in this system requires use of the NVIDIA open "
    "kernel modules."
)
REJECTED = "Loading of module with unavailable key is rejected"
ASKED = {"do": "recovery_action", "gpu": 3, "action": 1}
"""What the driver shows of such a fault: it asks for a reset. A line of the kernel log alone is a warning."""

DRIVER_DOWN = "D01 N01 N02 N03 N04 V01 G02 F01 T01 K02 K03"
NVML_DOWN = "N03 N04 G02 K03"

SCENES = (
    Scene("kernel-upgrade", (unloaded, upgraded_kernel), "H08", DRIVER_DOWN),
    Scene("driver-never-installed", (never_installed, unloaded), "D01", DRIVER_DOWN.removeprefix("D01 ")),
    Scene("secure-boot", (unloaded, kernel_says(REJECTED)), "H09", DRIVER_DOWN),
    Scene("nouveau", (unloaded, with_module("nouveau"), bound_to("nouveau")), "H07", DRIVER_DOWN),
    Scene("module-not-loaded", (unloaded,), "D01", DRIVER_DOWN.removeprefix("D01 ")),
    Scene(
        "driver-upgrade-under-way",
        (unloaded, labelled(gpu__driver__upgrade__state="pod-restart-required")),
        "D08",
        DRIVER_DOWN,
    ),
    Scene(
        "library-mismatch",
        (updated_libraries, no_nvml(MISMATCH, "Driver/library version mismatch"), no_plugin),
        "D03",
        "N02 N03 N04 K03",
    ),
    Scene(
        "no-libraries",
        (no_libraries, no_nvml(LIBRARY_NOT_FOUND, "NVML Shared Library Not Found"), no_plugin),
        "D04",
        "N02 N03 N04 K03",
    ),
    Scene("no-gpu", (), "H01", "H03 D01 N02", node={"gpus": 0}),
    Scene(
        "uvm-not-loaded",
        (
            without_module("nvidia_uvm"),
            edited("proc/devices", "nvidia-uvm", "other"),
            gone("dev/nvidia-uvm", "usr/bin/nvidia-modprobe"),
            no_plugin,
        ),
        "D02",
        "V01 T04 K02",
    ),
    Scene("uvm-without-device-file", (gone("dev/nvidia-uvm", "usr/bin/nvidia-modprobe"), no_plugin), "V01", "T04 K02"),
    Scene("wedged-driver", (wedged(),), "N02", NVML_DOWN),
    Scene("wedged-driver-and-its-files", (wedged("kernel", "nodes"),), "N02", NVML_DOWN),
    Scene(
        "fell-off-the-bus",
        (devices(8, 7),),
        "H02",
        "K03 K04",
        node={"timeline": [{"do": "lose", "gpu": 3, "from_bus": True}]},
    ),
    Scene("lost-on-the-bus", (devices(8, 7),), "H03", "K03 K04", node={"timeline": [{"do": "lose", "gpu": 3}]}),
    Scene(
        "xid-and-plugin-unhealthy",
        (devices(8, 7),),
        "G05",
        "K03 K04",
        node={"timeline": [{"do": "xid", "gpu": 3, "xid": 62}, ASKED]},
    ),
    Scene(
        "gsp-timeout",
        (devices(8, 7),),
        "G05",
        "K03 K04",
        node={"timeline": [{"do": "xid", "gpu": 3, "xid": 119}, ASKED]},
    ),
    Scene("row-remap-failure", (), "G03", node={"timeline": [{"do": "remap", "gpu": 2, "failure": True}]}),
    Scene(
        "power-brake",
        (),
        "G07",
        node={
            "timeline": [{"do": "power_brake", "gpu": 2}],
            "workloads": [{"name": "ml/a", "gpus": [2], "load": "training"}],
        },
        result=CheckStatus.WARN,
    ),
    Scene("old-driver-for-the-gpu", (unloaded,), "D06", DRIVER_DOWN, node={"driver": "515.105.01"}),
    Scene(
        "proprietary-modules-on-blackwell",
        (unloaded, kernel_says(OPEN_ONLY)),
        "D07",
        DRIVER_DOWN,
        node={"model": "b200"},
    ),
    Scene("gpu-in-a-virtual-machine", (bound_to("vfio-pci", 3),), "D10", result=CheckStatus.WARN),
    Scene(
        "fabric-manager-of-another-version",
        (fabric_manager("580.95.05"), cuda(802, "system not yet initialized")),
        "F01",
        "F02 X01 X04",
        active=True,
    ),
    Scene("fabric-manager-stopped", (fabric_manager(None),), "F01", "F02"),
    Scene(
        "nvlink-down",
        (),
        "F03",
        node={"timeline": [{"do": "nvlink", "gpu": 1, "link": 3, "active": False}]},
        result=CheckStatus.WARN,
    ),
    Scene("stale-cdi", (edited(CDI, "580.105.08", "570.86.15"), no_plugin), "T04", "K02 K03"),
    Scene(
        "no-nvidia-runtime",
        (
            gone("etc/containerd/conf.d/99-nvidia.toml"),
            edited("etc/containerd/config.toml", "enable_cdi = true", "enable_cdi = false"),
            no_plugin,
        ),
        "T02",
        "T03 K02",
    ),
    Scene("no-toolkit", (no_toolkit, no_plugin), "T01", "T02 T04 K02"),
    Scene("plugin-not-registered", (no_plugin,), "K02", "K03 K04 K10"),
    Scene("capacity-below-nvml", (devices(7, 7),), "K03", "K04"),
    Scene("no-pod-resources-socket", (gone("var/lib/kubelet/pod-resources/kubelet.sock"),), "K01", "K05 K09"),
    Scene(
        "corrupt-checkpoint",
        (lambda host: host.write(f"{PLUGINS}/kubelet_internal_checkpoint", '{"Data":{"PodDev'),),
        "K06",
    ),
    Scene(
        "no-such-plugin-config",
        (no_plugin, labelled(device__plugin_config="h100-shared"), plugin_configs("default")),
        "K07",
        "K02 K03",
    ),
    Scene("mig-pending", (), "M01", node={"timeline": [{"do": "mig_pending", "gpu": 0}]}),
    Scene("mig-manager-failed", (labelled(mig_config="all-1g.10gb", mig_config_state="failed"),), "M02", "M03 M04"),
    Scene(
        "mps-without-its-daemon",
        (labelled(gpu_sharing__strategy="mps", mps_capable="true", gpu_replicas="4"), devices(32, 32)),
        "M05",
    ),
    Scene("stale-taint", (tainted,), "L04"),
    Scene("orphan-clock-cap", (record,), "P01", result=CheckStatus.WARN),
    Scene("wrong-sums", (cuda(0, "wrong result at element 4096"),), "X01", "X02 X03 X04", active=True),
    Scene(
        "persistence-off",
        (gpu(2, persistence_mode=False), gone("proc/1034"), gone("run/nvidia-persistenced")),
        "G10",
        result=CheckStatus.WARN,
    ),
    Scene(
        "kernel-upgrade-and-stale-cdi",
        (unloaded, upgraded_kernel, edited(CDI, "580.105.08", "570.86.15")),
        "H08",
        DRIVER_DOWN + " T04",
    ),
    Scene(
        "lost-gpu-and-stale-cdi",
        (edited(CDI, "580.105.08", "570.86.15"), devices(8, 7)),
        "H03",
        "K03",
        also="T04",
        node={"timeline": [{"do": "lose", "gpu": 3}]},
    ),
)


@pytest.mark.parametrize("scene", a_third(SCENES), ids=lambda scene: scene.name)
def test_the_first_failure_is_the_cause(tmp_path, scene):
    names_the_cause(tmp_path, scene)
