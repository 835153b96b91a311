"""More broken nodes as they are found in the field: upgrades that went wrong, people who left, parts that wait."""

import pytest
from msgspec.structs import replace

from gpuwatch.diagnose.model import CheckStatus
from gpuwatch.model.pci import pci_key
from gpuwatch.sim.surroundings.pcitree import REQUEST_REDIRECT, port_config
from tests.diagnose.changes import every_gpu, labels
from tests.diagnose.checks.broken_cluster import condition, pod
from tests.diagnose.checks.broken_containers import unregistered
from tests.diagnose.checks.broken_fabric import adapter, proprietary
from tests.diagnose.checks.machine_faults import GPU3, containerised, port, rebound
from tests.diagnose.checks.scenes import (
    MISMATCH,
    Scene,
    devices,
    edited,
    gone,
    gpu,
    kernel_says,
    labelled,
    names_the_cause,
    no_libraries,
    no_nvml,
    no_plugin,
    unloaded,
    updated_libraries,
    without_module,
)
from tests.diagnose.hosts import Host
from tests.seeds import a_third
from tests.sim.host.kind_changes import BUS, identified

WARN = CheckStatus.WARN
NO_PERMISSION, UNKNOWN = 4, 999
DOWN = "N01 N02 N03 N04 V01 T01 K02 K03"
INFORMATION = f"proc/driver/nvidia/gpus/{GPU3}/information"


def hidden_from_nvml(host: Host) -> None:
    """NVML does not know GPU 3 at all."""
    assert host.view is not None
    snapshot = host.view.snapshot
    gpus = tuple(each for each in snapshot.gpus if pci_key(each.identity.pci_bus_id) != pci_key(GPU3))
    statuses = tuple(each for each in snapshot.statuses if pci_key(each.identity.pci_bus_id) != pci_key(GPU3))
    host.view = host.earlier = replace(host.view, snapshot=replace(snapshot, gpus=gpus, statuses=statuses, bus=None))


def paused(why: str) -> object:
    """The operator has taken its device plugin away for a while."""

    def breaks(host: Host) -> None:
        assert host.cluster is not None
        host.cluster.node.labels["nvidia.com/gpu.deploy.device-plugin"] = f"paused-for-{why}"
        pods = tuple(each for each in host.cluster.pods or () if "device-plugin" not in (each.app or ""))
        host.cluster = replace(host.cluster, pods=pods)

    return breaks


def grace(host: Host) -> None:
    """A tray of a GB200 NVL72, without Kubernetes' ComputeDomains."""
    identified(name="NVIDIA GB200")(host)
    labels(gpu_product="NVIDIA-GB200")(host)
    host.edit("proc/driver/nvidia/version", "x86_64", "aarch64")
    every_gpu(fabric={"state": 3, "status": 0})(host)


