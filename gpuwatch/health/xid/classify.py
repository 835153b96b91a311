"""What one XID means for its GPU, by the user's configuration, then the kernel line, then the catalogue.

Whether restarting the application helps is the line between a fault that takes a GPU out of service and all others.
"""

from collections.abc import Mapping
from typing import Literal

from gpuwatch.model.finding import CheckName, Remedy, Severity, XidClass
from gpuwatch.model.xid import XidEvent
from gpuwatch.model.xid_catalogue import XidInfo, explain, recovery_action, retirement_text

Class = XidClass | Literal["unknown"]

CHECK_OF: dict[Class, CheckName] = {
    "fatal": "xid_fatal",
    "contained": "xid_contained",
    "warning": "xid_warning",
    "application": "xid_application",
    "unknown": "xid_unknown",
}
"""Class -> check; one that is missing makes no finding."""

RECOVERY_CHANGED = 154

CONTAINED = frozenset({63, 94, 160})
"""The GPU keeps working and activates its repair at the next reset: NVIDIA states this of no other hardware XID."""

REMEDIES = {
    "RESTART_APP": Remedy.RESTART_APP,
    "CHECK_UVM": Remedy.RESTART_APP,
    "RESET_GPU": Remedy.RESET_GPU,
    "WORKFLOW_XID_48": Remedy.RESET_GPU,
    "WORKFLOW_NVLINK_ERR": Remedy.RESET_GPU,
    "WORKFLOW_NVLINK5_ERR": Remedy.RESET_GPU,
    "FOLLOW_XID_48": Remedy.RESET_GPU,
    "XID_154_EVAL": Remedy.RESET_GPU,
    "REBOOT_NODE": Remedy.REBOOT_NODE,
    "CHECK_MECHANICALS": Remedy.INSPECT,
    "UPDATE_SWFW": Remedy.CONTACT_SUPPORT,
    "CONTACT_SUPPORT": Remedy.CONTACT_SUPPORT,
}
"""The catalogue's action words -> remedy; others ask for nothing."""

RECOVERY_REMEDIES = {
    1: Remedy.RESET_GPU,
    2: Remedy.REBOOT_NODE,
    3: Remedy.RESTART_APP,
    4: Remedy.RESET_GPU,
    5: Remedy.INSPECT,
    6: Remedy.RESET_GPU,
    7: Remedy.REBOOT_NODE,
}
"""NVML_GPU_RECOVERY_ACTION_* -> remedy."""

FATAL_ACTIONS = {
    Remedy.RESET_GPU: "drain the node, then reset the GPU",
    Remedy.REBOOT_NODE: "drain the node, then reboot it",
    Remedy.INSPECT: "drain the node; have the GPU, its slot and its power looked at",
    Remedy.CONTACT_SUPPORT: "drain the node; contact NVIDIA's support",
}
"""What a person should do about a GPU that is out of order, by the remedy."""


def classify(event: XidEvent, overrides: Mapping[int, XidClass], *, final: bool = True) -> Class | None:
    """The class of an occurrence. None: the kernel line decides, has not come yet, and may still come (not `final`)."""
    if event.xid in overrides:
        return overrides[event.xid]
    info = explain(event.xid)
    if info is None:
        return "unknown"
    if info.decided_by is not None:
        return None if event.message is None and not final else _by_line(event, info)
    if info.taint:
        return "fatal"
    if info.code in CONTAINED:
        return "contained"
    return "application" if info.category == "application" else "warning"


def _by_line(event: XidEvent, info: XidInfo) -> Class:
    if info.decided_by == "recovery":
        action = recovery_action(event.recovery) if event.recovery is not None else None
        return "ignore" if event.recovery == 0 else "fatal" if action and action.taint else "warning"
    if info.decided_by == "nvlink":
        return "fatal" if event.nvlink is not None and event.nvlink.severity == "fatal" else "warning"
    text = retirement_text(event.message or "")
    if text is not None and text.action == "IGNORE":
        return "ignore"
    return "fatal" if info.taint else "warning"


def severity(event: XidEvent, kind: Class) -> Severity:
    """The severity: a code that is informational in the catalogue degrades nothing."""
    if kind == "fatal":
        return Severity.CRITICAL
    info = explain(event.xid)
    if kind == "application" or (kind == "warning" and info is not None and info.severity == "info"):
        return Severity.INFO
    return Severity.WARNING


def remedy(event: XidEvent, kind: Class, asked: int | None) -> Remedy:
    """What helps. The recovery action that the driver asks for, by its line or as last read, beats the catalogue."""
    asked = event.recovery or asked
    if asked:
        return RECOVERY_REMEDIES.get(asked, Remedy.INSPECT)
    if kind == "contained":
        return Remedy.RESET_GPU
    info = explain(event.xid)
    text = retirement_text(event.message or "") if info is not None and info.decided_by == "retirement" else None
    word = text.action if text else info.action if info else "CONTACT_SUPPORT"
    found = REMEDIES.get(word, Remedy.NONE)
    return Remedy.RESET_GPU if kind == "fatal" and found in (Remedy.NONE, Remedy.RESTART_APP) else found


def is_own_failure(xid: int) -> bool:
    """Whether it is an application's own error. XIDs that only report that a channel was ended follow any kill."""
    info = explain(xid)
    return info is not None and info.severity != "info"
