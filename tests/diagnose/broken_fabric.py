"""Hosts on which checks fail: fabric, sharing, exporters."""

from collections.abc import Callable
from typing import Any

import msgspec

from gpuwatch.model.cluster import NodePod
from gpuwatch.model.diagnosis import Result
from gpuwatch.sources.exporters import Exporter
from tests.diagnose.broken import Broken
from tests.diagnose.hosts import Host, seen

B200, MIG = {"model": "b200"}, {"mig": {"0": ["3g.40gb", "3g.40gb"]}}
SLICED = {"model": "l40s", "gpus": 2, "replicas": 4}
STATUS, LOG = "var/lib/dpkg/status", "var/log/fabricmanager.log"
MANAGER, SUBNET = "proc/1101", "proc/1097"
ADAPTER = "sys/bus/pci/devices/0000:18:00.0"


def several(*changes: Callable[[Host], None]) -> Callable[[Host], None]:
    """One after the other."""

    def change(host: Host) -> None:
        for each in changes:
            each(host)

    return change


def view(*timeline: dict[str, Any], earlier: bool = False, **node: Any) -> Callable[[Host], None]:
    """What the driver tells after that."""

    def change(host: Host) -> None:
        host.view = seen(timeline, **node)
        host.earlier = host.earlier if earlier else host.view

    return change


def process(pid: int, name: str) -> Callable[[Host], None]:
    """It runs."""

    def change(host: Host) -> None:
        host.write(f"proc/{pid}/comm", name[:15] + "\n")
        host.write(f"proc/{pid}/stat", f"{pid} ({name[:15]}) S 1 {pid} {pid} 0 0\n")

    return change


def gone(path: str) -> Callable[[Host], None]:
    """No longer there."""
    return lambda host: host.remove(path)


def versions(package: str | None, log: str | None = None) -> Callable[[Host], None]:
    """Another fabric manager is installed; one was started."""

    def change(host: Host) -> None:
        assert host.node.driver in (host.root / LOG).read_text()
        if package:
            host.edit(STATUS, host.node.driver, package)
        if log:
            host.edit(LOG, host.node.driver, log)

    return change


def labels(**changes: str) -> Callable[[Host], None]:
    """Labels of the node; `mig_config` stands for nvidia.com/mig.config."""

    def change(host: Host) -> None:
        assert host.cluster is not None
        named = {f"nvidia.com/{name.replace('_', '.').replace('..', '-')}": text for name, text in changes.items()}
        node = msgspec.structs.replace(host.cluster.node, labels=host.cluster.node.labels | named)
        host.cluster = msgspec.structs.replace(host.cluster, node=node)

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


def every_gpu(**changes: Any) -> Callable[[Host], None]:
    """Changes the sample of each."""

    def change(host: Host) -> None:
        assert host.view is not None
        for gpu in host.view.snapshot.gpus:
            host.gpu(gpu.identity.index, **changes)

    return change


def channel(host: Host) -> None:
    """An IMEX channel."""
    host.write("dev/nvidia-caps-imex-channels/channel0", "")


def serves(*found: Exporter) -> Callable[[Host], None]:
    """Exporters answer."""

    def change(host: Host) -> None:
        host.exporters = found

    return change


def dcgm(**changes: Any) -> Exporter:
    """The page of one that is well."""
    page = Exporter(
        port=9400, kind="dcgm-exporter", status=200, families=40, has_gpu_utilization=True, profiling=True, pods=True
    )
    return msgspec.structs.replace(page, **changes)


def held(host: Host) -> None:
    """A pod holds GPU 0."""
    host.view = seen(workloads=[{"name": "ml/train-0", "gpus": [0]}], model="t4", gpus=2)


def pod(host: Host) -> None:
    """The operator has put a host engine here."""
    assert host.cluster is not None
    ours = NodePod(namespace="gpu-operator", name="nvidia-dcgm-x7k2p", uid="1", app="nvidia-dcgm", ready=False)
    host.cluster = msgspec.structs.replace(host.cluster, pods=(*(host.cluster.pods or ()), ours))


def shared(*memory: float) -> Callable[[Host], None]:
    """Pods that use so much of GPU 0 each."""
    pods = [{"name": f"ml/infer-{i}", "gpus": [f"0::{i}"], "memory": share} for i, share in enumerate(memory)]

    def change(host: Host) -> None:
        host.view = seen(workloads=pods, **SLICED)

    return change


def idle_instance(host: Host) -> None:
    """GPU instance 3 has lost its compute instance."""
    host.write("proc/driver/nvidia/capabilities/gpu0/mig/gi3/access", "DeviceFileMinor: 30\nDeviceFileMode: 292\n")


