"""Errors of a configuration, reported so that the place is found at once: the whole key path, with the keys of
mappings and the numbers of lists; the values allowed there; and the nearest name.
"""

import difflib
import functools
import re
import zoneinfo
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from gpuwatch.model.consent import prometheus_label
from gpuwatch.model.decoding import prepared

MANY_CHOICES = 10
"""More choices are not listed where the nearest one can be named."""

MOST_NODES = 1_000_000
LONGEST_SELECTOR = 4096


RENAMED = {"checks.disabled": "checks.ignore"}
"""Keys of earlier releases and drafts -> their present names."""


class Wrong(NamedTuple):
    """The first error. `unknown`: the key itself is wrong."""

    path: str
    why: str
    hint: str = ""
    unknown: bool = False


def first_wrong(document: Any, kind: Any) -> Wrong | None:
    """What is wrong with a decoded document that should be a struct of type `kind`; None: nothing."""
    return next(_wrongs(document, kind, ""), None)


def _wrongs(value: Any, kind: Any, path: str) -> Iterator[Wrong]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield from _section(value, kind, path)
    elif get_origin(kind) is dict:
        if not isinstance(value, dict):
            yield Wrong(path, f"{_shown(value)} is no mapping")
            return
        of_key, of_value = get_args(kind)
        for key, inner in value.items():
            yield from (wrong._replace(unknown=True) for wrong in _leaf(key, of_key, f"{path}.{key}"))
            yield from _wrongs(inner, of_value, f"{path}.{key}")
    elif get_origin(kind) is tuple and isinstance(value, list):
        for number, each in enumerate(value):
            yield from _wrongs(each, get_args(kind)[0], f"{path}[{number}]")
    else:
        yield from _leaf(value, kind, path)


_hints = functools.cache(get_type_hints)


def _section(value: Any, kind: type[msgspec.Struct], path: str) -> Iterator[Wrong]:
    if not isinstance(value, dict):
        yield Wrong(path, f"{_shown(value)} is no mapping")
        return
    hints = _hints(kind)
    dot = f"{path}." if path else ""
    required = {field.name for field in msgspec.structs.fields(kind) if field.required}
    for key in sorted(required - value.keys()):
        yield Wrong(f"{dot}{key}", "it is missing")
    for key, inner in value.items():
        if key not in hints:
            near = difflib.get_close_matches(str(key), hints, n=1, cutoff=0.5)
            hint = f"did you mean {dot}{near[0]}?" if near else f"known here: {', '.join(hints)}"
            if (renamed := RENAMED.get(f"{dot}{key}")) is not None:
                hint = f"it is {renamed} now"
            yield Wrong(f"{dot}{key}", "gpuwatch does not know it", hint, unknown=True)
            continue
        wrongs = list(_wrongs(inner, hints[key], f"{dot}{key}"))
        yield from wrongs
        check = FORMS.get((kind.__name__, key))
        if check is not None and not wrongs and (why := check(inner)):
            yield Wrong(f"{dot}{key}", why)


def _leaf(value: Any, kind: Any, path: str) -> Iterator[Wrong]:
    try:
        msgspec.convert(value, prepared(kind))
    except msgspec.ValidationError as error:
        words = _words(kind)
        near = difflib.get_close_matches(str(value), words, n=1)
        choices = f"use {', '.join(words)}" if words else ""
        hint = f"did you mean {near[0]}?" if near and len(words) > MANY_CHOICES else choices
        why = f"{_shown(value)} is none of the choices" if words else str(error)
        if isinstance(value, str) and not words:
            hint = next((text for pattern, text in YAML_1_1.items() if pattern.fullmatch(value)), "")
        yield Wrong(path, why, hint)


