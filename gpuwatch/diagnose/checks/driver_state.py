"""The driver's state: its modules are loaded, its libraries are there, no upgrade runs, the GPUs are bound to it."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.driver_origin import (
    DRIVER_LOGS,
    DRIVER_PODS,
    driver_roots,
    is_vgpu_host,
    loads_on_first_use,
    reserved_for_vms,
    why_not_loaded,
)
from gpuwatch.diagnose.checks.kernel_log import gpu_name, matching_lines, nvml_indexes, nvml_works
from gpuwatch.diagnose.checks.remedies import DRAIN, KERNEL_LOG, REBOOT
from gpuwatch.diagnose.host.kernel_modules import Kernel
from gpuwatch.diagnose.model import CheckStage

UPGRADE_LABEL = "nvidia.com/gpu-driver-upgrade-state"
_FAILED_UPGRADE = (
    "Look at the driver pod and the validator on this node. When they are healthy, set the label to upgrade-required: "
    "the operator tries again."
)
_TRY_AGAIN = (DRIVER_PODS, DRIVER_LOGS, f"kubectl label node {{node}} --overwrite {UPGRADE_LABEL}=upgrade-required")
_AT_REST = frozenset({"", "upgrade-done", "upgrade-required"})
VGPU_MANAGER = "the vGPU manager is loaded: it hands out virtual GPUs and brings no CUDA"
_NVML, _CUDA = "libnvidia-ml.so.1", "libcuda.so.1"
_REFUSED = (r"NVRM: The NVIDIA probe routine ", r"NVRM: No NVIDIA (?:GPU|graphics adapter|devices)",
            r"NVRM: None of the NVIDIA devices", r"nvidia: Unknown symbol")  # fmt: skip


def check_loaded(context: CheckContext) -> CheckVerdict:
    kernel = context.facts.kernel or Kernel()
    if kernel.is_loaded:
        known = (kernel.driver or kernel.module, kernel.flavor and f"{kernel.flavor} modules")
        return passed(", ".join(filter(None, known)) or "loaded")
    if nvml_works(context):
        return skipped("NVML works without it, as in WSL")
    if reason := reserved_for_vms(context):
        return skipped(reason)
    refused = next(matching_lines(context, *_REFUSED), None)
    why, remedy, commands = why_not_loaded(context)
    evidence = {"kernel log": refused.text} if refused else {}
    return failed(f"the nvidia module is not loaded{why}", evidence, remedy=remedy, commands=commands)


def check_unified_memory(context: CheckContext) -> CheckVerdict:
    kernel, nodes = context.facts.kernel or Kernel(), context.facts.nodes
    if kernel.modules is None and nodes is None:
        return skipped("not read: neither /proc/modules nor /proc/devices")
    if "nvidia_uvm" in (kernel.modules or {}) or (nodes and "nvidia-uvm" in nodes.majors):
        return passed("loaded")
    if is_vgpu_host(context):
        return skipped(VGPU_MANAGER)
    if loads_on_first_use(context):
        return passed("not loaded yet: nvidia-modprobe does that when the first CUDA program starts")
    return failed("nvidia_uvm is not loaded: CUDA fails to start (999, unknown error)")


def check_root(context: CheckContext) -> CheckVerdict:
    found = [root.path for root in driver_roots(context) if _NVML in root.libraries]
    if found:
        return passed(", ".join(found))
    if nvml_works(context):
        return skipped("NVML works: its library is in a place unknown here")
    if reason := reserved_for_vms(context):
        return skipped(reason)
    if not driver_roots(context):
        return failed("the driver's libraries are nowhere: neither on the host nor below /run/nvidia/driver")
    evidence = {root.path: ", ".join(root.libraries) or "nvidia-smi" for root in driver_roots(context)}
    return failed(f"{_NVML} missing in {driver_roots(context)[0].path}", evidence)


def check_cuda(context: CheckContext) -> CheckVerdict:
    found = [root.path for root in driver_roots(context) if _CUDA in root.libraries]
    if found:
        return passed(", ".join(found))
    places = [root.path for root in driver_roots(context) if _NVML in root.libraries]
    if not places or is_vgpu_host(context):
        return skipped(VGPU_MANAGER if places else "not known: where the driver's libraries are")
    return failed(f"{_CUDA} missing in {places[0]}: CUDA programs cannot start")


def check_operator_ready(context: CheckContext) -> CheckVerdict:
    operator = context.facts.operator
    if operator is None or not operator.present:
        return skipped("no GPU operator on this node")
    if reason := reserved_for_vms(context):
        return skipped(reason)
    if "driver-ready" in operator.validations:
        return passed("driver-ready")
    return failed(
        "the GPU operator has not validated the driver: no /run/nvidia/validations/driver-ready",
        {"validations": ", ".join(sorted(operator.validations)) or "none"},
    )


def check_upgrade(context: CheckContext) -> CheckVerdict:
    labels = context.facts.node_labels
    state, kernel = labels.get(UPGRADE_LABEL), context.facts.kernel
    if state is None:
        return skipped("the GPU operator upgrades no driver here")
    evidence = {UPGRADE_LABEL: state}
    is_up = kernel is None or kernel.is_loaded
    if state == "upgrade-failed":
        answer = warned if is_up else failed
        return answer("the driver upgrade failed", evidence, remedy=_FAILED_UPGRADE, commands=_TRY_AGAIN)
    if state in _AT_REST:
        return passed(state or "none")
    if not is_up:
        return failed(f"the driver is being upgraded ({state})", evidence)
    return warned(f"a driver upgrade is under way ({state})", evidence)


def check_bound(context: CheckContext) -> CheckVerdict:
    bus = context.facts.bus or ()
    loose = tuple(gpu for gpu in bus if gpu.driver is None)
    given = tuple(gpu for gpu in bus if gpu.driver not in (None, "nvidia"))
    if not loose and (reason := reserved_for_vms(context)):
        return skipped(reason)
    evidence = {gpu.address: f"bound to {gpu.driver}" if gpu.driver else "bound to no driver" for gpu in loose + given}
    if loose:
        return failed(f"{gpu_name(context, loose[0])}: no driver is bound", evidence, gpus=nvml_indexes(context, loose))
    if given:
        return warned(
            f"{len(given)} of {len(bus)} GPUs belong to {given[0].driver}",
            evidence,
            gpus=nvml_indexes(context, given),
            remedy="Right if these are for virtual machines; else take them from that driver.",
            commands=("lspci -nnk -d 10de:",),
        )
    return passed(f"{len(bus)} of {len(bus)}")


STATE: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "D01", CheckStage.DRIVER, "the nvidia module is loaded",
        how="/proc/driver/nvidia/version, /proc/modules, /sys/module/nvidia",
        remedy="The module is installed and could be loaded. Load it and read the kernel log; if that works, find out "
        "what should do it at boot (nvidia-persistenced, systemd-modules-load).",
        commands=("modprobe nvidia", KERNEL_LOG),
        judge=check_loaded, needs=("H01", "H07", "H08", "H09", "D06", "D07", "D08"), reads=("kernel",),
    ),
    DiagnosticCheck(
        "D02", CheckStage.DRIVER, "the nvidia_uvm module is loaded",
        how="/proc/modules, /proc/devices",
        remedy="Load it, make its device files, and load it at boot. With the GPU operator: delete this node's driver "
        "pod.",
        commands=("nvidia-modprobe -u -c=0 || modprobe nvidia-uvm",
                  "echo nvidia-uvm > /etc/modules-load.d/nvidia-uvm.conf"),
        judge=check_unified_memory, needs=("D01",), reads=("kernel",),
    ),
    DiagnosticCheck(
        "D04", CheckStage.DRIVER, "the driver's libraries are installed",
        how="libnvidia-ml.so.1 below /, /run/nvidia/driver and where cloud images keep them",
        remedy="Install the driver's user space in the kernel module's version (Ubuntu: "
        "libnvidia-compute-BRANCH-server; RHEL: nvidia-driver-cuda), then ldconfig. With the GPU operator: "
        "look at the driver pod, whose root is /run/nvidia/driver.",
        commands=("cat /proc/driver/nvidia/version", "ls /usr/lib*/*/libnvidia-ml.so* /run/nvidia/driver", DRIVER_PODS),
        judge=check_root, needs=("D01",), reads=("driver_roots",),
    ),
    DiagnosticCheck(
        "D11", CheckStage.DRIVER, "CUDA's driver library is installed",
        how="libcuda.so.1 beside libnvidia-ml.so.1",
        remedy="The driver's user space is incomplete. Install the rest in the same version (Ubuntu: "
        "libnvidia-compute-BRANCH-server; RHEL: nvidia-driver-cuda), then ldconfig.",
        commands=("ls /usr/lib*/*/libcuda.so* /usr/lib64/libcuda.so*", "ldconfig -p | grep libcuda"),
        judge=check_cuda, needs=("D01", "D04"), reads=("driver_roots",),
    ),
    DiagnosticCheck(
        "D05", CheckStage.DRIVER, "the GPU operator has validated the driver",
        how="/run/nvidia/validations/driver-ready",
        remedy="Toolkit, device plugin and the operator's other parts wait for this. Look at the init container "
        "driver-validation of this node's operator-validator pod, then at the driver pod.",
        commands=("kubectl get pods -n gpu-operator --field-selector spec.nodeName={node}",
                  "kubectl logs -n gpu-operator -l app=nvidia-operator-validator -c driver-validation --tail=50",
                  DRIVER_LOGS),
        judge=check_operator_ready, needs=("D01", "D02", "D03", "D04"), reads=("operator",),
    ),
    DiagnosticCheck(
        "D08", CheckStage.DRIVER, "no driver upgrade is under way",
        how=f"the Node's label {UPGRADE_LABEL}",
        remedy="Wait: the operator drains the node, changes the driver and releases the node. If nothing changes for "
        "half an hour, see which pod it waits for.",
        commands=(f"kubectl get node {{node}} -L {UPGRADE_LABEL}",
                  DRIVER_PODS,
                  "kubectl logs -n gpu-operator deploy/gpu-operator --tail=50"),
        judge=check_upgrade, reads=("cluster",),
    ),
    DiagnosticCheck(
        "D10", CheckStage.DRIVER, "every GPU is bound to the nvidia driver",
        how="the link `driver` of each GPU in /sys/bus/pci/devices",
        remedy="The kernel log says why the driver refused this GPU (probe failed, BAR not assigned, not supported). "
        "Bind it by hand once; if that fails, drain the node and power it off and on.",
        commands=(KERNEL_LOG, "lspci -nnk -d 10de:", DRAIN, REBOOT),
        judge=check_bound, needs=("H03", "H07", "D01"), reads=("bus",), each=True,
    ),
)  # fmt: skip
