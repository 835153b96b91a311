"""What helps a GPU, rung by rung: words and commands that several checks tell."""

from typing import NamedTuple

from gpuwatch.model.finding import Remedy

DRAIN = "kubectl drain {node} --ignore-daemonsets --delete-emptydir-data"
RESET = "nvidia-smi --gpu-reset -i {gpu}"
REBOOT = "systemctl reboot"
KERNEL_LOG = "dmesg -T | grep -iE 'nvrm|xid|nvidia'"


class Advice(NamedTuple):
    """For a person: words, and what to run in this order."""

    words: str
    commands: tuple[str, ...] = ()


RESET_GPU = Advice(
    "Drain the node, then reset the GPU. If nvidia-smi says that it is in use, see who has it open (fuser -v "
    "/dev/nvidia*): stop DCGM and nvidia-persistenced, with the GPU operator also its device plugin and exporter pods. "
    "Where NVLinks tie GPUs of one board together it may ask for all of them: leave out -i. If it cannot be reset, "
    "reboot.",
    (DRAIN, RESET),
)

REBOOT_NODE = Advice(
    "Drain the node and reboot it. If the GPU is not back, switch the power off and on; if this happens again, have "
    "it reseated or replaced.",
    (DRAIN, REBOOT),
)

INSPECT = Advice(
    "Drain the node. Have the GPU, its slot, riser and power cables looked at; replace it if this comes back.",
    (DRAIN, KERNEL_LOG),
)

CONTACT_SUPPORT = Advice(
    "Drain the node. Write down what nvidia-bug-report.sh collects and ask NVIDIA's or the vendor's support whether "
    "the GPU must be replaced.",
    (DRAIN, "nvidia-bug-report.sh"),
)

RESTART_APP = Advice("Look at the application's own log and restart it; the GPU itself is not to blame.")

ADVICE: dict[Remedy, Advice] = {
    Remedy.RESTART_APP: RESTART_APP,
    Remedy.RESET_GPU: RESET_GPU,
    Remedy.REBOOT_NODE: REBOOT_NODE,
    Remedy.INSPECT: INSPECT,
    Remedy.CONTACT_SUPPORT: CONTACT_SUPPORT,
}
"""Rung of the ladder -> what to do; NONE asks for nothing."""
