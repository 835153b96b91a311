"""What the simulated machine's kernel wrote while it came up, as `dmesg --raw` prints it."""

from gpuwatch.sim.node.node import Node

FILE = "gpuwatch/kernel.log"


def boot_log(node: Node, release: str, uvm_major: int) -> str:
    """Lines up to the moment at which the driver is ready."""
    driver = f"{node.driver}  Release Build  (dvs-builder@U22-I3-AE18-23-3)"
    lines = (
        (0.0, f"Linux version {release} (buildd@lcy02-amd64-065) (x86_64-linux-gnu-gcc-13) #52-Ubuntu SMP"),
        (0.004, "secureboot: Secure boot disabled"),
        (0.41, "pcieport 0000:17:01.0: AER: enabled with IRQ 40"),
        (11.2, "nvidia: loading out-of-tree module taints kernel."),
        (11.21, "nvidia: module verification failed: signature and/or required key missing - tainting kernel"),
        (11.3, "nvidia-nvlink: Nvlink Core is being initialized, major device number 236"),
        *((11.4 + gpu.index / 100, f"nvidia {gpu.address}: enabling device (0140 -> 0142)") for gpu in node.gpus),
        (12.9, f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {driver}"),
        (13.1, f"nvidia-modeset: Loading NVIDIA UNIX Open Kernel Mode Setting Driver for x86_64  {driver}"),
        (13.4, f"nvidia-uvm: Loaded the UVM driver, major device number {uvm_major}."),
    )
    return "".join(raw_line(at, text) for at, text in lines)


def raw_line(at: float, text: str, facility: int = 0) -> str:
    """`<4>[   12.900000] NVRM: ...`"""
    return f"<{facility * 8 + 4}>[{at:12.6f}] {text}\n"
