"""What the budget loop goes by in one cycle, and what it carries to the next."""

from collections.abc import Collection, Mapping
from enum import StrEnum

from gpuwatch.model.setting import Actuation, Setting
from gpuwatch.model.snapshot import Record
from gpuwatch.model.view import View
from gpuwatch.tuning.energy.state import State
from gpuwatch.tuning.model.order import Board, Order, Turned
from gpuwatch.tuning.model.status import BudgetState
from gpuwatch.tuning.power_budget.demand import Draw
from gpuwatch.tuning.power_budget.limits import Limits, recorded
from gpuwatch.tuning.power_budget.overdraw import Overdraw


class Plight(StrEnum):
    """In which way the budget is handled when it is not shared by `power_budget.How`."""

    EMERGENCY = "emergency"  # more was drawn than the budget
    LEARNING = "learning"  # it has just begun, and looks what each GPU draws
    WAITING = "waiting"  # nothing is written: the View, the record or a GPU tells nothing
    INVALID = "invalid"  # it cannot be shared; everything is given back


class Look(Record, frozen=True, kw_only=True):
    """What a cycle goes by. `now`: monotonic seconds, `at`: unix seconds. `budget` watts, None: there is none, so
    everything is given back. `fresh`: the View tells of now. `actuation`: the record, None: it cannot be read.

    By uuid: `boards`; `probes`, the energy tuner's states; `owners`, which change with whose work it does;
    `priorities`. `fixed`: GPUs that are not to be written. `turned`: what became of the orders of the cycle before.
    """

    view: View | None
    fresh: bool
    now: float
    at: float
    budget: float | None
    actuation: Actuation | None
    boards: Mapping[str, Board] = {}
    turned: tuple[Turned, ...] = ()
    fixed: Collection[str] = ()
    probes: Mapping[str, State] = {}
    owners: Mapping[str, str] = {}
    priorities: Mapping[str, int] = {}

    @property
    def settings(self) -> dict[str, Setting]:
        """Power limits that are recorded."""
        return recorded(self.actuation) if self.actuation else {}


class Verdict(Record, frozen=True, kw_only=True):
    """Limits wanted, watts by uuid. `at`: monotonic seconds; `situation`: what they were made for."""

    limits: Mapping[str, float]
    how: str
    words: str
    at: float
    situation: tuple[object, ...]


class Memory(Record, frozen=True, kw_only=True):
    """What is carried from one cycle to the next; Memory() at the start. `since`: monotonic seconds of the first fresh
    View. `ours`: GPUs whose power limit may be the budget's.
    """

    since: float | None = None
    limits: Limits = Limits()
    draws: Mapping[str, Draw] = {}
    overdraw: Overdraw = Overdraw()
    verdict: Verdict | None = None
    ours: frozenset[str] = frozenset()


class Step(Record, frozen=True, kw_only=True):
    """What came of a cycle. `orders` may be carried out in any order. `state` None: there is no budget."""

    memory: Memory
    orders: tuple[Order, ...] = ()
    state: BudgetState | None = None


def ceiling(memory: Memory, look: Look, uuid: str) -> float:
    """The limit of before gpuwatch came, watts: where it has written none, that is the one of now."""
    setting = look.settings.get(uuid)
    original = setting.original if setting else None
    return original or memory.limits.known[uuid].watts or 0.0
