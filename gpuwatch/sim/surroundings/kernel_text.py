"""What the driver writes to the kernel log, in the words and spelling of current drivers."""

from gpuwatch.sim.node.actions import Sxid, Xid
from gpuwatch.sim.node.gpu import SimGpu

UNKNOWN = "'<unknown>'"

MESSAGES = {
    8: "Channel 00000020",
    13: "Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Out Of Range Address",
    31: "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_8 faulted @ 0x73ac_1c000000. "
    "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE",
    43: "Ch 00000008",
    45: "Ch 00000008",
    48: "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr 0x7fffa8860 "
    "partition 7, subpartition 1.",
    62: "00000a9f 00000a85 00000a72 00003786 00001d3e 000027d6 01013289 00000000",
    63: "Row Remapper: New row (0x0000000e9b9107e0) marked for remapping, reset gpu to activate.",
    64: "Row Remapper: All reserved rows for bank are already remapped",
    74: "NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    79: "GPU has fallen off the bus.",
    92: "High single-bit ECC error rate",
    94: "Contained: SM (0x1). RST: No, D-RST: No",
    95: "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
    109: "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005",
    119: "Timeout after 6s of waiting for RPC response from GPU{index} GSP! Expected function 76 (GSP_RM_CONTROL) "
    "(0x20801813 0x4c).",
    120: "GSP task timeout @ pc:0x4bf3c4, task: 1",
    140: "An uncorrectable ECC error detected (possible firmware handling failure) DRAM:0, LTC:0, MMU:0, PCIE:0",
    145: "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000 0x00100000 0x00000004)",
}
"""XID -> what follows the owner, as seen in the wild."""

RECOVERY_WORDS = ("None", "GPU Reset Required", "Node Reboot Required", "Drain P2P", "Drain and Reset")
"""By NVML_GPU_RECOVERY_ACTION_*."""


def uuid_line(gpu: SimGpu) -> str:
    """Names the GPU once, before its first XID."""
    return f"NVRM: GPU at PCI:{gpu.address.key}: {gpu.uuid}"


def serial_line(gpu: SimGpu) -> str:
    """Follows the line above."""
    return f"NVRM: GPU Board Serial Number: {gpu.serial}"


def xid_line(gpu: SimGpu, action: Xid, pid: int | None, name: str | None) -> str:
    """`NVRM: Xid (PCI:0000:3b:00 GPU-I:07): 31, pid=1234, name=python3, ...`."""
    instance = "" if action.gi is None else f" GPU-I:{action.gi:02}"
    if action.ci is not None:
        instance += f" GPU-CI:{action.ci:02}"
    message = action.message or MESSAGES.get(action.xid, "00000000 00000000").replace("{index}", str(gpu.index))
    owner = f"pid={UNKNOWN}, name=<unknown>, " if pid is None else f"pid={pid}, name={(name or '?')[:15]}, "
    if action.xid == 154:
        owner = ""
    return f"NVRM: Xid (PCI:{gpu.address.key}{instance}): {action.xid}, {owner}{message}"


def bus_loss_lines(gpu: SimGpu) -> tuple[str, ...]:
    """What surrounds an XID 79."""
    return (
        f"NVRM: GPU {gpu.address}: GPU has fallen off the bus.",
        f"NVRM: GPU {gpu.address}: GPU serial number is {gpu.serial}.",
    )


def recovery_message(before: int, now: int) -> str:
    """The text of XID 154."""

    def word(action: int) -> str:
        return RECOVERY_WORDS[action] if action < len(RECOVERY_WORDS) else "Unknown"

    return f"GPU recovery action changed from 0x{before:x} ({word(before)}) to 0x{now:x} ({word(now)})"


def sxid_lines(action: Sxid) -> tuple[str, ...]:
    """An NVSwitch error and the two lines of detail behind it."""
    head = f"nvidia-nvswitch{action.switch}: SXid (PCI:0000:{5 + action.switch:02x}:00.0): {action.sxid}, "
    return (
        f"{head}{action.severity}, Link {action.link:02} {action.message}",
        f"{head}Severity 1 Engine instance {action.link:02} Sub-engine instance 00",
        f"{head}Data {{0x10000000, 0x10000000, 0x00000000, 0x10000000, 0x00000000, 0x00000000}}",
    )
