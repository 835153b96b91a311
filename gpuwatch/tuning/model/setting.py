"""A setting of a GPU that gpuwatch has changed, the orders to set one, their results, and the values they may set:
never above the value before gpuwatch.

The last part answers the same for restoring: whether a recorded setting is still gpuwatch's, and its original value.
"""

from enum import StrEnum
from typing import Literal, NamedTuple, get_args

from gpuwatch.model.snapshot import Record

Knob = Literal["power_limit", "locked_clocks"]
KNOBS: tuple[Knob, ...] = get_args(Knob)


class Trigger(StrEnum):
    """The cause of a restore."""

    START = "start"  # a tuner that starts, for what an earlier one has left behind
    EXIT = "exit"  # a tuner that ends
    TUNER = "tuner"  # a running tuner, because a gate closed or a stop was ordered
    GUARD = "guard"  # the tuner writes no heartbeat, or is no longer responsible for what it has set
    COMMAND = "command"  # `gpuwatch tune restore`


class Setting(Record, frozen=True, kw_only=True):
    """One knob of one GPU. `original` and `applied` are watts for `power_limit`, hertz for `locked_clocks`.

    `applied` is what may be in force, newest first: it is written before the driver call, so that a process which
    dies in between leaves both values behind. `original` None: the clocks were not locked.
    """

    uuid: str
    knob: Knob
    original: float | None
    applied: tuple[float, ...]
    at: float  # unix seconds of the newest change
    boot_id: str
    driver: str  # version; settings do not outlive a boot or a driver
    pod_uid: str | None = None  # the pod for which it was set


class Actuation(Record, frozen=True, kw_only=True):
    """The settings that gpuwatch has in force on this node's GPUs, and how many were restored, by trigger."""

    settings: tuple[Setting, ...] = ()
    restores: dict[Trigger, int] = {}


class SettingOrder(Record, frozen=True, kw_only=True):
    """The value that one knob should have, hertz or watts. `value` None: the GPU's own setting, as it was before.

    `keep`: it stays recorded although nothing is in force, as it will be set again in seconds. `why`: for the audit.
    """

    uuid: str
    knob: Knob
    value: float | None
    why: str = ""
    keep: bool = False
    pod_uid: str | None = None


class OrderOutcome(StrEnum):
    """The result of an order."""

    DONE = "done"
    FAILED = "failed"  # the driver refused, or another value was read back
    TIMEOUT = "timeout"  # the driver has not answered yet; until it does, no other call about the GPU is made
    REFUSED = "refused"  # no driver call: it would be above the original, or it could not be recorded
    FOREIGN = "foreign"  # no driver call: another process has changed the setting since


class ApplyResult(Record, frozen=True, kw_only=True):
    """An order carried out, or not; `in_force` is what is now, None: the GPU's own, or not known (then not DONE)."""

    order: SettingOrder
    outcome: OrderOutcome
    message: str = ""
    in_force: float | None = None


class GpuCapabilities(Record, frozen=True, kw_only=True):
    """What may be set on one GPU, in hertz and watts; `clocks` highest first, empty: they cannot be locked."""

    uuid: str
    clocks: tuple[float, ...] = ()
    limit: float | None = None  # configured now
    limit_default: float | None = None
    limit_min: float | None = None
    limit_max: float | None = None


class OrderRefused(Exception):
    """No driver call is made for this order."""

    def __init__(self, outcome: OrderOutcome, message: str) -> None:
        self.outcome = outcome
        super().__init__(message)


def original_limit(board: GpuCapabilities, before: Setting | None) -> float:
    """Watts that were configured before gpuwatch's first write. `before`: what is recorded of this knob.

    Raises:
        OrderRefused: the GPU reports no limits, one above its default, or one that another process has set.
    """
    if board.limit is None or board.limit_min is None or board.limit_default is None:
        raise OrderRefused(OrderOutcome.REFUSED, "its power limit cannot be set")
    if board.limit > board.limit_default + TOLERANCE_WATTS:
        above = f"{board.limit:g} W is above its default of {board.limit_default:g} W, which no restore exceeds"
        raise OrderRefused(OrderOutcome.REFUSED, above)
    if before is None or before.original is None:
        return board.limit
    if is_foreign(before, board.limit):
        raise OrderRefused(OrderOutcome.FOREIGN, f"another program has set the power limit to {board.limit:g} W")
    return before.original


def watts_to_set(watts: float, board: GpuCapabilities, original: float) -> float:
    """`watts`, corrected by what drivers round. Raises OrderRefused: it is above the original, or below the least."""
    least = min(board.limit_min or 0.0, original)
    if watts > original + TOLERANCE_WATTS:
        raise OrderRefused(OrderOutcome.REFUSED, f"{watts:g} W is above the original {original:g} W")
    if not watts >= least - TOLERANCE_WATTS:  # also what is no number
        raise OrderRefused(OrderOutcome.REFUSED, f"{watts:g} W is below {least:g} W, the least that can be set")
    return max(least, min(watts, original))


def lowest_clock(cap: float, board: GpuCapabilities) -> float:
    """Hertz to lock from, so that an idle GPU still slows down. Raises OrderRefused: the cap is not one it can have."""
    if not board.clocks:
        raise OrderRefused(OrderOutcome.REFUSED, "its clocks cannot be locked")
    highest, lowest = board.clocks[0], board.clocks[-1]
    if not lowest <= cap <= highest:
        raise OrderRefused(
            OrderOutcome.REFUSED, f"{cap / 1e6:g} MHz is not between {lowest / 1e6:g} and {highest / 1e6:g} MHz"
        )
    return lowest


TOLERANCE_WATTS = 1.0
"""Drivers round power limits."""

TOLERANCE_HERTZ = 30e6
"""Two steps of a clock."""


class PowerLimits(NamedTuple):
    """A power limit as the driver has it, watts: what is configured, and the most that may be restored."""

    configured: float
    most: float


def expiry_reason(setting: Setting, boot_id: str | None, driver: str | None) -> str:
    """Why the setting ended by itself; empty: it did not, or that is not known. None: not known."""
    if boot_id is not None and setting.boot_id != boot_id:
        return "the machine was booted since"
    if driver is not None and setting.driver != driver:
        return f"driver {driver} was loaded since"
    return ""


def power_target(setting: Setting, now: PowerLimits) -> float | None:
    """Watts to set, never less than now; None: nothing of ours is in force, or no more may be restored."""
    ours = any(is_same(now.configured, applied) for applied in setting.applied)
    if setting.original is None or not ours or is_same(now.configured, setting.original):
        return None
    target = min(setting.original, now.most)
    return target if target > now.configured else None


def is_foreign(setting: Setting, watts: float) -> bool:
    """Whether a power limit in force is neither gpuwatch's nor the original."""
    known = setting.applied if setting.original is None else (*setting.applied, setting.original)
    return not any(is_same(watts, value) for value in known)


def is_same(watts: float, other: float) -> bool:
    """Whether two power limits are one."""
    return abs(watts - other) <= TOLERANCE_WATTS


def setting_text(knob: Knob, value: float | None) -> str:
    """A setting as text for display; empty: none."""
    if value is None:
        return ""
    return f"{value / 1e6:.0f} MHz" if knob == "locked_clocks" else f"{value:.0f} W"