GB200 = every_gpu(identity={"name": "NVIDIA GB200"})
NVSWITCH_FATAL = {"do": "sxid", "sxid": 20034, "switch": 2, "severity": "Fatal", "link": 30}
T4 = {"model": "t4", "gpus": 2}

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
        versions("575.57.08", "575.57.08"),
        "runs, but must be of the same version",
        "exactly the same version",
    ),
    Broken(
        "F01",
        versions("590.48.01"),
        "it will not start again",
        "apt-get install",
        result=Result.WARN,
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
        result=Result.WARN,
    ),
    Broken(
        "F03",
        view({"do": "nvlink", "gpu": 3, "link": 4, "active": False}),
        "(17 of 18 links)",
        "nvidia-smi nvlink -s -i 3",
        result=Result.WARN,
    ),
    Broken(
        "F03",
        view({"do": "nvlink", "gpu": 3, "active": False}),
        "(0 of 18 links)",
        "XID 74",
    ),
    Broken(
        "F04",
        view({"do": "nvlink", "gpu": 2, "link": 7, "errors": {"replay": 40}}, earlier=True),
        "GPU 2: 40 NVLink errors while we looked, most on link 7",
        "nvidia-smi nvlink -e -i 2",
        result=Result.WARN,
    ),
    Broken(
        "F05",
        without_module("nvidia_peermem"),
        "1 RDMA adapter, but no way to GPU memory",
        "modprobe nvidia-peermem",
        result=Result.WARN,
        well=several(adapter(), proprietary, module("nvidia_peermem")),
    ),
    Broken(
        "F05",
        proprietary,
        "nvidia_peermem is not loaded",
        "driver.rdma.enabled=true",
        result=Result.WARN,
        well=several(adapter(), without_module("nvidia_peermem")),
    ),
    Broken(
        "F06",
        gone(f"{ADAPTER}/driver"),
        "adapter 0000:18:00.0 has no driver",
        "modprobe mlx5_core",
        result=Result.WARN,
        well=adapter(),
    ),
    Broken(
        "F06",
        gone(f"{ADAPTER}/infiniband"),
        "has no InfiniBand device",
        "modprobe mlx5_ib",
        result=Result.WARN,
        well=adapter(),
    ),
    Broken(
        "F06",
        gone("run/mellanox/drivers/.driver-ready"),
        "driver container is not ready",
        "mofed",
        result=Result.WARN,
        well=several(adapter(), lambda host: host.write("run/mellanox/drivers/.driver-ready", "")),
    ),
    Broken(
        "F07",
        several(gone("proc/1500"), gone("dev/nvidia-caps-imex-channels")),
        "neither nvidia-imex nor an IMEX channel",
        "ComputeDomain",
        result=Result.WARN,
        well=several(GB200, process(1500, "nvidia-imex"), channel),
        node=B200,
    ),
    Broken(
        "F07",
        gone("dev/nvidia-caps-imex-channels"),
        "nvidia-imex runs, but there is no channel",
        "NVreg_CreateImexChannel0=1",
        result=Result.WARN,
        well=several(GB200, process(1500, "nvidia-imex"), channel),
        node=B200,
    ),
    Broken("F08", gone("sys/class/infiniband_mad"), "ib_umad is not loaded", "modprobe ib_umad", node=B200),
    Broken("F08", gone(SUBNET), "subnet manager (nvlsm) does not", "systemctl restart nvidia-fabricmanager", node=B200),
    Broken("F09", view(NVSWITCH_FATAL), "SXid 20034 of NVSwitch 2", "dmesg -T | grep -i sxid"),
)

