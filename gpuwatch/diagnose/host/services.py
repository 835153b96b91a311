"""The daemons around the GPUs: which of them run, and where they listen; with the switches and adapters they serve."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from gpuwatch.diagnose.host.fabric_devices import Adapter, adapters, nvswitches, user_mad
from gpuwatch.diagnose.host.fabric_manager import FabricManager, fabric_manager
from gpuwatch.host.plain_file import plain, text
from gpuwatch.model.snapshot import Record

NAMES = (
    "nv-fabricmanager", "nvlsm", "nvidia-imex", "nvidia-persistenced", "nvidia-cuda-mps-control", "mps-control-daemon",
    "nv-hostengine", "dcgm-exporter", "nvidia-device-plugin", "gpu-feature-discovery",
    "kubelet", "containerd", "crio", "dockerd", "ncu", "nsys", "nsys-launcher", "nvprof",
)  # fmt: skip
"""Processes that matter, by name."""

SOCKETS = (
    "run/nvidia-persistenced/socket",
    "run/nvidia-fabricmanager/socket",
    "run/nvidia/mps/*/pipe/control",
    "run/nvidia/mps/*/*/pipe/control",
    "tmp/nvidia-mps/control",
)
"""Where they listen, below the root; the MPS daemon of the device plugin has a folder per resource."""

UNITS = (
    "nvidia-fabricmanager.service",
    "nvidia-persistenced.service",
    "nvidia-imex.service",
    "nvidia-dcgm.service",
    "dcgm.service",
)

_KERNEL_LENGTH = 15
"""Bytes of a name that the kernel keeps (proc_pid_comm(5))."""
_MOST_LINES = 20_000
"""Of a table of sockets; those that listen come first."""
_LISTENING = "0A"


class ServiceProcess(Record, frozen=True, kw_only=True):
    """One running process of a name that matters; the kernel keeps 15 bytes of it. `state`: a letter of
    proc_pid_stat(5); D waits in the kernel, for a driver most often.
    """

    pid: int
    name: str
    state: str | None = None


class Services(Record, frozen=True, kw_only=True):
    """None: cannot be seen from here. `ports`: TCP ports somebody listens on in the host's network; `sockets`: paths
    that exist of `SOCKETS`; `units`: services of `UNITS` that systemd starts at boot.
    """

    processes: tuple[ServiceProcess, ...] | None = None
    ports: tuple[int, ...] | None = None
    sockets: tuple[str, ...] | None = None
    units: tuple[str, ...] | None = None
    fabric_manager: str | None = None
    """Its version: of its last start by its log, else of its package."""
    fabric_manager_package: str | None = None
    fabric_manager_error: str | None = None
    switches: int | None = None  # NVSwitches on the PCI bus, up to Hopper
    adapters: tuple[Adapter, ...] | None = None  # network adapters that can do RDMA
    user_mad: bool = False  # ib_umad is loaded
    network_driver_ready: bool | None = None  # of the network operator's driver container; None: there is none

    def named(self, name: str) -> tuple[ServiceProcess, ...]:
        """The processes of this name, whole or as the kernel cut it."""
        cut = name[:_KERNEL_LENGTH]
        return tuple(process for process in self.processes or () if process.name == cut)

    def runs(self, name: str) -> bool | None:
        """Whether a process of this name runs; None: the host's processes cannot be seen."""
        return None if self.processes is None else bool(self.named(name))

    @property
    def bridges(self) -> int:
        """Functions of ConnectX through which the host manages its NVSwitches (NVLink 5, HGX B200 and newer)."""
        return sum(adapter.manages_switches for adapter in self.adapters or ())


def services(root: Path | None, proc: Path, sys: Path) -> Services:
    """Read what can be read. `root` None: the host's own files cannot be seen.

    Raises:
        OSError: `proc` cannot be listed.
    """
    manager = fabric_manager(root) if root else FabricManager()
    return Services(
        processes=_processes(proc),
        ports=_ports(proc),
        sockets=_sockets(root) if root else None,
        units=_units(root / "etc/systemd/system") if root else None,
        fabric_manager=manager.logged or manager.packaged,
        fabric_manager_package=manager.packaged,
        fabric_manager_error=manager.error,
        switches=nvswitches(sys),
        adapters=adapters(sys),
        user_mad=user_mad(sys),
        network_driver_ready=_network_driver(root) if root else None,
    )


def _processes(proc: Path) -> tuple[ServiceProcess, ...] | None:
    """None without the host's own process 2, kthreadd: this is a pid namespace of its own, or a recording without."""
    pids = sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isascii() and entry.name.isdecimal())
    if text(proc / "2/comm") != "kthreadd":
        return None
    wanted = {name[:_KERNEL_LENGTH] for name in NAMES}
    found = ((pid, text(proc / str(pid) / "comm")) for pid in pids)
    running = (
        ServiceProcess(pid=pid, name=name, state=_state(proc / str(pid))) for pid, name in found if name in wanted
    )
    return tuple(process for process in running if process.state not in ("Z", "X"))


def _state(process: Path) -> str | None:
    fields = (text(process / "stat") or "").rpartition(")")[2].split()
    return fields[0][:1] if fields else None


def _ports(proc: Path) -> tuple[int, ...] | None:
    """Of the network of process 1, which is the host's wherever its processes can be seen."""
    found: set[int] = set()
    seen = False
    for table in ("tcp", "tcp6"):
        for folder in (proc / "1/net", proc / "net"):
            try:
                with open(folder / table, errors="replace", opener=plain) as lines:
                    found |= set(_listening(islice(lines, 1, _MOST_LINES)))
            except OSError:
                continue
            seen = True
            break
    return tuple(sorted(found)) if seen else None


def _listening(lines: Iterator[str]) -> Iterator[int]:
    """`0: 0100007F:15B3 00000000:0000 0A ...` (proc_pid_net(5))."""
    for line in lines:
        fields = line.split()
        if len(fields) > 3 and fields[3] == _LISTENING:
            port = fields[1].rpartition(":")[2]
            if len(port) == 4 and all(digit in "0123456789abcdefABCDEF" for digit in port):
                yield int(port, 16)


def _sockets(root: Path) -> tuple[str, ...]:
    found = (path for pattern in SOCKETS for path in sorted(root.glob(pattern)))
    return tuple("/" + str(path.relative_to(root)) for path in islice(found, 64))


def _units(system: Path) -> tuple[str, ...]:
    """`multi-user.target.wants/nvidia-fabricmanager.service` is a link to a file that a container may not see."""
    return tuple(unit for unit in UNITS if any(path.is_symlink() or path.exists() for path in _wants(system, unit)))


def _wants(system: Path, unit: str) -> Iterator[Path]:
    for target in ("multi-user.target", "default.target", "graphical.target"):
        yield system / f"{target}.wants" / unit


def _network_driver(root: Path) -> bool | None:
    """The driver container of the network operator leaves a file when its modules are loaded."""
    folder = root / "run/mellanox/drivers"
    return (folder / ".driver-ready").exists() if folder.is_dir() else None
