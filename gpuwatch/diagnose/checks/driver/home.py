"""Where this node's driver comes from, and who loads its modules and makes its device files."""

from gpuwatch.diagnose.check import Case
from gpuwatch.diagnose.host.driver_root import DriverRoot

CONTAINER_ROOT = "/run/nvidia/driver"
WORKLOAD = "nvidia.com/gpu.workload.config"
_VGPU_MANAGER = "nvidia_vgpu_vfio"
_CONTAINER_READY = ".driver-ctr-ready"
DRIVER_PODS = "kubectl get pods -A -l app=nvidia-driver-daemonset --field-selector spec.nodeName={node}"
DRIVER_LOGS = "kubectl logs -n gpu-operator -l app=nvidia-driver-daemonset --tail=50"


def roots(case: Case) -> tuple[DriverRoot, ...]:
    """Every driver root that was seen."""
    return case.facts.driver_roots or ()


def is_containerised(case: Case) -> bool:
    """Whether the driver comes with a container: it has left its root or its mark, or else nothing lies on a host where
    the GPU operator is.
    """
    operator, kernel = case.facts.operator, case.facts.kernel
    if any(root.path == CONTAINER_ROOT for root in roots(case)):
        return True
    if operator is None or not operator.present:
        return False
    on_host = bool(roots(case)) or bool(kernel and (kernel.dkms or any((kernel.installed or {}).values())))
    return _CONTAINER_READY in operator.validations or not on_host


def is_installed(case: Case) -> bool | None:
    """Whether anything of a driver lies on the disk; None: the disk cannot be seen."""
    kernel = case.facts.kernel
    if case.facts.driver_roots is None or kernel is None or kernel.installed is None:
        return None
    return bool(roots(case)) or bool(kernel.dkms) or kernel.own_module is not None


def is_made_at_first_use(case: Case) -> bool:
    """Whether nvidia-modprobe loads modules and makes device files when a program of this host first asks: nothing has
    to be there before. On a node of Kubernetes the device plugin has asked long ago.
    """
    has_kubernetes = case.facts.cluster is not None or bool(case.facts.kubelet and case.facts.kubelet.present)
    return not has_kubernetes and any(root.modprobe for root in roots(case))


def for_machines(case: Case) -> str | None:
    """Why this node needs no driver: the GPU operator's label gives its GPUs to virtual machines."""
    labels = case.facts.cluster.node.labels if case.facts.cluster else {}
    config = labels.get(WORKLOAD, "container")
    return f"GPUs are for virtual machines: label {WORKLOAD}={config}" if config.startswith("vm-") else None


def cuts_gpus(case: Case) -> bool:
    """Whether the driver is NVIDIA's vGPU manager, which hands out virtual GPUs and brings no CUDA."""
    kernel = case.facts.kernel
    return kernel is not None and _VGPU_MANAGER in (kernel.modules or {})


def driver_version(case: Case) -> str | None:
    """Of the loaded module, else of the one that would be loaded."""
    kernel = case.facts.kernel
    if kernel is None:
        return None
    own = kernel.own_module
    return kernel.driver or kernel.module or (own.version if own else None) or next(reversed(kernel.dkms), None)
