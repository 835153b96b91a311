"""Which machine and which boot this is: what the kubelet reports of the same host in `status.nodeInfo`."""

from pathlib import Path

from gpuwatch.model.snapshot import Host

MACHINE_ID = Path("/etc/machine-id")


def boot_id_file(proc: Path) -> Path:
    """The file with the boot's id; not namespaced, so that a container reads the host's."""
    return proc / "sys/kernel/random/boot_id"


def machine(proc: Path, sys: Path, machine_id: Path = MACHINE_ID) -> Host:
    """Read what can be read. `product_uuid` is for root alone; a container's own machine-id is another or empty."""
    return Host(
        boot_id=first_line(boot_id_file(proc)),
        machine_id=first_line(machine_id),
        system_uuid=first_line(sys / "class/dmi/id/product_uuid"),
    )


def first_line(path: Path) -> str | None:
    """A one-line file; None when it is empty or cannot be read."""
    try:
        return path.read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None
