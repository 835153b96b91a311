"""The simulated host's device files, plain ones with the names of real ones, and what /proc says of their numbers."""

from gpuwatch.sim.host.files import Link
from gpuwatch.sim.node.node import Node

NVIDIA, UVM, CAPS, IMEX = 195, 508, 234, 235
_CONTROL, _MODESET = 255, 254
_INSTANCES, _COMPUTE_INSTANCES = 15, 8  # per GPU and per GPU instance: how the driver numbers capabilities

_OTHERS = {"mem": 1, "tty": 4, "ptmx": 5, "misc": 10, "input": 13, "pts": 136, "infiniband_verbs": 231}
_OURS = {
    "nvidia": NVIDIA, "nvidiactl": NVIDIA, "nvidia-modeset": NVIDIA, "nvidia-caps": CAPS,
    "nvidia-caps-imex-channels": IMEX, "nvidia-nvlink": 236, "nvidia-nvswitch": 237, "nvidia-uvm": UVM,
}  # fmt: skip


def devices(node: Node) -> str:
    """/proc/devices."""
    rows = _OTHERS | _OURS if node.driver_up else _OTHERS
    characters = "".join(f"{major:3} {name}\n" for name, major in rows.items())
    return f"Character devices:\n{characters}\nBlock devices:\n  7 loop\n259 blkext\n"


def capabilities(node: Node) -> dict[str, int]:
    """Path below /proc/driver/nvidia/capabilities -> minor."""
    found = {"mig/config": 1, "mig/monitor": 2}
    for gpu in node.gpus:
        for unit in gpu.units:
            if unit.profile is not None:
                minor = 3 + (gpu.index * _INSTANCES + unit.gi) * (1 + _COMPUTE_INSTANCES)
                place = f"gpu{gpu.index}/mig/gi{unit.gi}"
                found |= {f"{place}/access": minor, f"{place}/ci0/access": minor + 1}
    return found


def device_files(node: Node) -> dict[str, str | Link]:
    """/dev and /dev/char; the GPUs' own files are those of `PciTree`."""
    numbers = {"nvidiactl": (NVIDIA, _CONTROL), "nvidia-modeset": (NVIDIA, _MODESET)}
    numbers |= {"nvidia-uvm": (UVM, 0), "nvidia-uvm-tools": (UVM, 1)}
    numbers |= {f"nvidia-caps/nvidia-cap{minor}": (CAPS, minor) for minor in capabilities(node).values()}
    links = numbers | {f"nvidia{gpu.index}": (NVIDIA, gpu.index) for gpu in node.gpus}
    files: dict[str, str | Link] = {f"dev/{name}": "" for name in numbers}
    return files | {f"dev/char/{major}:{minor}": Link(f"../{name}") for name, (major, minor) in links.items()}


def capability_files(node: Node) -> dict[str, str | Link]:
    """/proc/driver/nvidia/capabilities."""
    return {
        f"proc/driver/nvidia/capabilities/{path}": f"DeviceFileMinor: {minor}\nDeviceFileMode: "
        f"{256 if path == 'mig/config' else 292}\nDeviceFileModify: 1\n"
        for path, minor in capabilities(node).items()
    }
