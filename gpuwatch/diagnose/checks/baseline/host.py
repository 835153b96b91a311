"""What is around the GPUs: versions of the host's programs, and how fast data moves, as a site expects them."""

from gpuwatch.diagnose.check import DiagnosticCheck, warned
from gpuwatch.diagnose.checks.baseline.compare import Held, is_version, of_copies, of_node, row, toolkit

HOST_AND_WORK: tuple[DiagnosticCheck, ...] = (
    row(
        "B14",
        "the kernel is of the expected version",
        "/proc/sys/kernel/osrelease begins with `kernel`",
        "kernel 5.15.0-113-generic, expected 6.8",
        "The node was updated too early or too late. A kernel needs a driver module built for it: change both.",
        of_node(
            warned,
            Held("kernel", lambda facts: facts.kernel.release if facts.kernel else None, is_version, name="kernel"),
        ),
        reads=("kernel",),
        needs=(),
        commands=("uname -r",),
    ),
    row(
        "B15",
        "the container toolkit is of the expected version",
        "version of nvidia-ctk or nvidia-container-runtime begins with `container_toolkit`",
        "container toolkit 1.14.6, expected 1.17",
        "Update the package nvidia-container-toolkit, or the GPU operator that brings it, and restart the container "
        "runtime on a drained node.",
        of_node(warned, Held("container_toolkit", toolkit, is_version, name="container toolkit")),
        reads=("runtime",),
        needs=(),
        commands=("nvidia-ctk --version",),
    ),
    row(
        "B16",
        "the fabric manager is of the expected version",
        "its log or package against `fabric_manager`",
        "fabric manager 550.54.15, expected 570.86",
        "Fabric manager and driver must be of the same version: install the one that fits the driver, then restart "
        "nvidia-fabricmanager on a drained node.",
        of_node(
            warned,
            Held(
                "fabric_manager",
                lambda facts: facts.services.fabric_manager if facts.services else None,
                is_version,
                name="fabric manager",
            ),
        ),
        reads=("services",),
        needs=(),
        commands=("nv-fabricmanager --version", "systemctl status nvidia-fabricmanager"),
    ),
    row(
        "B17",
        "data moves as fast as expected",
        "the copies of the active checks against `host_to_device`, `device_to_host`, `peer_bandwidth`",
        "GPU 3: 6.1 GB/s from host to device, expected 20 GB/s from host to device",
        "Look at width and speed of the PCIe link, at the NUMA node the copy ran on, and at the NVLinks for copies "
        "between GPUs; then measure again on an idle node.",
        of_copies,
        reads=("active",),
        needs=("N02", "X01", "X02"),
        level="full",
        active=True,
        commands=("gpuwatch diagnose --stage host --stage fabric --gpu {gpu}", "nvidia-smi topo -m"),
    ),
)
