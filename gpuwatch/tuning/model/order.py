"""What a tuner wants of a GPU's knobs, and what came of it."""

from enum import StrEnum

from gpuwatch.model.setting import Knob
from gpuwatch.model.snapshot import Record


class Order(Record, frozen=True, kw_only=True):
    """What should be in force of one knob, hertz or watts. `value` None: the GPU's own setting, as it was before.

    `keep`: it stays recorded although nothing is in force, as it will be set again in seconds. `why`: for the audit.
    """

    uuid: str
    knob: Knob
    value: float | None
    why: str = ""
    keep: bool = False
    pod_uid: str | None = None


class Outcome(StrEnum):
    """What became of an order."""

    DONE = "done"
    FAILED = "failed"  # the driver refused, or what is read back is something else
    SILENT = "silent"  # the driver has not answered yet; the GPU is not asked anything else until it does
    REFUSED = "refused"  # not asked: it would be above the original, or it could not be recorded
    FOREIGN = "foreign"  # not asked: somebody else has turned the knob since


class Turned(Record, frozen=True, kw_only=True):
    """An order carried out, or not; `in_force` is what is now, None: the GPU's own, or not known (then not DONE)."""

    order: Order
    outcome: Outcome
    words: str = ""
    in_force: float | None = None


class Board(Record, frozen=True, kw_only=True):
    """What one GPU's knobs allow. Hertz and watts; `clocks` highest first, empty: they cannot be locked."""

    uuid: str
    clocks: tuple[float, ...] = ()
    limit: float | None = None  # configured now
    limit_default: float | None = None
    limit_min: float | None = None
    limit_max: float | None = None