SCENES = (
    Scene(
        "driver-pod-crash-loops-after-kernel-upgrade",
        (
            unloaded,
            containerised,
            no_libraries,
            pod("nvidia-driver-daemonset", ready=False, waiting="CrashLoopBackOff", restarts=14),
        ),
        "D01",
        DOWN,
    ),
    Scene(
        "containerd-update-replaced-its-configuration",
        (edited("etc/containerd/config.toml", "imports = ['/etc/containerd/conf.d/*.toml']", ""), no_plugin),
        "T02",
        "T03 K02 K03 K04",
    ),
    Scene("imex-daemon-down", (grace,), "F07", result=WARN, node={"model": "b200", "gpus": 4}),
    Scene(
        "no-way-from-rdma-to-gpu-memory",
        (adapter(), proprietary, without_module("nvidia_peermem")),
        "F05",
        result=WARN,
    ),
    Scene(
        "mig-manager-stuck-on-a-busy-gpu",
        (no_plugin, paused("mig-change"), labelled(mig_config="all-1g.10gb", mig_config_state="pending")),
        "L03",
        "K02 K03 K04 K10",
    ),
    Scene(
        "mig-manager-gave-up",
        (no_plugin, paused("mig-change"), labelled(mig_config="all-1g.10gb", mig_config_state="failed")),
        "M02",
        "L03 K02 K03 K04 M03",
    ),
    Scene("driver-upgrade-left-the-plugin-paused", (no_plugin, paused("driver-upgrade")), "L03", "K02 K03 K10"),
    Scene(
        "gpu-excluded-by-a-parameter",
        (
            edited(INFORMATION, "No", "Yes"),
            hidden_from_nvml,
            devices(7, 7),
            labelled(gpu_count="7"),
            gone("run/cdi"),
        ),
        "N03",
        result=WARN,
    ),
    Scene("device-files-for-root-only", (no_nvml(NO_PERMISSION, "Insufficient Permissions"),), "N02", "N03 N04 K03"),
    Scene("cgroup-lost-the-devices", (no_nvml(UNKNOWN, "Unknown Error"),), "N02", "N03 N04 K03"),
    Scene(
        "driver-asks-for-a-reset",
        (devices(8, 7),),
        "G05",
        "K03 K04",
        node={"timeline": [{"do": "recovery_action", "gpu": 2, "action": 1}]},
    ),
    Scene("row-remap-waits", (), "G03", result=WARN, node={"timeline": [{"do": "remap", "gpu": 2}]}),
    Scene("broken-inforom", (), "G13", result=WARN, node={"timeline": [{"do": "inforom", "gpu": 2}]}),
    Scene(
        "power-cap-left-by-an-admin",
        (),
        "G08",
        result=WARN,
        node={"timeline": [{"do": "power_limit", "gpu": 2, "watts": 400}]},
    ),
    Scene(
        "acs-back-after-a-bios-update",
        (port("config", port_config("downstream", REQUEST_REDIRECT)),),
        "H06",
        result=WARN,
    ),
    Scene(
        "riser-with-half-the-lanes",
        (edited(f"{BUS}/{GPU3}/current_link_width", "16", "8"),),
        "H04",
        result=WARN,
    ),
    Scene(
        "kubelet-restarted-and-plugin-did-not-notice",
        (gone("var/lib/kubelet/device-plugins/nvidia-gpu.sock"), devices(8, 0)),
        "K02",
        "K03 K04 K10 L08",
    ),
    Scene("plugin-keeps-calling-a-gpu-unhealthy", (devices(8, 7), unregistered(3)), "K04", "K10"),
    Scene(
        "adapter-init-failed",
        (kernel_says(f"NVRM: GPU {GPU3}: RmInitAdapter failed! (0x62:0xffff:2477)"), hidden_from_nvml, devices(7, 7)),
        "H10",
        "N03 K03",
    ),
    Scene(
        "bios-gave-no-room-for-a-bar",
        (
            kernel_says(f"NVRM: BAR1 is 0M @ 0x0 (PCI:{GPU3})"),
            kernel_says(f"nvidia {GPU3}: probe with driver nvidia failed with error -1"),
            rebound(None, GPU3),
            hidden_from_nvml,
            devices(7, 7),
        ),
        "H10",
        "N03 K03",
        also="D10",
    ),
    Scene(
        "kubelet-dead",
        (
            gone("var/lib/kubelet/pod-resources/kubelet.sock", "var/lib/kubelet/device-plugins/kubelet.sock"),
            gone("proc/1290"),
            condition("Ready", "Unknown", "NodeStatusUnknown"),
        ),
        "K01",
        "K02 K03 L06",
    ),
    Scene("one-gpu-not-in-the-fabric", (gpu(3, fabric={"state": 2}),), "F02"),
    Scene(
        "unattended-upgrade-and-plugin-restart",
        (updated_libraries, no_nvml(MISMATCH, "Driver/library version mismatch"), no_plugin, devices(0, 0)),
        "D03",
        "D05 T01 N02 K02 K03",
    ),
)  # fmt: skip


@pytest.mark.parametrize("scene", a_third(SCENES), ids=lambda scene: scene.name)
def test_the_first_failure_is_the_cause(tmp_path, scene):
    names_the_cause(tmp_path, scene)


def test_a_driver_pod_that_ends_again_and_again_is_named(tmp_path):
    host = Host(tmp_path)
    for breaks in SCENES[0].breaks:
        breaks(host)
    assert "CrashLoopBackOff, 14 restarts" in host.diagnose().of("D01").message
