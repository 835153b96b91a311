"""Nodes that are well and look unlike the simulated one: what clouds, distributions and sites make of a GPU node."""

from typing import Any, NamedTuple

import msgspec

from gpuwatch.diagnose.host.exporters import Exporter
from gpuwatch.sim.host.machine import LIBRARIES, RELEASE
from tests.diagnose.changes import labels, process, several
from tests.diagnose.checks.broken_containers import crio, docker
from tests.diagnose.checks.machine_faults import alone, containerised
from tests.diagnose.hosts import Host
from tests.sim.host.kind_changes import (
    BUS,
    Change,
    devices,
    every_gpu,
    gone,
    identified,
    moved,
    of_cluster,
    of_node,
    unseen_ports,
)

TOOLKIT = "usr/local/nvidia/toolkit"
UVM = ("dev/nvidia-uvm", "dev/nvidia-uvm-tools")


class Kind(NamedTuple):
    """What makes it of its simulated node."""

    name: str
    becomes: Change
    node: dict[str, Any] = {}


def driver_container(host: Host) -> None:
    """The GPU operator brings driver and toolkit; the host is a plain one."""
    containerised(host)
    moved("/run/nvidia/driver")(host)
    host.write("run/nvidia/driver/dev/nvidiactl", "")
    for name in ("nvidia-ctk", "nvidia-container-runtime", "nvidia-container-runtime-hook", "nvidia-cdi-hook"):
        (host.root / TOOLKIT).mkdir(parents=True, exist_ok=True)
        (host.root / "usr/bin" / name).rename(host.root / TOOLKIT / name)
    host.edit("etc/containerd/conf.d/99-nvidia.toml", "/usr/bin/nvidia", f"/{TOOLKIT}/nvidia")
    host.remove("run/cdi")
    status = host.root / "var/lib/dpkg/status"
    host.write("var/lib/dpkg/status", "".join(p for p in status.read_text().split("\n\n") if "nvidia" not in p))
    host.remove("var/log/fabricmanager.log")


def leftover_manager(host: Host) -> None:
    """The image once had a driver of its own; its fabric manager's package and log were left."""
    driver_container(host)
    old = "535.129.03-1"
    host.write(
        "var/lib/dpkg/status",
        f"Package: nvidia-fabricmanager-535\nStatus: install ok installed\nArchitecture: amd64\nVersion: {old}\n\n",
    )


def openshift(host: Host) -> None:
    """CRI-O, SELinux, everything else from the operator."""
    driver_container(host)
    crio(host)
    host.edit("etc/crio/crio.conf.d/99-nvidia.conf", "/usr/bin", f"/{TOOLKIT}")


def fresh_boot(host: Host) -> None:
    """Nobody has used CUDA yet: nvidia-modprobe loads nvidia_uvm and makes its files when somebody does."""
    gone("run/cdi")(host)
    host.edit("proc/modules", "nvidia_uvm ", "other ")
    host.edit("proc/devices", "nvidia-uvm", "other")
    gone(*UVM)(host)


def slurm(host: Host) -> None:
    """Bare metal; podman and enroot are there, and the toolkit's library for enroot, as any RHEL node has."""
    alone(host)
    gone("etc/containerd", "usr/bin/containerd", "run/cdi", "proc/812", "usr/bin/kubelet", "proc/1290")(host)
    host.write("usr/bin/podman", "\x7fELF")
    gone("etc/nvidia-container-runtime", "usr/bin/nvidia-ctk", "usr/bin/nvidia-cdi-hook")(host)
    gone("usr/bin/nvidia-container-runtime", "usr/bin/nvidia-container-runtime-hook")(host)


