"""Remedies from the least to the most disruptive: the text of each and the commands that carry it out.

Only the remediator (quarantine, eviction) and the repairer (reset) do any of this by themselves, in mode enforce: a
reset needs every user of the GPU gone, and on NVSwitch systems those of its peers as well.
"""

from typing import NamedTuple

from gpuwatch.model.finding import Remedy


class RemedySteps(NamedTuple):
    """One remedy. `commands` may name `{node}`, `{gpu}` (index), `{namespace}` and `{pod}`."""

    text: str
    commands: tuple[str, ...] = ()


_QUARANTINE = "gpuwatch node quarantine --node {node} --drain"
_RELEASE = "gpuwatch node release --node {node}"

REMEDY_STEPS = {
    Remedy.NONE: RemedySteps("nothing needs to be done"),
    Remedy.RESTART_APP: RemedySteps("restart the application", ("kubectl -n {namespace} delete pod {pod}",)),
    Remedy.RESET_GPU: RemedySteps(
        "reset the GPU once nothing uses it",
        (
            _QUARANTINE,
            "nvidia-smi -q -d PIDS -i {gpu}",
            "nvidia-smi --gpu-reset -i {gpu}",
            "gpuwatch describe gpu {gpu}",
            _RELEASE,
        ),
    ),
    Remedy.REBOOT_NODE: RemedySteps(
        "drain the node and reboot it",
        (_QUARANTINE, "kubectl drain {node} --ignore-daemonsets --delete-emptydir-data", "sudo reboot", _RELEASE),
    ),
    Remedy.INSPECT: RemedySteps(
        "look at the machine: power, cooling, cables, seating",
        (_QUARANTINE, "gpuwatch describe gpu {gpu}", "nvidia-smi -q -i {gpu}", "lspci -vvv -d 10de:"),
    ),
    Remedy.CONTACT_SUPPORT: RemedySteps(
        "have the GPU replaced: collect the evidence and open a case with the vendor",
        (_QUARANTINE, "sudo nvidia-bug-report.sh"),
    ),
}

ESCALATION = tuple(remedy for remedy in Remedy if remedy is not Remedy.NONE)
"""Least disruptive first."""

ADVICE = {remedy: "" if remedy is Remedy.NONE else steps.text for remedy, steps in REMEDY_STEPS.items()}
"""The text for findings that have none of their own."""


def escalation(first: Remedy) -> tuple[Remedy, ...]:
    """From the first remedy to try to the last; empty where nothing is to be done."""
    return () if first is Remedy.NONE else ESCALATION[ESCALATION.index(first) :]