SHARING: tuple[Broken, ...] = (
    Broken("M01", view({"do": "mig_pending", "gpu": 3}), "GPU 3: MIG mode is to be on", "nvidia-smi --gpu-reset -i 3"),
    Broken(
        "M02",
        labels(mig_config="all-1g.10gb", mig_config_state="failed"),
        "mig.config.state is failed",
        "app=nvidia-mig-manager",
    ),
    Broken("M02", labels(mig_config_state="pending"), "mig.config.state is pending", "10 minutes", result=Result.WARN),
    Broken("M03", idle_instance, "GPU 0: GPU instance 3 has no compute instance", "nvidia-smi mig -cci -i 0", node=MIG),
    Broken(
        "M03",
        labels(mig_config="all-1g.10gb"),
        "2x 3g.40gb, but the label asks for all-1g.10gb",
        "nvidia-mig-parted apply",
        node=MIG | {"gpus": 1},
    ),
    Broken("M03", labels(mig_config="all-disabled"), "asks for all-disabled", "nvidia.com/mig.config", node=MIG),
    Broken(
        "M03",
        lambda host: host.gpu(0, mig=()),
        "GPU 0: MIG is on, but nothing is cut",
        "nvidia-smi mig -lgi",
        result=Result.WARN,
        node=MIG,
    ),
    Broken("M04", labels(mig_strategy="single"), "MIG is off at GPUs 1, 2", "MIG_STRATEGY=mixed", node=MIG),
    Broken(
        "M04",
        labels(mig_strategy="single"),
        "the instances are 1g.10gb and 3g.40gb",
        "mig.strategy=mixed",
        node={"gpus": 1, "mig": {"0": ["3g.40gb", "1g.10gb"]}},
    ),
    Broken(
        "M04",
        labels(gpu_product="NVIDIA-H100-80GB-HBM3-MIG-INVALID"),
        "ends in MIG-INVALID",
        "kubectl get node gpu-node-1",
        node=MIG,
    ),
    Broken(
        "M04",
        labels(mig_strategy="none"),
        "strategy none, but MIG is on at GPU 0",
        "mixed",
        result=Result.WARN,
        node=MIG,
    ),
    Broken(
        "M05",
        gone("proc/1600"),
        "no MPS control daemon runs",
        "mps-control-daemon",
        well=several(
            labels(gpu_sharing__strategy="mps"),
            process(1600, "nvidia-cuda-mps-control"),
            lambda host: host.write("run/nvidia/mps/nvidia.com/gpu/pipe/control", ""),
        ),
        node=T4,
    ),
    Broken(
        "M05",
        gone("run/nvidia/mps/nvidia.com/gpu/pipe/control"),
        "its pipe is not below /run/nvidia/mps",
        "ls -lR /run/nvidia/mps",
        well=several(
            labels(mps_capable="true"),
            process(1600, "nvidia-cuda-mps-control"),
            lambda host: host.write("run/nvidia/mps/nvidia.com/gpu/pipe/control", ""),
        ),
        node=T4,
    ),
    Broken(
        "M06",
        shared(0.4, 0.4, 0.19),
        "GPU 0: 3 sharers hold",
        "fewer replicas",
        result=Result.WARN,
        well=shared(0.3, 0.3),
        node=SLICED,
    ),
)

EXPORTERS: tuple[Broken, ...] = (
    Broken(
        "C01",
        gone("proc/1700"),
        "nvidia-dcgm.service is enabled, but nv-hostengine does not run",
        "systemctl restart nvidia-dcgm",
        result=Result.WARN,
        well=several(
            process(1700, "nv-hostengine"),
            lambda host: host.link("etc/systemd/system/multi-user.target.wants/nvidia-dcgm.service", "/usr/lib/x"),
        ),
        node=T4,
    ),
    Broken(
        "C01",
        pod,
        "pod gpu-operator/nvidia-dcgm-x7k2p",
        "kubectl logs -n gpu-operator nvidia-dcgm-x7k2p",
        result=Result.WARN,
        node=T4,
        passes=False,
    ),
    Broken(
        "C02",
        process(1800, "ncu"),
        "ncu (pid 1800) profiles while nv-hostengine",
        "dcgmi profile --pause",
        result=Result.WARN,
        well=process(1700, "nv-hostengine"),
        node=T4,
    ),
    Broken(
        "C02",
        process(1800, "nsys"),
        "the exporter at port 9400",
        "dcgmi profile --resume",
        result=Result.WARN,
        well=serves(dcgm()),
        node=T4,
    ),
    Broken(
        "C03",
        serves(dcgm(pods=False)),
        "no pod labels, though pods hold GPUs",
        "DCGM_EXPORTER_KUBERNETES=true",
        result=Result.WARN,
        well=several(held, serves(dcgm())),
        node=T4,
    ),
    Broken(
        "C03",
        serves(dcgm(has_gpu_utilization=False)),
        "DCGM_FI_DEV_GPU_UTIL is not on the page",
        "restart its pod",
        result=Result.WARN,
        well=serves(dcgm()),
        node=T4,
    ),
    Broken(
        "C03",
        serves(Exporter(port=9400, status=200)),
        "the page is empty",
        "curl -s -m 10 localhost:9400/metrics",
        result=Result.WARN,
        well=several(process(1900, "dcgm-exporter"), serves(dcgm())),
        node=T4,
    ),
    Broken(
        "C03",
        serves(Exporter(port=9400, error="no whole page in time")),
        "no whole page in time",
        "grep dcgm",
        result=Result.WARN,
        well=several(process(1900, "dcgm-exporter"), serves(dcgm())),
        node=T4,
    ),
    Broken(
        "C04",
        several(process(1900, "dcgm-exporter"), process(1901, "dcgm-exporter")),
        "2 dcgm-exporters run (pids 1900, 1901)",
        "second DaemonSet",
        result=Result.WARN,
        node=T4,
    ),
    Broken(
        "C04",
        serves(dcgm(), Exporter(port=9401, kind="gpuwatch", status=200, families=90, profiling=True)),
        "2 exporters serve DCGM_FI_PROF_*: dcgm-exporter at port 9400, gpuwatch at port 9401",
        "Keep one",
        result=Result.WARN,
        well=serves(dcgm()),
        node=T4,
    ),
)

BROKEN: tuple[Broken, ...] = (*FABRIC, *SHARING, *EXPORTERS)
