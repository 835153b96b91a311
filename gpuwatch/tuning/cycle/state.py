"""What a cycle of the tuner goes by, what it carries to the next one, and what comes of it."""

from collections.abc import Mapping
from typing import NamedTuple

from gpuwatch.config import TuningConfig
from gpuwatch.model.consent import Consents
from gpuwatch.model.finding import XidClass
from gpuwatch.model.setting import KNOBS, Actuation, Knob
from gpuwatch.model.snapshot import Record
from gpuwatch.model.view import View
from gpuwatch.tuning.cycle.gang_energy import Tuned
from gpuwatch.tuning.cycle.orders import Key, Told
from gpuwatch.tuning.energy.state import State
from gpuwatch.tuning.gates.conflict import Watch
from gpuwatch.tuning.gates.eligibility import Seen
from gpuwatch.tuning.gates.owners import Team
from gpuwatch.tuning.gates.pauses import Pauses
from gpuwatch.tuning.gates.rate_limit import Pace
from gpuwatch.tuning.model.order import Board, Order, Turned
from gpuwatch.tuning.model.status import BudgetState, GpuTuning, TuningState
from gpuwatch.tuning.power_budget import state as budget_memory


class Inputs(Record, frozen=True, kw_only=True):
    """What a cycle goes by. `now`: monotonic seconds, `at`: unix seconds. `fresh`: the View tells of now. `actuation`:
    the record, None: it cannot be read. `boards`: uuid -> what may be set. `heard`: the guard lives; `awaited`: it was
    not heard yet, and may be. `stopped`: who has stopped tuning, empty: nobody. `turned`: what became of the orders of
    the cycle before. `saved`: what an earlier tuner knew of owners, by `Team.key`. `classes`: `checks.xids`.
    """

    view: View | None
    fresh: bool
    now: float
    at: float
    config: TuningConfig
    consents: Consents | None = None
    actuation: Actuation | None = Actuation()
    boards: Mapping[str, Board] = {}
    heard: bool = True
    awaited: bool = False
    stopped: str = ""
    turned: tuple[Turned, ...] = ()
    saved: Mapping[str, State] = {}
    classes: Mapping[int, XidClass] = {}

    @property
    def enforcing(self) -> bool:
        """Whether anything may be ordered at all."""
        return self.config.mode == "enforce"

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """Those that are turned for less energy; with a budget, power limits are the budget's."""
        return KNOBS if self.config.node_budget_watts is None else ("locked_clocks",)


class Account(NamedTuple):
    """Of one GPU: its energy counter at the newest sample, and joules saved since the tuner started; `told`: the most
    they ever were. A rest may turn out to save less than nothing, and a counter that falls counts anew.
    """

    counter: float | None = None
    saved: float = 0.0
    told: float = 0.0


class Since(NamedTuple):
    """Unix seconds since which a GPU is in a state."""

    state: TuningState
    at: float


class Memory(Record, frozen=True, kw_only=True):
    """What is carried from one cycle to the next; Memory() at the start. `tuned`, `teams`: by `Team.key`; `met`: keys
    whose saved state is of no use any more; `paces`, `watches`, `accounts`, `since`: by uuid. `held`: knobs that may
    have something of ours in force. `view_at`: of the newest View. `budget`: of the node's power.
    """

    seen: Seen = {}
    tuned: Mapping[str, Tuned] = {}
    teams: Mapping[str, Team] = {}
    met: frozenset[str] = frozenset()
    pauses: Pauses = {}
    paces: Mapping[str, Pace] = {}
    watches: Mapping[str, Watch] = {}
    accounts: Mapping[str, Account] = {}
    since: Mapping[str, Since] = {}
    held: frozenset[Key] = frozenset()
    view_at: float | None = None
    budget: budget_memory.Memory = budget_memory.Memory()


class Step(Record, frozen=True, kw_only=True):
    """What came of a cycle. `orders`: to be carried out in this order; `deeds`: decisions, for the audit; `kept`: what
    is worth writing down for the next tuner, by `Team.key`.
    """

    memory: Memory
    orders: tuple[Order, ...] = ()
    gpus: tuple[GpuTuning, ...] = ()
    deeds: tuple[Told, ...] = ()
    kept: Mapping[str, State] = {}
    budget: BudgetState | None = None
