"""What numbers and names of gpuwatch are called on a dashboard, and their colours: from the tables that define them."""

import re

from dashboards.source.panel import State, Style
from dashboards.source.runbooks import alert_of_check
from gpuwatch.health.checks import CHECKS
from gpuwatch.model.finding import Remedy
from gpuwatch.model.xid_catalogue import all_xids

SEVERITY_COLORS = {"critical": "red", "warning": "orange", "info": "blue"}

HEALTH = (
    State("0", "healthy", "green"),
    State("1", "unknown", "purple"),
    State("2", "degraded", "orange"),
    State("3", "failed", "red"),
)
"""Of `health_code`."""

_NAMES = {
    name.lower(): name for name in ("GPU", "GPUs", "ECC", "XID", "SXID", "PCIe", "NVLink", "NVSwitch", "MIG", "NVML")
}


def spoken(name: str) -> str:
    """A value of a label as people write it: `pcie_degraded` is "PCIe degraded"."""
    return " ".join(_NAMES.get(word, word) for word in name.split("_"))


YES_NO = (State("0", "no", "text"), State("1", "yes", "red"))
"""Of a gauge that should be 0."""

CLOCK_EVENTS = (
    ("gpu_idle", "idle", "#5a6270"),
    ("applications_clocks_setting", "clock setting", "light-blue"),
    ("display_clock_setting", "display", "light-blue"),
    ("sync_boost", "sync boost", "light-purple"),
    ("sw_power_cap", "power limit", "yellow"),
    ("sw_thermal_slowdown", "heat (software)", "orange"),
    ("hw_slowdown", "hardware", "dark-orange"),
    ("hw_power_brake_slowdown", "power brake", "purple"),
    ("hw_thermal_slowdown", "heat (hardware)", "red"),
)
"""Reason, what it is called, colour: from harmless to harmful; the place in this list is its code."""

CLOCK_STYLES = (
    *(Style(match=f"^{reason}$", color=color, name=text) for reason, text, color in CLOCK_EVENTS),
    Style(match="^board_limit$", color="light-yellow", name="limit of the board"),
    Style(match="^reliability$", color="light-orange", name="voltage (reliability)"),
)
"""The same for series whose legend is the reason."""

CLOCK_STATES = (
    State("0", "full clocks", "green"),
    *(State(str(code), text, color) for code, (_, text, color) in enumerate(CLOCK_EVENTS, start=1)),
)
"""Of `clock_event_code`."""

RECOVERY_ACTIONS = (
    State("0", "nothing", "text"),
    State("1", "reset", "red"),
    State("2", "node reboot", "red"),
    State("3", "drain P2P", "orange"),
    State("4", "drain and reset", "red"),
    State("5", "recover IMEX", "orange"),
)

FABRIC_STATES = (
    State("0", "no fabric", "text"),
    State("1", "not started", "red"),
    State("2", "in progress", "orange"),
    State("3", "completed", "green"),
)

FINDINGS = tuple(State(check.name, spoken(check.name), SEVERITY_COLORS[check.severity]) for check in CHECKS)
"""Checks in words, in the colour of their severity."""

SEVERITIES = (State("0", "info", "blue"), State("1", "warning", "orange"), State("2", "critical", "red"))
"""Of `severity_code`."""

_ALERTS = alert_of_check()
RUNBOOKS = tuple(State(check.name, _ALERTS[check.name], SEVERITY_COLORS[check.severity]) for check in CHECKS)
"""Checks by the alert that stands for them, which is the name of the runbook."""

REMEDIES = tuple(State(remedy.value, spoken(remedy.value)) for remedy in Remedy)
"""Rungs of the ladder, as `gpuwatch_finding_info` names them."""

XID_CODES = tuple(
    State(str(xid.code), str(xid.code), "red" if xid.severity == "fatal" else "blue")
    for xid in all_xids()
    if xid.severity == "fatal" or xid.category == "application"
)
"""The codes that stand out: those of a broken GPU, and those of applications."""

XID_STYLES = (
    Style(match=rf"XID ({'|'.join(state.value for state in XID_CODES if state.color == 'red')})$", color="red"),
    Style(match=rf"XID ({'|'.join(state.value for state in XID_CODES if state.color == 'blue')})$", color="blue"),
)
"""The same for series whose legend ends in the code."""

XID_MEANINGS = tuple(
    State(str(xid.code), re.split(r"[.;] ", re.sub(r" \([^)]*\)", "", xid.description))[0].rstrip("."))
    for xid in all_xids()
    if not xid.unused
)
"""The first words of the catalogue; `gpuwatch xid explain` has the rest."""


def health_code(family: str, selector: str, by: str) -> str:
    """The state set `family` as one number, the worse the higher: see HEALTH."""
    ranks = {"unknown": 1, "degraded": 2, "failed": 3}
    parts = (f'{family}{{{selector}, state="{state}"}} * {rank}' for state, rank in ranks.items())
    return f"max by ({by}) ({' or '.join(parts)})"


def severity_code(selector: str, by: str) -> str:
    """The worst severity of what is found, as a number: see SEVERITIES."""
    parts = (f'gpuwatch_finding{{{selector}, severity="{state.text}"}} * {state.value}' for state in SEVERITIES)
    return f"max by ({by}) ({' or '.join(parts)})"


def clock_event_code(selector: str, by: str) -> str:
    """The worst reason that holds clocks down: see CLOCK_STATES."""
    parts = (
        f'gpuwatch_gpu_clock_event_active{{{selector}, reason="{reason}"}} * {code}'
        for code, (reason, *_) in enumerate(CLOCK_EVENTS, start=1)
    )
    return f"max by ({by}) ({' or '.join(parts)})"


def xid_events(selector: str, by: str, window: str) -> str:
    """XIDs within `window`, by code. A counter born with its first XID has no increase; but then its time is new."""
    seen = f"gpuwatch_gpu_xid_last_timestamp_seconds{{{selector}}}"
    return f"""(sum by ({by}, xid) (increase(gpuwatch_gpu_xid_errors_total{{{selector}}}[{window}])) > 0
        or group by ({by}, xid) ({seen} > time() - 3600 unless {seen} offset {window}))"""
