"""Where this node's driver comes from, what loads its modules, and why they are not loaded."""

from typing import NamedTuple

from gpuwatch.diagnose.check import CheckContext
from gpuwatch.diagnose.checks.remedies import KERNEL_LOG
from gpuwatch.diagnose.host.driver_files import DriverRoot
from gpuwatch.diagnose.host.kernel_modules import Kernel

CONTAINER_ROOT = "/run/nvidia/driver"
WORKLOAD = "nvidia.com/gpu.workload.config"
_VGPU_MANAGER = "nvidia_vgpu_vfio"
_CONTAINER_READY = ".driver-ctr-ready"
DRIVER_PODS = "kubectl get pods -A -l app=nvidia-driver-daemonset --field-selector spec.nodeName={node}"
DRIVER_LOGS = "kubectl logs -n gpu-operator -l app=nvidia-driver-daemonset --tail=50"


def driver_roots(context: CheckContext) -> tuple[DriverRoot, ...]:
    """Every driver root that was read."""
    return context.facts.driver_roots or ()


def is_containerised(context: CheckContext) -> bool:
    """Whether a container brings the driver: its root is there; or, on a node with the GPU operator, its mark is there
    or the host has no driver.
    """
    operator, kernel = context.facts.operator, context.facts.kernel
    if any(root.path == CONTAINER_ROOT for root in driver_roots(context)):
        return True
    if operator is None or not operator.present:
        return False
    on_host = bool(driver_roots(context)) or bool(kernel and (kernel.dkms or any((kernel.installed or {}).values())))
    return _CONTAINER_READY in operator.validations or not on_host


def loads_on_first_use(context: CheckContext) -> bool:
    """Whether nvidia-modprobe loads modules and makes device files when a program of this host first uses
    a GPU: nothing has to be there before. On a node of Kubernetes the device plugin has done so long ago.
    """
    has_kubernetes = context.facts.cluster is not None or bool(context.facts.kubelet and context.facts.kubelet.present)
    return not has_kubernetes and any(root.modprobe for root in driver_roots(context))


def reserved_for_vms(context: CheckContext) -> str | None:
    """Why this node needs no driver: the GPU operator's label reserves its GPUs for virtual machines."""
    config = context.facts.node_labels.get(WORKLOAD, "container")
    return f"GPUs are for virtual machines: label {WORKLOAD}={config}" if config.startswith("vm-") else None


def is_vgpu_host(context: CheckContext) -> bool:
    """Whether the driver is NVIDIA's vGPU manager, which provides virtual GPUs and contains no CUDA."""
    kernel = context.facts.kernel
    return kernel is not None and _VGPU_MANAGER in (kernel.modules or {})


def driver_version(context: CheckContext) -> str | None:
    """The version of the loaded module, else of the one that would be loaded; None: unknown."""
    kernel = context.facts.kernel
    if kernel is None:
        return None
    own = kernel.own_module
    return kernel.driver or kernel.module or (own.version if own else None) or next(reversed(kernel.dkms), None)


class NotLoadedReason(NamedTuple):
    """What to append to the message of D01, and the remedy where it differs from that check's."""

    why: str = ""
    remedy: str | None = None
    commands: tuple[str, ...] | None = None


def why_not_loaded(context: CheckContext) -> NotLoadedReason:
    """Why the nvidia module is not loaded, where no check that D01 needs has failed."""
    bus, kernel = context.facts.bus or (), context.facts.kernel or Kernel()
    if bus and all(gpu.driver == "vfio-pci" for gpu in bus):
        return NotLoadedReason(
            ": all GPUs are given to virtual machines (vfio-pci)",
            "Right for a node of virtual machines. For containers, take the GPUs from vfio-pci (vfio-pci.ids on the "
            "kernel command line, driverctl, the operator's label nvidia.com/gpu.workload.config) and load the driver.",
            ("cat /proc/cmdline", "driverctl list-overrides",
             "kubectl get node {node} -L nvidia.com/gpu.workload.config"),
        )  # fmt: skip
    if "nvidia" in (kernel.blacklisted or ()):
        return NotLoadedReason(
            ": it is blacklisted",
            "It is kept out on purpose: take it off the blacklist and load it.",
            ("grep -rE 'nvidia' /etc/modprobe.d /run/modprobe.d /proc/cmdline", "modprobe nvidia"),
        )
    if is_containerised(context):
        pods = (context.facts.cluster.pods or ()) if context.facts.cluster else ()
        waits = next((pod for pod in pods if "nvidia-driver" in (pod.app or "") and not pod.ready), None)
        restarts = f", {waits.restarts} restarts" if waits and waits.restarts else ""
        state = f" (pod {waits.name}: {waits.waiting or 'not ready'}{restarts})" if waits else ""
        return NotLoadedReason(
            f": the driver container has not loaded it{state}",
            "Look at this node's driver pod: it compiles or loads the module and says what it lacks.",
            (DRIVER_PODS, DRIVER_LOGS, KERNEL_LOG),
        )
    is_installed = bool(driver_roots(context)) or bool(kernel.dkms) or kernel.own_module is not None
    if context.facts.driver_roots is not None and kernel.installed is not None and not is_installed:
        return NotLoadedReason(
            ": no NVIDIA driver is installed",
            "Install the driver for data-center GPUs, version 570 or newer, with the open kernel modules where the "
            "GPUs are Turing or newer; or let the GPU operator install it (driver.enabled=true).",
            ("ubuntu-drivers install --gpgpu || dnf install nvidia-open", "modprobe nvidia"),
        )
    return NotLoadedReason()
