"""Why the nvidia module is not loaded, where it is nobody's failure further up."""

from typing import NamedTuple

from gpuwatch.diagnose.check import CheckContext
from gpuwatch.diagnose.checks.driver.home import DRIVER_LOGS, DRIVER_PODS, is_containerised, is_installed
from gpuwatch.diagnose.checks.remedies import KERNEL_LOG
from gpuwatch.diagnose.host.kernel_modules import Kernel


class Absence(NamedTuple):
    """A few words, and what to do if it is not what the check says anyhow."""

    why: str = ""
    remedy: str | None = None
    commands: tuple[str, ...] | None = None


def _of_its_pod(context: CheckContext) -> str:
    """What the driver's pod on this node says of itself."""
    pods = (context.facts.cluster.pods or ()) if context.facts.cluster else ()
    waits = next((pod for pod in pods if "nvidia-driver" in (pod.app or "") and not pod.ready), None)
    if waits is None:
        return ""
    restarts = f", {waits.restarts} restarts" if waits.restarts else ""
    return f" (pod {waits.name}: {waits.waiting or 'not ready'}{restarts})"


def why_not_loaded(context: CheckContext) -> Absence:
    """What is known of it."""
    bus, kernel = context.facts.bus or (), context.facts.kernel or Kernel()
    if bus and all(gpu.driver == "vfio-pci" for gpu in bus):
        return Absence(
            ": all GPUs are given to virtual machines (vfio-pci)",
            "Right for a node of virtual machines. For containers, take the GPUs from vfio-pci (vfio-pci.ids on the "
            "kernel command line, driverctl, the operator's label nvidia.com/gpu.workload.config) and load the driver.",
            ("cat /proc/cmdline", "driverctl list-overrides",
             "kubectl get node {node} -L nvidia.com/gpu.workload.config"),
        )  # fmt: skip
    if "nvidia" in (kernel.blacklisted or ()):
        return Absence(
            ": it is blacklisted",
            "Somebody keeps it out on purpose: take it off the blacklist and load it.",
            ("grep -rE 'nvidia' /etc/modprobe.d /run/modprobe.d /proc/cmdline", "modprobe nvidia"),
        )
    if is_containerised(context):
        return Absence(
            f": the driver container has not loaded it{_of_its_pod(context)}",
            "Look at this node's driver pod: it compiles or loads the module and says what it lacks.",
            (DRIVER_PODS, DRIVER_LOGS, KERNEL_LOG),
        )
    if is_installed(context) is False:
        return Absence(
            ": no NVIDIA driver is installed",
            "Install the driver for data-center GPUs, version 570 or newer, with the open kernel modules where the "
            "GPUs are Turing or newer; or let the GPU operator install it (driver.enabled=true).",
            ("ubuntu-drivers install --gpgpu || dnf install nvidia-open", "modprobe nvidia"),
        )
    return Absence()
