"""Daemons, sockets and ports of the simulated host, with the NVSwitches that its fabric manager looks after."""

from collections.abc import Mapping

from gpuwatch.sim.host import Files, Symlink
from gpuwatch.sim.host.cluster import NAME, has_kubelet
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.node.profiles import Model

PIDS = {
    "kthreadd": 2,
    "systemd": 1,
    "containerd": 812,
    "nvidia-persistenced": 1034,
    "nv-fabricmanager": 1101,
    "nvlsm": 1097,
    "kubelet": 1290,
}
"""Below those of work on GPUs."""

SWITCHES = {"a100": (6, "0x1af1"), "h100": (4, "0x22a3"), "h200": (4, "0x22a3")}
"""Model -> NVSwitches of an HGX board and their PCI device id; those of NVLink 5 are no PCI devices of the host."""

BRIDGES = 4
"""Functions of ConnectX-7 through which the host of an HGX B200 manages its NVSwitches."""

_FIRST_SWITCH, _FIRST_BRIDGE = 0x05, 0x0D
_HEADER = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
    "                                                     \n"
)
SSH = 22
PORTS = {SSH: "00000000", 10250: "00000000", 10248: "0100007F", 10256: "00000000"}
"""Listening TCP port -> local address as /proc/net/tcp writes it: sshd, kubelet, its health, kube-proxy."""


def services(node: SimNode) -> Files:
    """The files."""
    names = running(node)
    has_fabric = has_switches(node.model)
    files: dict[str, str | Symlink] = {
        "gpuwatch/exporters.json": "[]\n",  # a recording: no process listens on their ports
        "etc/hostname": f"{NAME}\n",
    }
    for name in names:
        pid, parent = PIDS[name], 0 if name in ("systemd", "kthreadd") else 1
        files[f"proc/{pid}/comm"] = name[:15] + "\n"
        files[f"proc/{pid}/stat"] = f"{pid} ({name[:15]}) S {parent} {pid} {pid}" + " 0" * 15 + " 900 0 0\n"
    ports = PORTS if has_kubelet(node) else {SSH: PORTS[SSH]}
    idle = "00000000:00000000 00:00000000 00000000     0        0"
    rows = [
        f"{slot:4}: {address}:{port:04X} 00000000:0000 0A {idle} {40000 + slot} 1\n"
        for slot, (port, address) in enumerate(ports.items())
    ]
    files |= {"proc/net/tcp": _HEADER + "".join(rows), "proc/net/tcp6": _HEADER}
    sockets = {"nvidia-persistenced": "nvidia-persistenced", "nv-fabricmanager": "nvidia-fabricmanager"}
    files |= {f"run/{folder}/socket": "" for name, folder in sockets.items() if name in names}
    files |= {  # what systemd starts at boot
        f"etc/systemd/system/multi-user.target.wants/{name}.service": Symlink(f"/usr/lib/systemd/system/{name}.service")
        for name in ("nvidia-persistenced", *(("nvidia-fabricmanager",) if has_fabric else ()))
    }
    return {**files, **_fabric_manager(node), **_switches(node.model)} if has_fabric else files


def running(node: SimNode) -> tuple[str, ...]:
    """Names of the daemons; those that hold the driver end with it."""
    base = ("systemd", "kthreadd", "containerd", *(("kubelet",) if has_kubelet(node) else ()))
    if not node.driver_up:
        return base
    fabric = ("nv-fabricmanager",) if has_switches(node.model) else ()
    subnet = ("nvlsm",) if node.model.nvlink5 else ()
    return (*base, "nvidia-persistenced", *fabric, *subnet)


def has_switches(model: Model) -> bool:
    """Every simulated GPU with NVLink sits on an HGX board."""
    return model.nvlinks > 0


def _fabric_manager(node: SimNode) -> Files:
    """NVIDIA's package for Ubuntu, in the driver's version, and the log of its start."""
    branch = int(node.driver.split(".")[0])
    package = {
        "Package": "nvidia-fabricmanager" if branch >= 580 else f"nvidia-fabricmanager-{branch}",
        "Status": "install ok installed",
        "Priority": "optional",
        "Section": "multiverse/libs",
        "Architecture": "amd64",
        "Version": f"{node.driver}-1",
        "Description": "Fabric Manager for NVSwitch based systems.",
    }
    lines = (
        f"Fabric Manager version {node.driver} is running with the following configuration options",
        "Logging level = 4",
        "Logging file name/path = /var/log/fabricmanager.log",
        "Append to log file = 1",
        "Fabric Mode = 0",
        "Fabric Manager - Subnet Manager IPC socket = unix:/var/run/nvidia-fabricmanager/fm_sm_ipc.socket"
        if node.model.nvlink5
        else "Fabric Manager communication unix domain socket = ",
        "Connected to 1 node.",
        "Successfully configured all the available NVSwitches to route GPU NVLink traffic. NVLink Peer-to-Peer support "
        "will be enabled once the GPUs are successfully registered with the NVLink fabric.",
    )
    pid = PIDS["nv-fabricmanager"]
    log = (f"[Sep 21 2026 14:06:{40 + i}] [INFO] [tid {pid}] {line}\n" for i, line in enumerate(lines))
    return {
        "var/lib/dpkg/status": "".join(f"{name}: {text}\n" for name, text in package.items()) + "\n",
        "var/log/fabricmanager.log": "".join(log),
    }


def _switches(model: Model) -> Files:
    """NVSwitches of an HGX board, or the bridges through which the host of an HGX B200 manages them."""
    count, device = SWITCHES.get(model.key, (0, ""))
    switches = {"vendor": "0x10de", "class": "0x068000", "device": device}
    found: dict[str, str | Symlink] = dict(_pci({_FIRST_SWITCH + i: switches for i in range(count)}))
    if model.nvlink5:
        for i in range(BRIDGES):
            folder = f"sys/bus/pci/devices/{_address(_FIRST_BRIDGE + i)}"
            found |= _pci({_FIRST_BRIDGE + i: {"vendor": "0x15b3", "class": "0x020700", "device": "0x1021"}})
            found[f"{folder}/vpd"] = "\x02\x1f\x00HGX B200 NVLink management\x10\x1c\x00V0\x19SMDL=SW_MNG\x00"
            found[f"{folder}/driver"] = Symlink("../../../../bus/pci/drivers/mlx5_core")
            found[f"{folder}/infiniband/mlx5_{i}/node_type"] = "1: CA\n"
            found[f"sys/class/infiniband_mad/umad{i}/ibdev"] = f"mlx5_{i}\n"
    return found


def _pci(devices: Mapping[int, Mapping[str, str]]) -> dict[str, str]:
    return {
        f"sys/bus/pci/devices/{_address(bus)}/{name}": text + "\n"
        for bus, files in devices.items()
        for name, text in files.items()
    }


def _address(bus: int) -> str:
    return f"0000:{bus:02x}:00.0"
