"""What each XID means and asks for, as data: `xids.json` beside this file, one row a line.

JSON because it decodes in a millisecond (YAML of this size takes a quarter of a second) and can still be read
and reviewed line by line. It is loaded on first use only: an agent whose GPUs are healthy never loads it.
Severity, action and taint are gpuwatch's judgement: taint only where restarting the application cannot help.
"""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from gpuwatch.model.decoding import prepared
from gpuwatch.model.xid import NvLinkError

Category = Literal["hardware", "driver", "application", "unknown"]

Confirmation = Literal[
    "event", "recovery_action", "ecc", "remap", "retired_pages", "lost", "silence", "nvlink", "fabric", "power"
]  # fmt: skip
"""How the driver itself confirms a line of the kernel log: by its NVML event of the same code, or by a state that NVML
reports; `lost`: the GPU is gone from NVML, `silence`: its calls do not return."""

_CATEGORIES: dict[str, Category] = {
    "hardware": "hardware",
    "bus": "hardware",
    "fabric": "hardware",
    "driver": "driver",
    "firmware": "driver",
    "app": "application",
}


class XidInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of the catalogue."""

    code: int
    name: str
    """NVIDIA's mnemonic."""
    description: str
    severity: Literal["info", "warn", "fatal"]
    cause: str
    """The likeliest cause in one word; `causes` is NVIDIA's whole list."""
    causes: tuple[str, ...]
    action: str
    """What to do, in NVIDIA's action words."""
    taint: bool = False
    decided_by: Literal["recovery", "nvlink", "retirement"] | None = None
    """Where the line overrules the row: XID 154's number, 144-150's severity, 64's text."""
    confirmed_by: tuple[Confirmation, ...] = ("event",)
    """One of these must confirm a kernel line before gpuwatch acts on the node."""
    nvidia: str | None = None
    """NVIDIA's immediate action, None where it names none."""
    investigate: str | None = None
    unused: bool = False
    """NVIDIA calls the number unused on Ampere and newer."""
    since: str | None = None
    """First driver branch whose header has the number; None = 515 or older."""
    note: str | None = None

    @property
    def category(self) -> Category:
        """Where the cause most likely lies; `application` must never taint a node."""
        return _CATEGORIES.get(self.cause, "unknown")

    @property
    def summary(self) -> str:
        """The first sentence of the description: what fits on a line."""
        return re.split(r"(?<=[a-zA-Z)])[.;:] ", self.description)[0].rstrip(".")


class RecoveryAction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value of XID 154, NVML field 230 and NVML event 0x8000."""

    value: int
    name: str
    """NVML's, without `NVML_GPU_RECOVERY_ACTION_`."""
    meaning: str
    taint: bool = False


class RetirementText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A phrase in the message of XID 64 that decides what it means."""

    match: str
    meaning: str
    action: str


class NvLinkAdvice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """NVIDIA's action for one NVLink 5 error of XIDs 144-150."""

    xid: int
    units: tuple[str, ...]
    subcode: int
    """Bits 20-25 of the first word, the same in the layouts before and since driver 575."""
    error_status: int
    severity: Literal["fatal", "link-fatal", "non-fatal"]
    action: str
    investigate: str


class Catalogue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    sources: tuple[str, ...]
    recovery_actions: tuple[RecoveryAction, ...]
    retirement_texts: tuple[RetirementText, ...]
    sxids_confirmed_by: tuple[Confirmation, ...]
    """What GPUs behind a switch report when it fails: NVSwitches have no NVML events."""
    xids: tuple[XidInfo, ...]
    nvlink5: tuple[NvLinkAdvice, ...]


@cache
def catalogue() -> Catalogue:
    """The data file, decoded once."""
    return msgspec.json.decode(Path(__file__).with_name("xids.json").read_bytes(), type=prepared(Catalogue))


@cache
def _by_code() -> dict[int, XidInfo]:
    return {info.code: info for info in catalogue().xids}


def all_xids() -> Sequence[XidInfo]:
    """Every known code, ascending."""
    return catalogue().xids


def explain(code: int) -> XidInfo | None:
    """The row of a code; None for an undocumented one: record it, alert, never taint for it."""
    return _by_code().get(code)


def recovery_action(value: int) -> RecoveryAction | None:
    """What a recovery action asks for; None for a value newer than this table."""
    return next((action for action in catalogue().recovery_actions if action.value == value), None)


def retirement_text(message: str) -> RetirementText | None:
    """What an XID 64 means by the words of its message; None: the catalogue row holds."""
    lowered = message.lower()
    return next((t for t in catalogue().retirement_texts if t.match.lower() in lowered), None)


def nvlink_advice(xid: int, error: NvLinkError) -> NvLinkAdvice | None:
    """NVIDIA's row for an NVLink 5 error; None when the line was cut or the table has none."""
    if len(error.words) < 2:
        return None
    subcode, status = error.words[0] >> 20 & 0x3F, error.words[1]
    wanted = (xid, subcode, status)
    rows = (row for row in catalogue().nvlink5 if (row.xid, row.subcode, row.error_status) == wanted)
    return next((row for row in rows if error.unit in row.units), None)
