"""A setting of a GPU that gpuwatch has changed, and all that is needed to restore it."""

from enum import StrEnum
from typing import Literal, get_args

from gpuwatch.model.snapshot import Record

Knob = Literal["power_limit", "locked_clocks"]
KNOBS: tuple[Knob, ...] = get_args(Knob)


class Trigger(StrEnum):
    """What restored a setting."""

    START = "start"  # a tuner that has just started, of what an earlier one has left behind
    EXIT = "exit"  # a tuner that ends
    TUNER = "tuner"  # a running tuner, as a gate closed or a stop was ordered
    GUARD = "guard"  # the tuner is silent, or no longer answers for what it has set
    COMMAND = "command"  # a person, by `gpuwatch tune restore`


class Setting(Record, frozen=True, kw_only=True):
    """One knob of one GPU. `original` and `applied` are watts for `power_limit`, hertz for `locked_clocks`.

    `applied` is what may be in force, newest first: it is written before the driver is asked, so that a process which
    dies in between leaves both values behind. `original` None: the clocks were not locked.
    """

    uuid: str
    knob: Knob
    original: float | None
    applied: tuple[float, ...]
    at: float  # unix seconds of the newest change
    boot_id: str
    driver: str  # version; settings do not outlive a boot or a driver
    pod_uid: str | None = None  # for whose work it was set


class Actuation(Record, frozen=True, kw_only=True):
    """What gpuwatch holds on this node's GPUs, and how many settings were restored, by trigger."""

    settings: tuple[Setting, ...] = ()
    restores: dict[Trigger, int] = {}
