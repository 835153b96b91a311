"""Hosts on which checks fail: exporters."""

from collections.abc import Callable
from typing import Any

import msgspec

from gpuwatch.diagnose.host.exporters import Exporter
from gpuwatch.diagnose.model import CheckStatus, NodePod
from tests.diagnose.changes import gone, process, several
from tests.diagnose.checks.broken import Broken
from tests.diagnose.hosts import Host, seen

T4 = {"model": "t4", "gpus": 2}


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


EXPORTERS: tuple[Broken, ...] = (
    Broken(
        "C01",
        gone("proc/1700"),
        "nvidia-dcgm.service is enabled, but nv-hostengine does not run",
        "systemctl restart nvidia-dcgm",
        result=CheckStatus.WARN,
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
        result=CheckStatus.WARN,
        node=T4,
        passes=False,
    ),
    Broken(
        "C02",
        process(1800, "ncu"),
        "ncu (pid 1800) profiles while nv-hostengine",
        "dcgmi profile --pause",
        result=CheckStatus.WARN,
        well=process(1700, "nv-hostengine"),
        node=T4,
    ),
    Broken(
        "C02",
        process(1800, "nsys"),
        "the exporter at port 9400",
        "dcgmi profile --resume",
        result=CheckStatus.WARN,
        well=serves(dcgm()),
        node=T4,
    ),
    Broken(
        "C03",
        serves(dcgm(pods=False)),
        "no pod labels, though pods hold GPUs",
        "DCGM_EXPORTER_KUBERNETES=true",
        result=CheckStatus.WARN,
        well=several(held, serves(dcgm())),
        node=T4,
    ),
    Broken(
        "C03",
        serves(dcgm(has_gpu_utilization=False, profiling=False)),
        "neither DCGM_FI_DEV_GPU_UTIL nor profiling counters",
        "restart its pod",
        result=CheckStatus.WARN,
        well=serves(dcgm()),
        node=T4,
    ),
    Broken(
        "C03",
        serves(Exporter(port=9400, status=200)),
        "the page is empty",
        "curl -s -m 10 localhost:9400/metrics",
        result=CheckStatus.WARN,
        well=several(process(1900, "dcgm-exporter"), serves(dcgm())),
        node=T4,
    ),
    Broken(
        "C03",
        serves(Exporter(port=9400, error="no whole page in time")),
        "no whole page in time",
        "grep dcgm",
        result=CheckStatus.WARN,
        well=several(process(1900, "dcgm-exporter"), serves(dcgm())),
        node=T4,
    ),
    Broken(
        "C04",
        several(process(1900, "dcgm-exporter"), process(1901, "dcgm-exporter")),
        "2 dcgm-exporters run (pids 1900, 1901)",
        "second DaemonSet",
        result=CheckStatus.WARN,
        node=T4,
    ),
    Broken(
        "C04",
        serves(dcgm(), Exporter(port=9401, kind="gpuwatch", status=200, families=90, profiling=True)),
        "2 exporters serve DCGM_FI_PROF_*: dcgm-exporter at port 9400, gpuwatch at port 9401",
        "Keep one",
        result=CheckStatus.WARN,
        well=serves(dcgm()),
        node=T4,
    ),
)