def gke(host: Host) -> None:
    """Container-Optimized OS: a read-only system, the driver below /home/kubernetes/bin."""
    moved("/home/kubernetes/bin/nvidia", libraries="lib64")(host)
    for name in ("nvidia-ctk", "nvidia-container-runtime", "nvidia-container-runtime-hook", "nvidia-cdi-hook"):
        host.remove(f"usr/bin/{name}")
    gone("etc/containerd/conf.d", "etc/nvidia-container-runtime", "run/cdi", "run/nvidia", "dev/char")(host)
    gone("lib/modules", "var/lib/dkms", "var/lib/dpkg", "proc/1034", "etc/modprobe.d")(host)
    every_gpu(persistence_mode=False)(host)
    plugins = host.root / "var/lib/kubelet/device-plugins"
    (plugins / "nvidia-gpu.sock").rename(plugins / "nvidiaGPU-1764000000.sock")
    assert host.cluster is not None
    node = host.cluster.node
    kept = {key: value for key, value in node.labels.items() if not key.startswith(("nvidia.com", "feature."))}
    of_cluster(pods=(), policy_state=None, plugin_environment=None, runtime_classes={})(host)
    of_node(labels=kept | {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4"})(host)


def bottlerocket(host: Host) -> None:
    """The driver in a system that cannot be written, no packages, no operator."""
    root = "x86_64-bottlerocket-linux-gnu/sys-root/usr"
    folder = host.root / root / "lib/nvidia/tesla"
    folder.mkdir(parents=True)
    for file in sorted((host.root / LIBRARIES).glob("lib*")):
        file.rename(folder / file.name)
    (host.root / root / "lib/firmware").parent.mkdir(parents=True, exist_ok=True)
    (host.root / "lib/firmware").rename(host.root / root / "lib/firmware")
    gone("run/nvidia/validations", "var/lib/dkms", "var/lib/dpkg", f"lib/modules/{RELEASE}/build", "dev/char")(host)
    of_cluster(policy_state=None)(host)


def multi_node(host: Host) -> None:
    """A tray of a GB200 NVL72 with NVIDIA's DRA driver; no job asks for a ComputeDomain."""
    identified(name="NVIDIA GB200")(host)
    host.edit("proc/driver/nvidia/version", "x86_64", "aarch64")
    every_gpu(fabric={"state": 3, "status": 0, "clique_id": 32766, "cluster_uuid": "b3d1"})(host)
    claims(host)
    host.write("var/lib/kubelet/plugins_registry/compute-domain.nvidia.com-reg.sock", "")
    labels(gpu_product="NVIDIA-GB200")(host)
    devices("iommu_group/type", "DMA-FQ\n")(host)
    gone("proc/1101", "proc/1097", *(f"{BUS}/0000:{bus:02x}:00.0" for bus in range(0x0D, 0x11)))(host)


def claims(host: Host) -> None:
    """NVIDIA's DRA driver gives the GPUs; the operator's device plugin is off."""
    gone("var/lib/kubelet/device-plugins/nvidia-gpu.sock", "run/nvidia/validations/plugin-ready")(host)
    gone("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")(host)
    host.write("var/lib/kubelet/plugins_registry/gpu.nvidia.com-reg.sock", "")
    assert host.cluster is not None
    host.cluster.node.labels["nvidia.com/gpu.deploy.device-plugin"] = "false"
    pods = tuple(pod for pod in host.cluster.pods or () if "device-plugin" not in (pod.app or ""))
    of_cluster(pods=pods, plugin_environment=None)(host)
    of_node(capacity={}, allocatable={})(host)


def vgpu_guest(host: Host) -> None:
    """A slice of a GPU: no ECC, no links, no limits, no firmware, and a driver that counts nothing."""
    unseen_ports(host)
    every_gpu(virtualization_mode="vgpu", ecc={"enabled": None, "pending": None, "counts": {}}, nvlinks=(),
              power={"limit_default": None, "limit_configured": None, "limit_enforced": None, "energy": None},
              activity={"sm": None})(host)  # fmt: skip
    identified(gsp_firmware=None, brand="NVIDIA vCS", name="GRID T4-16C")(host)
    devices("max_link_width", "0\n")(host)
    alone(host)


def gpu_of_a_host(host: Host) -> None:
    """A KubeVirt node: its GPUs are for virtual machines, as the label says."""
    every_bound("vfio-pci")(host)
    devices("iommu_group/type", "DMA\n")(host)
    host.node.driver_up = False
    host.view = host.earlier = None
    for path in ("proc/driver/nvidia", "sys/module/nvidia", "run/nvidia/validations", "run/cdi", "proc/1034"):
        gone(path)(host)
    lines = (host.root / "proc/modules").read_text().splitlines(keepends=True)
    host.write("proc/modules", "".join(line for line in lines if not line.startswith("nvidia")))
    gone("var/lib/kubelet/device-plugins/nvidia-gpu.sock")(host)
    labels(gpu_workload_config="vm-passthrough")(host)


def every_bound(driver: str) -> Change:
    """All GPUs have this driver."""

    def change(host: Host) -> None:
        folder = host.root / "sys/bus/pci/drivers" / driver
        folder.mkdir(parents=True, exist_ok=True)
        for link in (host.root / BUS).iterdir():
            if (link / "numa_node").exists():
                (link / "driver").unlink(missing_ok=True)
                (link / "driver").symlink_to(f"/{folder.relative_to(host.root)}")

    return change


def vgpu_host(host: Host) -> None:
    """NVIDIA's manager of virtual GPUs: a driver without CUDA."""
    alone(host)
    fresh_boot(host)
    gone("etc/containerd", "usr/bin/containerd", "run/cdi", "proc/812", "etc/nvidia-container-runtime")(host)
    gone("usr/bin/nvidia-modprobe", *(f"usr/bin/nvidia-{name}" for name in ("ctk", "cdi-hook")))(host)
    gone("usr/bin/nvidia-container-runtime", "usr/bin/nvidia-container-runtime-hook")(host)
    host.write("proc/modules", (host.root / "proc/modules").read_text() + "nvidia_vgpu_vfio 90112 0 - Live 0x0\n")
    for file in (host.root / LIBRARIES).glob("libcuda*"):
        file.unlink()
    devices("iommu_group/type", "DMA-FQ\n")(host)
    every_gpu(virtualization_mode="host_vgpu")(host)


def laptop(host: Host) -> None:
    """A desk: a display, Docker for other things, boards of two makers, no server habits."""
    docker({})(host)
    gone("run/nvidia/validations")(host)
    fresh_boot(host)
    gone("proc/1034", "run/nvidia-persistenced", "run/cdi", "etc/nvidia-container-runtime")(host)
    for file in (host.root / "usr/bin").glob("nvidia-c*"):
        file.unlink()
    devices("iommu_group/type", "DMA-FQ\n")(host)
    host.gpu(1, identity=msgspec.structs.replace(host.view.snapshot.gpus[1].identity, vbios="95.03.1E.00.5A"))  # type: ignore[union-attr]
    every_gpu(persistence_mode=False, ecc={"enabled": None, "pending": None, "counts": {}})(host)


def half_lanes(host: Host) -> None:
    """A cloud's virtual machine: the machine below wires fewer lanes than the board has, and nobody can change it."""
    unseen_ports(host)
    devices("current_link_width", "8\n")(host)
    alone_in_cluster(host)


def half_slots(host: Host) -> None:
    """A server whose slots have eight lanes each."""
    for link in (host.root / BUS).iterdir():
        if (link / "numa_node").exists():
            (link.resolve() / "current_link_width").write_text("8\n")
            (link.resolve().parent / "max_link_width").write_text("8\n")


def alone_in_cluster(host: Host) -> None:
    """Kubernetes of a cloud with the plain device plugin, without the GPU operator."""
    gone("run/nvidia/validations")(host)
    assert host.cluster is not None
    kept = {k: v for k, v in host.cluster.node.labels.items() if not k.startswith(("nvidia.com/gpu.deploy", "feature"))}
    of_node(labels=kept)(host)
    of_cluster(policy_state=None, pods=())(host)


def ethernet(host: Host) -> None:
    """A server's plain network is of ConnectX too, and containerd has the limits of any service."""
    modules = "mlx5_ib 507904 0 - Live 0x0\nib_core 520192 1 mlx5_ib, Live 0x0\n"
    host.write("proc/modules", (host.root / "proc/modules").read_text() + modules)
    limits = "Max locked memory         8388608              8388608             bytes\n"
    host.write("proc/812/limits", limits)


def single_strategy(host: Host) -> None:
    """All GPUs are cut alike and advertised as whole ones."""
    labels(mig_strategy="single", mig_config="all-3g.40gb", gpu_product="NVIDIA-H100-80GB-HBM3-MIG-3g.40gb")(host)
    of_node(capacity={"nvidia.com/gpu": 4}, allocatable={"nvidia.com/gpu": 4})(host)
    assert host.cluster is not None
    host.cluster.node.labels["nvidia.com/gpu.count"] = "4"


def by_claim_of_cdi(host: Host) -> None:
    """The operator's default since 25.10: the device plugin gives GPUs by CDI, no RuntimeClass is needed."""
    gone("etc/containerd/conf.d/99-nvidia.toml")(host)
    of_cluster(runtime_classes={}, plugin_environment={"DEVICE_LIST_STRATEGY": "cdi-cri"})(host)


def sick_sibling(host: Host) -> None:
    """Another node of the cluster is ill: the operator's policy is of the whole cluster."""
    of_cluster(policy_state="notReady")(host)


def own_counters(host: Host) -> None:
    """A site's own list of counters, as NVIDIA advises for MIG."""
    host.exporters = (Exporter(port=9400, kind="dcgm-exporter", families=12, profiling=True, pods=True),)
    process(2101, "dcgm-exporter")(host)


def proprietary(host: Host) -> None:
    """A100 with the closed modules of a .run file or of RPMs: no dpkg, no DKMS, the log alone tells of its manager."""
    host.edit("proc/driver/nvidia/version", "Open Kernel Module for x86_64", "x86_64 Kernel Module")
    gone("var/lib/dpkg", "var/lib/dkms", f"lib/modules/{RELEASE}/build")(host)
    identified(gsp_firmware=None)(host)
    every_gpu(fabric={"state": 0})(host)


def by_syslog(host: Host) -> None:
    """Its manager writes to syslog; the file is of an older one."""
    proprietary(host)
    every_gpu(fabric={"state": 3, "status": 0})(host)
    host.edit("var/log/fabricmanager.log", host.node.driver, "535.129.03")


H100, T4 = {}, {"model": "t4", "gpus": 2}
KINDS = (
    Kind("driver-container", driver_container),
    Kind("driver-container-with-leftovers", leftover_manager),
    Kind("openshift", openshift),
    Kind("docker", docker({"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}})),
    Kind("docker-fresh-boot", several(docker({}), alone, fresh_boot)),
    Kind("slurm", several(slurm, fresh_boot), T4),
    Kind("gke", several(gke, unseen_ports), T4),
    Kind("bottlerocket", bottlerocket, T4),
    Kind("gb200", multi_node, {"model": "b200", "gpus": 4}),
    Kind("dra", claims),
    Kind("vgpu-guest", vgpu_guest, {"model": "t4", "gpus": 1}),
    Kind("kubevirt", gpu_of_a_host, {"model": "l40s", "gpus": 4}),
    Kind("vgpu-host", vgpu_host, {"model": "l40s", "gpus": 4}),
    Kind("desk", laptop, {"model": "rtx4080s", "gpus": 2}),
    Kind("cloud-vm-x8", half_lanes, T4),
    Kind("slots-of-x8", half_slots, T4),
    Kind("ethernet", ethernet, T4),
    Kind("mig-single", single_strategy, {"gpus": 2, "mig": {"0": ["3g.40gb"] * 2, "1": ["3g.40gb"] * 2}}),
    Kind("cdi-without-runtime-class", by_claim_of_cdi),
    Kind("sick-sibling", sick_sibling),
    Kind("own-counters", own_counters),
    Kind("a100-rpm", proprietary, {"model": "a100"}),
    Kind("h200-syslog", by_syslog, {"model": "h200"}),
)
