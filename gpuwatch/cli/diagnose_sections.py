"""What people call the parts of a node that a diagnosis could not see; documents keep the names of the sections."""

SECTIONS: dict[str, str] = {
    "bus": "the PCI bus",
    "kernel": "the kernel and its modules",
    "kernel_log": "the kernel log",
    "nodes": "device files in /dev",
    "driver_roots": "the driver's libraries and programs",
    "limits": "limits of processes and shared memory",
    "operator": "the GPU operator's files",
    "services": "services that run",
    "runtime": "the container runtime's configuration",
    "cdi": "CDI specifications",
    "kubelet": "the kubelet's files and socket",
    "record": "gpuwatch's record of its settings",
    "tuner": "the tuner's sign of life",
    "view": "the GPUs (NVML)",
    "earlier": "the GPUs, an earlier look",
    "cluster": "the Kubernetes API",
    "exporters": "other exporters",
    "active": "work on the GPUs",
    "agent": "the agent of this node",
}
"""Section -> as the screen calls it."""
