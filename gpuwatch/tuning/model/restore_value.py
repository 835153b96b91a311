"""Whether a recorded setting is still gpuwatch's to give back, and to which value: never above what it was before."""

from typing import NamedTuple

from gpuwatch.model.setting import Setting

TOLERANCE_WATTS = 1.0
"""Drivers round power limits."""


class Limits(NamedTuple):
    """A power limit as the driver has it, watts: what is configured, and what may be at most."""

    configured: float
    most: float


def outlived(setting: Setting, boot_id: str | None, driver: str | None) -> str:
    """Why the setting went by itself, in words; empty: it did not, or that cannot be told. None: not known."""
    if boot_id is not None and setting.boot_id != boot_id:
        return "the machine was booted since"
    if driver is not None and setting.driver != driver:
        return f"driver {driver} was loaded since"
    return ""


def power_target(setting: Setting, now: Limits) -> float | None:
    """Watts to set; None: nothing of ours is in force, be it that we never got to it or that somebody else set it."""
    ours = any(is_same(now.configured, applied) for applied in setting.applied)
    if setting.original is None or not ours or is_same(now.configured, setting.original):
        return None
    return min(setting.original, now.most)


def is_foreign(setting: Setting, watts: float) -> bool:
    """Whether a power limit in force is neither gpuwatch's nor the original."""
    known = setting.applied if setting.original is None else (*setting.applied, setting.original)
    return not any(is_same(watts, value) for value in known)


def is_same(watts: float, other: float) -> bool:
    """Whether two power limits are one."""
    return abs(watts - other) <= TOLERANCE_WATTS
