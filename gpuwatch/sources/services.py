"""The daemons around the GPUs: which of them run, and where they listen."""

from pathlib import Path

from gpuwatch.model.snapshot import Record


class ServiceProcess(Record, frozen=True, kw_only=True):
    """One running process of a name that matters, `nv-fabricmanager` for one."""

    pid: int
    name: str


class Services(Record, frozen=True, kw_only=True):
    """`ports`: TCP ports somebody listens on; `sockets`: paths that exist of those that matter; `fabric_manager`: the
    version that its log or its package tells.
    """

    processes: tuple[ServiceProcess, ...] = ()
    ports: tuple[int, ...] = ()
    sockets: tuple[str, ...] = ()
    fabric_manager: str | None = None
    switches: int | None = None  # NVSwitches on the PCI bus

    def runs(self, name: str) -> bool:
        """Whether a process of this name runs; names are as long as the kernel keeps them (15 bytes)."""
        return any(process.name == name[:15] for process in self.processes)


def services(root: Path, proc: Path, sys: Path) -> Services:
    """Read what can be read. Raises OSError where `proc` cannot be listed."""
    return Services()
