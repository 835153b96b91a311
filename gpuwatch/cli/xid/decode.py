"""What the text of an XID's kernel line adds to its number: NVLink 5 words (144-150), remapping (64), advice (154)."""

from collections.abc import Iterator
from typing import NamedTuple

from gpuwatch.model.xid import KernelLine
from gpuwatch.model.xid_catalogue import (
    NvLinkAdvice,
    RecoveryAction,
    XidInfo,
    catalogue,
    nvlink_advice,
    recovery_action,
    retirement_text,
)


class Fact(NamedTuple):
    """A label and its text."""

    label: str
    text: str


RETIREMENT = 64
"""The XID whose meaning the text of its line decides."""

DECIDES = {
    "recovery": "The number after `to` is the recovery action the GPU asks for; it decides:",
    "retirement": "The words of the line decide:",
    "nvlink": "The line's unit and its first two hex words decide (bits 20-25 of the first, all of the second):",
}
"""`XidInfo.decided_by` -> the sentence above its table."""


def table_of(info: XidInfo) -> list[Fact]:
    """Everything a line of this XID can mean, where its text decides."""
    if info.decided_by == "recovery":
        return [_recovery(action) for action in catalogue().recovery_actions]
    if info.decided_by == "retirement":
        return [
            Fact(f"“{text.match}”", f"{text.meaning}: {sentence(text.action)}") for text in catalogue().retirement_texts
        ]
    if info.decided_by == "nvlink":
        return [_advice(row) for row in catalogue().nvlink5 if row.xid == info.code]
    return []


def decoded(line: KernelLine) -> Iterator[Fact]:
    """What this one line states beyond its number."""
    where = [f"GPU {line.pci}" if line.pci else "", f"GPU instance {line.gi}" if line.gi is not None else ""]
    yield Fact("where", ", ".join(filter(None, where)) or "not given")
    if line.name or line.pid:
        yield Fact(
            "process", f"{line.name or 'unknown'} (pid {line.pid or 'unknown'}): had the channel, did not cause it"
        )
    if line.message:
        yield Fact("message", line.message)
    if line.caused_by is not None:
        yield Fact("caused by", f"XID {line.caused_by}: see gpuwatch xid explain {line.caused_by}")
    if line.recovery is not None:
        action = recovery_action(line.recovery)
        yield _recovery(action) if action else Fact(str(line.recovery), "a recovery action newer than this table")
    if line.nvlink is not None and line.xid is not None:
        link = "no single link" if line.nvlink.link is None else f"link {line.nvlink.link}"
        yield Fact(
            "NVLink",
            f"unit {line.nvlink.unit}, {line.nvlink.severity}, {link}"
            + (", injected for a test" if line.nvlink.injected else ""),
        )
        advice = nvlink_advice(line.xid, line.nvlink)
        yield (
            Fact("decided", _advice(advice).text)
            if advice
            else Fact("decided", f"not in NVIDIA's table; the line calls it {line.nvlink.severity}")
        )
    if line.xid == RETIREMENT and line.message:
        text = retirement_text(line.message)
        yield Fact("decided", f"{text.meaning}: {sentence(text.action)}" if text else "as the number alone says")


def _recovery(action: RecoveryAction) -> Fact:
    return Fact(f"{action.value} {action.name}", action.meaning)


def _advice(row: NvLinkAdvice) -> Fact:
    label = f"{'|'.join(row.units)} {row.subcode}/0x{row.error_status:08x}"
    then = "" if row.investigate in ("", row.action) else f"; then {sentence(row.investigate)}"
    return Fact(label, f"{row.severity}: {sentence(row.action)}{then}")


SENTENCES = {
    "RESTART_APP": "restart the application",
    "RESET_GPU": "reset the GPU",
    "REBOOT_NODE": "reboot the node",
    "RESTART_BM": "reboot the node",
    "RESTART_VM": "restart the virtual machine",
    "CONTACT_SUPPORT": "contact the vendor's support",
    "IGNORE": "nothing",
    "IGNORE (sympathetic)": "nothing, it follows another XID",
    "XID_154": "do what the XID 154 beside it asks for",
    "XID_154_EVAL": "do what the XID 154 beside it asks for",
    "WORKFLOW_NVLINK5_ERR": "what the words of the line decide",
    "WORKFLOW_NVLINK_ERR": "follow NVIDIA's NVLink workflow: look at the links, reset the GPU, inspect the bridge",
    "WORKFLOW_XID_13": "run the application under compute-sanitizer; the same GPC and TPC again means hardware",
    "WORKFLOW_XID_31": "run the application under compute-sanitizer",
    "WORKFLOW_XID_45": "look at the XID before it; alone it means that the process was stopped",
    "WORKFLOW_XID_48": "see whether a row remap waits (XID 63), then reset the GPU",
    "FOLLOW_XID_48": "do what the XID 48 beside it asks for",
    "FOLLOW_PREVIOUS_XID": "do what the XID before it asks for",
    "CHECK_MECHANICALS": "check seating, power cables, cooling",
    "CHECK_APP/CUDA": "look for the mistake in the application or its CUDA version",
    "CHECK_UVM": "look for messages about unified memory (UVM) in the kernel log",
    "INVESTIGATE_SW": "look for the mistake in driver or application",
    "INVESTIGATE_SW_USER": "look for the mistake in the application",
    "INVESTIGATE_LINK_SI": "check cable, connector and signal quality of the link",
    "SYMPATHETIC_REPORT_SOLO": "nothing beside another XID; contact the vendor's support if it comes alone",
    "UPDATE_SWFW": "update driver and firmware",
    "XID_137_FLOW": "look at the XID 137 beside it",
    "N/A Informational only regarding another Xid": "nothing by itself",
    "Solo: RESTART_FM Not Solo: IGNORE (follow other Xid)": "alone: restart the fabric manager",
}  # fmt: skip
"""NVIDIA's action words as sentences; a test checks that all of the catalogue's are here."""


def sentence(action: str) -> str:
    """NVIDIA's action word in plain words."""
    return SENTENCES.get(action, action.replace("_", " ").lower())
