"""Hosts on which checks fail: sharing."""

from collections.abc import Callable

from gpuwatch.diagnose.model import CheckStatus
from tests.diagnose.changes import gone, labels, process, several, view
from tests.diagnose.checks.broken import Broken
from tests.diagnose.hosts import Host, seen

MIG = {"mig": {"0": ["3g.40gb", "3g.40gb"]}}
SLICED = {"model": "l40s", "gpus": 2, "replicas": 4}
T4 = {"model": "t4", "gpus": 2}


def shared(*memory: float) -> Callable[[Host], None]:
    """Pods that use so much of GPU 0 each."""
    pods = [{"name": f"ml/infer-{i}", "gpus": [f"0::{i}"], "memory": share} for i, share in enumerate(memory)]

    def change(host: Host) -> None:
        host.view = seen(workloads=pods, **SLICED)

    return change


def idle_instance(host: Host) -> None:
    """GPU instance 3 has lost its compute instance."""
    host.write("proc/driver/nvidia/capabilities/gpu0/mig/gi3/access", "DeviceFileMinor: 30\nDeviceFileMode: 292\n")


SHARING: tuple[Broken, ...] = (
    Broken("M01", view({"do": "mig_pending", "gpu": 3}), "GPU 3: MIG mode is to be on", "nvidia-smi --gpu-reset -i 3"),
    Broken(
        "M02",
        labels(mig_config="all-1g.10gb", mig_config_state="failed"),
        "mig.config.state is failed",
        "app=nvidia-mig-manager",
    ),
    Broken(
        "M02", labels(mig_config_state="pending"), "mig.config.state is pending", "10 minutes", result=CheckStatus.WARN
    ),
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
        result=CheckStatus.WARN,
        node=MIG,
    ),
    Broken("M04", labels(mig_strategy="single"), "MIG is off at GPUs 1-7", "MIG_STRATEGY=mixed", node=MIG),
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
        result=CheckStatus.WARN,
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
        result=CheckStatus.WARN,
        well=shared(0.3, 0.3),
        node=SLICED,
    ),
)
