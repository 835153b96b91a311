"""GPUs cut or shared: MIG, MPS, time-slicing."""

from gpuwatch.diagnose.check import DiagnosticCheck
from gpuwatch.diagnose.checks.remedies import DRAIN, RESET
from gpuwatch.diagnose.checks.sharing.mig import configuration, instances, pending, strategy
from gpuwatch.diagnose.checks.sharing.slots import mps, oversubscription
from gpuwatch.diagnose.model import CheckStage

MIG_MANAGER = "kubectl get pods -A -l app=nvidia-mig-manager --field-selector spec.nodeName={node}"
MPS_DAEMON = "kubectl get pods -A -o wide --field-selector spec.nodeName={node} | grep mps-control-daemon"

SHARING: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "M01",
        CheckStage.SHARING,
        "no change of MIG mode waits for a reset",
        "nvmlDeviceGetMigMode: current and pending; finding mig_pending",
        "GPU 3: MIG mode is to be on after the next reset",
        "The mode changes only when the GPU is reset while nobody has it open. Drain the node, stop DCGM, "
        "nvidia-persistenced and the pods of device plugin and exporters, then reset; in a virtual machine reboot. To "
        "stay as it is instead, set the mode back: nvidia-smi -i {gpu} -mig 0 (or 1). With the GPU operator, leave it "
        "to mig-manager: set the label nvidia.com/mig.config.",
        pending,
        needs=("N04",),
        reads=("view",),
        commands=(DRAIN, RESET, "nvidia-smi -i {gpu} --query-gpu=mig.mode.current,mig.mode.pending --format=csv"),
        each=True,
    ),
    DiagnosticCheck(
        "M02",
        CheckStage.SHARING,
        "mig-manager has done what the label asks for",
        "node label nvidia.com/mig.config.state",
        "mig.config.state is failed (mig.config: all-1g.10gb)",
        "Read mig-manager's log: most often somebody had a GPU open, or the ConfigMap has no such configuration. Mend "
        "it, then have it try again: set the label nvidia.com/mig.config to another configuration and back.",
        configuration,
        needs=("N02",),
        reads=("cluster",),
        commands=(
            MIG_MANAGER,
            "kubectl logs -n gpu-operator -l app=nvidia-mig-manager --tail=50",
            "nvidia-smi",
        ),
    ),
    DiagnosticCheck(
        "M03",
        CheckStage.SHARING,
        "MIG instances are whole, and those the label asks for",
        "MIG devices by NVML; GPU instances of /proc/driver/nvidia/capabilities; node label nvidia.com/mig.config",
        "GPU 0: GPU instance 2 has no compute instance | GPU 3: 2x 3g.40gb, but the label asks for all-1g.10gb",
        "Somebody cut by hand, or cutting was broken off. Nobody can be given what is missing. When no work is left on "
        "the GPU, cut it anew: with the GPU operator set the label nvidia.com/mig.config to another configuration and "
        "back; without it nvidia-mig-parted apply, or nvidia-smi mig -cci for a GPU instance without compute "
        "instance. Then restart the device plugin.",
        instances,
        needs=("N04", "M01", "M02"),
        reads=("view",),
        commands=("nvidia-smi mig -lgi", "nvidia-smi mig -lci", "nvidia-smi mig -cci -i {gpu}"),
        each=True,
    ),
    DiagnosticCheck(
        "M04",
        CheckStage.SHARING,
        "the MIG strategy fits how GPUs are cut",
        "node label nvidia.com/mig.strategy, else MIG_STRATEGY of the device plugin, against the MIG devices; "
        "nvidia.com/gpu.product ending in MIG-INVALID",
        "strategy single, but the instances are 1g.10gb and 3g.40gb",
        "With the strategy single every GPU of the node must be cut, and all into the same profile: else the device "
        "plugin advertises nothing. Take the strategy mixed (GPU operator: mig.strategy=mixed of the ClusterPolicy; "
        "device plugin: MIG_STRATEGY=mixed), or cut all GPUs alike by the label nvidia.com/mig.config.",
        strategy,
        needs=("N02", "M01", "M02"),
        reads=("view", "cluster"),
        commands=(
            "nvidia-smi -L",
            "kubectl get node {node} -L nvidia.com/mig.strategy,nvidia.com/gpu.product,nvidia.com/mig.config",
        ),
    ),
    DiagnosticCheck(
        "M05",
        CheckStage.SHARING,
        "the MPS control daemon runs where GPUs are shared by MPS",
        "node labels nvidia.com/gpu.sharing-strategy and nvidia.com/mps.capable; the process nvidia-cuda-mps-control; "
        "its pipe below /run/nvidia/mps",
        "GPUs are advertised as shared by MPS, but no MPS control daemon runs",
        "Pods that get such a slot fail in cuInit, or wait. Look at the device plugin's MPS control daemon of this "
        "node and restart it, then the device plugin. It runs only on nodes with the label "
        "nvidia.com/mps.capable=true, and not together with MIG.",
        mps,
        needs=("D01",),
        reads=("services",),
        commands=(MPS_DAEMON, "ls -lR /run/nvidia/mps"),
    ),
    DiagnosticCheck(
        "M06",
        CheckStage.SHARING,
        "the memory of time-sliced GPUs is enough for those who share it",
        "memory in use against the total of GPUs that several workloads hold",
        "GPU 0: 3 sharers hold 44.1 of 44.4 GiB",
        "Time-slicing does not divide memory: the next allocation of any of them ends in out of memory. Give the GPU "
        "fewer replicas in the device plugin's configuration, let one of them go elsewhere, or let each limit itself "
        "(for PyTorch: torch.cuda.set_per_process_memory_fraction). MIG or MPS divide memory.",
        oversubscription,
        needs=("N04",),
        reads=("view",),
        commands=("gpuwatch get processes", "nvidia-smi"),
        each=True,
    ),
)
