"""The daemons around the GPUs: which of them run, and where they listen; with the switches and adapters they serve.

The operators, whose containers start such daemons, note their progress in files, which are read here too.
"""

import re
from itertools import islice
from pathlib import Path

from gpuwatch.diagnose.host.fabric import Adapter, FabricManager, adapters, fabric_manager, nvswitches, user_mad
from gpuwatch.diagnose.host.host_root import text as host_text
from gpuwatch.host.plain_file import entries, opened, text
from gpuwatch.host.tree import place
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

TARGETS = ("multi-user", "default", "graphical")
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
_PORT = re.compile(r"[0-9a-fA-F]{4}")

VALIDATIONS = "/run/nvidia/validations"
LONGEST_VALIDATION = 200


class ServiceProcess(Record, frozen=True, kw_only=True):
    """One running process of a name that matters; the kernel keeps 15 bytes of it. `state`: a letter of
    proc_pid_stat(5); D: it waits in the kernel, mostly for a driver.
    """

    pid: int
    name: str
    state: str | None = None


class OperatorFiles(Record, frozen=True, kw_only=True):
    """Validation files of the GPU operator. `validations`: name below /run/nvidia/validations -> first line."""

    present: bool = False
    validations: dict[str, str] = {}


class Services(Record, frozen=True, kw_only=True):
    """None: cannot be read from here. `ports`: listening TCP ports of the host's network; `sockets`: paths
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
        """Whether a process of this name runs; None: the host's processes cannot be read."""
        return None if self.processes is None else bool(self.named(name))

    @property
    def bridges(self) -> int:
        """Functions of ConnectX through which the host manages its NVSwitches (NVLink 5, HGX B200 and newer)."""
        return sum(adapter.manages_switches for adapter in self.adapters or ())


def operator_files(root: Path) -> OperatorFiles:
    """Without their folder there is no operator here. Raises OSError: the folder or a file cannot be read."""
    if (folder := place(root, VALIDATIONS)) is None:
        return OperatorFiles()
    names = sorted(path.name for path in folder.iterdir())
    lines = {name: host_text(root, f"{VALIDATIONS}/{name}").splitlines() for name in names}
    return OperatorFiles(
        present=True,
        validations={name: found[0][:LONGEST_VALIDATION] if found else "" for name, found in lines.items()},
    )


def services(root: Path | None, proc: Path, sys: Path) -> Services:
    """Read what can be read. `root` None: the host's own files cannot be read.

    Raises:
        OSError: `proc` cannot be listed.
    """
    manager = fabric_manager(root) if root else FabricManager()
    devices = entries(sys / "bus/pci/devices")
    sockets, units, network_driver = None, None, None
    if root:
        found = (path for pattern in SOCKETS for path in sorted(root.glob(pattern)))
        sockets = tuple("/" + str(path.relative_to(root)) for path in islice(found, 64))
        # multi-user.target.wants/nvidia-fabricmanager.service is a link to a file that a container may lack
        wants = [root / "etc/systemd/system" / f"{target}.target.wants" for target in TARGETS]
        starts = (folder / unit for folder in wants for unit in UNITS)
        enabled = {place.name for place in starts if place.is_symlink() or place.exists()}
        units = tuple(unit for unit in UNITS if unit in enabled)
        # the driver container of the network operator makes this file when its modules are loaded
        drivers = root / "run/mellanox/drivers"
        network_driver = (drivers / ".driver-ready").exists() if drivers.is_dir() else None
    return Services(
        processes=_processes(proc),
        ports=_ports(proc),
        sockets=sockets,
        units=units,
        fabric_manager=manager.logged or manager.packaged,
        fabric_manager_package=manager.packaged,
        fabric_manager_error=manager.error,
        switches=None if devices is None else nvswitches(devices),
        adapters=None if devices is None else adapters(devices),
        user_mad=user_mad(sys),
        network_driver_ready=network_driver,
    )


def _processes(proc: Path) -> tuple[ServiceProcess, ...] | None:
    """None without the host's own process 2, kthreadd: then this is another pid namespace, or a recording."""
    pids = sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isascii() and entry.name.isdecimal())
    if text(proc / "2/comm") != "kthreadd":
        return None
    wanted = {name[:_KERNEL_LENGTH] for name in NAMES}
    found: list[ServiceProcess] = []
    for pid in pids:
        name = text(proc / str(pid) / "comm")
        if name in wanted:
            fields = (text(proc / str(pid) / "stat") or "").rpartition(")")[2].split()
            found.append(ServiceProcess(pid=pid, name=name, state=fields[0][:1] if fields else None))
    return tuple(process for process in found if process.state not in ("Z", "X"))


def _ports(proc: Path) -> tuple[int, ...] | None:
    """Those of process 1's network, which is the host's wherever its processes can be read. Each line of a table is
    `0: 0100007F:15B3 00000000:0000 0A ...` (proc_pid_net(5)).
    """
    found: set[int] = set()
    is_read = False
    for table in ("tcp", "tcp6"):
        for folder in (proc / "1/net", proc / "net"):
            try:
                with opened(folder / table, "r") as lines:
                    rows = [fields for fields in map(str.split, islice(lines, 1, _MOST_LINES)) if len(fields) > 3]
            except OSError:
                continue
            ports = (fields[1].rpartition(":")[2] for fields in rows if fields[3] == _LISTENING)
            found |= {int(port, 16) for port in ports if _PORT.fullmatch(port)}
            is_read = True
            break
    return tuple(sorted(found)) if is_read else None
