"""Where this node's driver comes from, and who loads its modules and makes its device files."""

from gpuwatch.diagnose.check import CheckContext
from gpuwatch.diagnose.host.driver_root import DriverRoot

CONTAINER_ROOT = "/run/nvidia/driver"
WORKLOAD = "nvidia.com/gpu.workload.config"
_VGPU_MANAGER = "nvidia_vgpu_vfio"
_CONTAINER_READY = ".driver-ctr-ready"
DRIVER_PODS = "kubectl get pods -A -l app=nvidia-driver-daemonset --field-selector spec.nodeName={node}"
DRIVER_LOGS = "kubectl logs -n gpu-operator -l app=nvidia-driver-daemonset --tail=50"


def roots(context: CheckContext) -> tuple[DriverRoot, ...]:
    """Every driver root that was seen."""
    return context.facts.driver_roots or ()


def is_containerised(context: CheckContext) -> bool:
    """Whether the driver comes with a container: it has left its root or its mark, or else nothing lies on a host where
    the GPU operator is.
    """
    operator, kernel = context.facts.operator, context.facts.kernel
    if any(root.path == CONTAINER_ROOT for root in roots(context)):
        return True
    if operator is None or not operator.present:
        return False
    on_host = bool(roots(context)) or bool(kernel and (kernel.dkms or any((kernel.installed or {}).values())))
    return _CONTAINER_READY in operator.validations or not on_host


def is_installed(context: CheckContext) -> bool | None:
    """Whether anything of a driver lies on the disk; None: the disk cannot be seen."""
    kernel = context.facts.kernel
    if context.facts.driver_roots is None or kernel is None or kernel.installed is None:
        return None
    return bool(roots(context)) or bool(kernel.dkms) or kernel.own_module is not None


def is_made_at_first_use(context: CheckContext) -> bool:
    """Whether nvidia-modprobe loads modules and makes device files when a program of this host first asks: nothing has
    to be there before. On a node of Kubernetes the device plugin has asked long ago.
    """
    has_kubernetes = context.facts.cluster is not None or bool(context.facts.kubelet and context.facts.kubelet.present)
    return not has_kubernetes and any(root.modprobe for root in roots(context))


def for_machines(context: CheckContext) -> str | None:
    """Why this node needs no driver: the GPU operator's label gives its GPUs to virtual machines."""
    labels = context.facts.cluster.node.labels if context.facts.cluster else {}
    config = labels.get(WORKLOAD, "container")
    return f"GPUs are for virtual machines: label {WORKLOAD}={config}" if config.startswith("vm-") else None


def cuts_gpus(context: CheckContext) -> bool:
    """Whether the driver is NVIDIA's vGPU manager, which hands out virtual GPUs and brings no CUDA."""
    kernel = context.facts.kernel
    return kernel is not None and _VGPU_MANAGER in (kernel.modules or {})


def driver_version(context: CheckContext) -> str | None:
    """Of the loaded module, else of the one that would be loaded."""
    kernel = context.facts.kernel
    if kernel is None:
        return None
    own = kernel.own_module
    return kernel.driver or kernel.module or (own.version if own else None) or next(reversed(kernel.dkms), None)