YAML_1_1 = {
    re.compile(r"(?i:yes|no|on|off|y|n)"): "write true or false",
    re.compile(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?", re.ASCII): "write the number without quotes and without _",
    re.compile(r"[0-9]+(:[0-5]?[0-9])+", re.ASCII): "write one number in the unit of the key, without colons",
}
"""A value that was a boolean or a number in YAML 1.1 or without its quotes -> how to write it."""


def _words(kind: Any) -> tuple[str, ...]:
    """Every word a type allows: a Literal's or an enumeration's."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return tuple(kind)
    nested = (word for part in get_args(kind) for word in ((part,) if isinstance(part, str) else _words(part)))
    return tuple(dict.fromkeys(nested))


def _shown(value: Any) -> str:
    text = msgspec.json.encode(value).decode() if isinstance(value, str | int | float | bool | None) else str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _clock(value: str) -> str | None:
    return (
        None
        if re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", value, re.ASCII)
        else f'{_shown(value)} is no time; write "22:30"'
    )


def _zone(value: str) -> str | None:
    try:
        zoneinfo.ZoneInfo(value)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # a name that is a directory of the database
        near = difflib.get_close_matches(value, zoneinfo.available_timezones(), n=1)
        return f"{_shown(value)} is no time zone of the IANA database" + (f"; did you mean {near[0]}?" if near else "")
    return None


def _share(value: int | str) -> str | None:
    if isinstance(value, bool) or (isinstance(value, int) and 0 <= value <= MOST_NODES):
        return None
    found = re.fullmatch(r"(\d{1,3}(?:\.\d+)?)%", str(value), re.ASCII)
    return (
        None
        if found and float(found[1]) <= 100
        else f'{_shown(value)} is neither a number of nodes nor a share like "10%"'
    )


_LABEL = r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?"
_WORD = r"(?:[A-Za-z0-9](?:[-\w.]{0,61}[A-Za-z0-9])?)?"
_REQUIREMENT = re.compile(
    rf"\s*(?:!?{_LABEL}|{_LABEL}\s*(?:=|==|!=)\s*{_WORD}|{_LABEL}\s+(?:in|notin)\s+\(\s*{_WORD}(?:\s*,\s*{_WORD})*\s*\))\s*",
    re.ASCII,
)


def _selector(value: str) -> str | None:
    if len(value) > LONGEST_SELECTOR:  # splitting it takes time that grows with the square
        return f"it is longer than {LONGEST_SELECTOR} characters"
    parts = re.split(r",(?![^(]*\))", value) if value else []
    bad = next((part for part in parts if not _REQUIREMENT.fullmatch(part)), None)
    return None if bad is None else f"{_shown(bad)} is no label selector; write KEY=VALUE, KEY, !KEY or KEY in (A, B)"


def _exported(values: list[str]) -> str | None:
    if len(values) > 8:
        return f"{len(values)} names are more than 8; each is a label of every series"
    known: dict[str, str] = {}
    for value in values:
        if not re.fullmatch(_LABEL, value, re.ASCII):
            return f"{_shown(value)} is no key of a label or annotation"
        if (other := known.setdefault(prometheus_label("", value), value)) is not value:
            return f"{_shown(other)} and {_shown(value)} have the same name in Prometheus"
    return None


def _xids(values: dict[int, Any]) -> str | None:
    return next((f"{code} is no XID: they are 1 to 65535" for code in values if not 0 < code < 1 << 16), None)


def _command(value: list[str]) -> str | None:
    if not value or (value[0].startswith("/") and not any("\0" in part for part in value)):
        return None
    return f"{_shown(value[0])} is no absolute path of a program"


FORMS: dict[tuple[str, str], Callable[[Any], str | None]] = {
    **{("MetricsConfig", key): _exported for key in ("pod_labels", "pod_annotations", "node_labels")},
    ("MaintenanceWindow", "start"): _clock,
    ("MaintenanceWindow", "end"): _clock,
    ("MaintenanceWindow", "timezone"): _zone,
    ("BudgetConfig", "max_unavailable"): _share,
    ("BudgetConfig", "node_selector"): _selector,
    ("HandoverConfig", "annotation"): lambda value: (
        None if not value or re.fullmatch(_LABEL, value, re.ASCII) else f"{_shown(value)} is no annotation's key"
    ),
    ("HandoverConfig", "sentinel"): lambda value: (
        None if not value or value.startswith("/") else f"{_shown(value)} is no absolute path"
    ),
    ("RemediationConfig", "foreign"): lambda values: next(
        (f"{_shown(v)} is no key" for v in values if not v.strip("*") or re.search(r"[\s=:]", v)), None
    ),
    ("RemediationConfig", "restart_plugin"): lambda value: (
        None if re.fullmatch(r"([-a-z0-9]+/[-.a-z0-9]+)?", value) else f"{_shown(value)} is no NAMESPACE/NAME"
    ),
    ("ValidationConfig", "command"): _command,
    ("RepairConfig", "command"): lambda value: (
        _command(value) if any("{uuid}" in part for part in value) else "no argument names the GPU by {uuid}"
    ),
    ("SupportConfig", "bug_report"): lambda value: (
        _command(value) if not value or any("{file}" in part for part in value) else "no argument names {file}"
    ),
    ("RepairConfig", "nvidia_smi"): lambda value: _command([value]) if value else None,
    ("ChecksConfig", "xids"): _xids,
    ("RemediationConfig", "xids"): _xids,
}
"""(section's type, key) -> why a value of the right type is wrong all the same."""

RANGES: dict[tuple[str, ...], tuple[float, float]] = {
    ("agent", "interval"): (0.1, 3600),
    ("agent", "expected_gpus"): (0, 1024),
    ("agent", "max_connections"): (8, 100_000),
    ("agent", "max_scrapes"): (1, 10_000),
    ("metrics", "max_series"): (100, 10_000_000),
    ("sources", "pod_resources_interval"): (1, 3600),
    ("checks", "boot_grace"): (0, 86400),
    ("checks", "unresponsive_after"): (0, 3600),
    ("checks", "xid_confirm_within"): (1, 3600),
    ("checks", "xid_clear_after"): (1, 30 * 86400),
    ("checks", "xid_expire"): (1, 30 * 86400),
    ("checks", "repeat_pods"): (2, 64),
    ("checks", "repeat_window"): (60, 30 * 86400),
    ("checks", "ecc_corrected_per_hour"): (1, 1_000_000_000),
    ("checks", "retired_pages"): (1, 64),
    ("checks", "thermal_margin"): (-50, 50),
    ("checks", "nvlink_errors_per_hour"): (1, 1_000_000_000),
    ("checks", "pcie_utilization"): (0.01, 1),
    ("checks", "stuck_utilization"): (0.01, 1),
    ("checks", "stuck_clock"): (0.01, 1),
    ("checks", "zombie_memory"): (1, 1 << 50),
    ("remediation", "fault_hold"): (0, 86400),
    ("remediation", "recovery_hold"): (1, 30 * 86400),
    ("remediation", "min_quarantine"): (0, 30 * 86400),
    ("remediation", "validation", "deadline"): (1, 86400),
    ("remediation", "heartbeat"): (0, 86400),
    ("remediation", "repeats"): (1, 1000),
    ("remediation", "repeat_window"): (60, 90 * 86400),
    ("remediation", "max_quarantines_per_day"): (0, 10_000),
    ("remediation", "budget", "slot_seconds"): (10, 86400),
    ("remediation", "drain", "deadline"): (1, 30 * 86400),
    ("remediation", "drain", "retry"): (1, 300),
    ("repair", "deadline"): (10, 1200),
    ("repair", "tries"): (1, 10),
    ("repair", "window"): (600, 30 * 86400),
    ("support", "cases"): (0, 100),
    ("support", "days"): (0.01, 365),
    ("support", "deadline"): (10, 1200),
    ("tuning", "max_slowdown"): (0.005, 0.5),
    ("tuning", "min_clock_fraction"): (0.35, 1),
    ("tuning", "node_budget_watts"): (10, 1_000_000),
    ("tuning", "max_actions_per_hour"): (1, 1000),
    ("rightsizing", "top"): (0, 1000),
    ("rightsizing", "max_workloads"): (10, 1_000_000),
    ("rightsizing", "min_history"): (600, 30 * 86400),
    ("rightsizing", "min_coverage"): (0.1, 1),
    ("rightsizing", "idle_after"): (300, 30 * 86400),
    ("rightsizing", "lull"): (0, 60 * 86400),
    ("rightsizing", "grace"): (0, 86400),
    ("rightsizing", "memory_margin"): (0, 1),
    ("rightsizing", "max_mig_slowdown"): (0, 10),
    ("rightsizing", "expire"): (3600, 90 * 86400),
    ("rightsizing", "prices"): (0, 1_000_000),
    ("rightsizing", "electricity_price"): (0, 1000),
}
"""Path of a key -> smallest and largest allowed value; of a mapping, for each of its values."""


def out_of_range(config: msgspec.Struct) -> Wrong | None:
    """The first number in a whole configuration that is out of range, as NaN always is; None: there is none."""
    for path, (low, high) in RANGES.items():
        value: Any = config
        for name in path:
            value = getattr(value, name)
        for key, number in value.items() if isinstance(value, dict) else [("", value)]:
            if number is not None and not low <= number <= high:
                where = ".".join(path) + (f".{key}" if key else "")
                return Wrong(where, f"{number} makes no sense", f"use {low} to {high}")
    return None
