"""Which machine and which boot this is: what the kubelet reports of the same host in `status.nodeInfo`."""

import os
from collections.abc import Mapping
from pathlib import Path

from gpuwatch.host.plain_file import text
from gpuwatch.model.snapshot import Host

MACHINE_ID = Path("/etc/machine-id")


def boot_id_file(proc: Path) -> Path:
    """The file with the boot's id; not namespaced, so that a container reads the host's."""
    return proc / "sys/kernel/random/boot_id"


def in_pod(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process runs in a container of Kubernetes: the kubelet tells each where the API server is."""
    return "KUBERNETES_SERVICE_HOST" in environment


def machine(proc: Path, sys: Path, machine_id: Path = MACHINE_ID) -> Host:
    """Read what can be read. `product_uuid` is for root alone; a container's own machine-id is another or empty."""
    return Host(
        boot_id=first_line(boot_id_file(proc)),
        machine_id=first_line(machine_id),
        system_uuid=first_line(sys / "class/dmi/id/product_uuid"),
    )


def first_line(path: Path) -> str | None:
    """A one-line file; None when it is empty or cannot be read."""
    return text(path) or None
