"""What people call the parts of a node that a diagnosis could not see; documents keep the names of the sections."""

from collections.abc import Collection

from gpuwatch.diagnose.facts import HOST_SECTIONS

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


def called(sections: Collection[str]) -> str:
    """These sections for people: all files of the host are one thing."""
    whole = HOST_SECTIONS if set(HOST_SECTIONS) <= set(sections) else ()
    parts = [SECTIONS.get(section, section) for section in sections if section not in whole]
    return ", ".join(["everything of the host", *parts] if whole else parts)
