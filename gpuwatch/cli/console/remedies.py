"""The ladder of remedies for people: what each rung is called and the commands that do it.

gpuwatch never does any of this by itself beyond taking the node out of use: a reset needs every user of the GPU gone,
and on NVSwitch systems those of its peers as well.
"""

from typing import NamedTuple

from gpuwatch.model.finding import Remedy


class Rung(NamedTuple):
    """One remedy. `commands` may name `{node}`, `{gpu}` (index), `{namespace}` and `{pod}`."""

    words: str
    commands: tuple[str, ...] = ()


_QUARANTINE = "gpuwatch node quarantine --node {node} --drain"
_RELEASE = "gpuwatch node release --node {node}"

RUNGS = {
    Remedy.NONE: Rung("nothing needs to be done"),
    Remedy.RESTART_APP: Rung("restart the application", ("kubectl -n {namespace} delete pod {pod}",)),
    Remedy.RESET_GPU: Rung(
        "reset the GPU once nothing uses it",
        (
            _QUARANTINE,
            "nvidia-smi -q -d PIDS -i {gpu}",
            "nvidia-smi --gpu-reset -i {gpu}",
            "gpuwatch describe gpu {gpu}",
            _RELEASE,
        ),
    ),
    Remedy.REBOOT_NODE: Rung(
        "drain the node and reboot it",
        (_QUARANTINE, "kubectl drain {node} --ignore-daemonsets --delete-emptydir-data", "sudo reboot", _RELEASE),
    ),
    Remedy.INSPECT: Rung(
        "look at the machine: power, cooling, cables, seating",
        (_QUARANTINE, "gpuwatch describe gpu {gpu}", "nvidia-smi -q -i {gpu}", "lspci -vvv -d 10de:"),
    ),
    Remedy.CONTACT_SUPPORT: Rung(
        "have the GPU replaced: collect the evidence and open a case with the vendor",
        (_QUARANTINE, "sudo nvidia-bug-report.sh"),
    ),
}

LADDER = tuple(remedy for remedy in Remedy if remedy is not Remedy.NONE)
"""Gentlest first."""

ADVICE = {remedy: "" if remedy is Remedy.NONE else rung.words for remedy, rung in RUNGS.items()}
"""What to say where a finding brings no words of its own."""


def ladder(first: Remedy) -> tuple[Remedy, ...]:
    """From the first rung to try upwards; empty where nothing is to be done."""
    return () if first is Remedy.NONE else LADDER[LADDER.index(first) :]
