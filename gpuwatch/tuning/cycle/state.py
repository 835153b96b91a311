"""The inputs of a cycle of the tuner, what it carries to the next one, and its results."""

from collections.abc import Mapping
from typing import NamedTuple

from gpuwatch.config import TuningConfig
from gpuwatch.model.consent import Consents, Progress
from gpuwatch.model.finding import XidClass
from gpuwatch.model.snapshot import Record
from gpuwatch.model.view import View
from gpuwatch.tuning.cycle.gang_energy import GangState
from gpuwatch.tuning.energy.model import TrialState
from gpuwatch.tuning.gates.conflict import ConflictWatch
from gpuwatch.tuning.gates.cooldowns import Cooldowns, RateLimit
from gpuwatch.tuning.gates.eligibility import GateHistory
from gpuwatch.tuning.gates.owners import Gang
from gpuwatch.tuning.model.setting import KNOBS, Actuation, ApplyResult, GpuCapabilities, Knob, SettingOrder
from gpuwatch.tuning.model.status import BudgetState, GpuTuning, TuningState
from gpuwatch.tuning.power_budget.loop import BudgetMemory

Key = tuple[str, Knob]
"""A knob of a GPU, by its uuid."""


class OrderReport(NamedTuple):
    """A decision about one GPU, for the audit. `knob` None: no order goes with it. Empty texts: nothing is in force."""

    action: str  # tune | restore | yield | budget
    uuid: str
    knob: Knob | None = None
    before: str = ""
    after: str = ""
    why: str = ""


class CycleInputs(Record, frozen=True, kw_only=True):
    """The inputs of a cycle. `now`: monotonic seconds, `at`: unix seconds. `fresh`: the View is not too old.
    `actuation`: the record, None: it cannot be read. `capabilities`: uuid -> what may be set. `guarded`: the guard
    beats; `guard_awaited`: it has not beaten yet, but may. `stopped`: why tuning is stopped, empty: it is not.
    `results`: of the orders of the cycle before. `saved`: what an earlier tuner knew of owners, by `Gang.key`. `known`:
    caps that held for work that may come back, as `CycleResult.known`. `classes`: `checks.xids`. `progress`: counters
    of work, None: there are none.
    """

    view: View | None
    fresh: bool
    now: float
    at: float
    config: TuningConfig
    consents: Consents | None = None
    actuation: Actuation | None = Actuation()
    capabilities: Mapping[str, GpuCapabilities] = {}
    guarded: bool = True
    guard_awaited: bool = False
    stopped: str = ""
    results: tuple[ApplyResult, ...] = ()
    saved: Mapping[str, TrialState] = {}
    known: Mapping[str, float] = {}
    classes: Mapping[int, XidClass] = {}
    progress: Progress | None = None

    @property
    def enforcing(self) -> bool:
        """Whether anything may be ordered at all."""
        return self.config.mode == "enforce"

    @property
    def knobs(self) -> tuple[Knob, ...]:
        """The ones that are set to save energy; with a budget, power limits are the budget's."""
        return KNOBS if self.config.node_budget_watts is None else ("locked_clocks",)


class Account(NamedTuple):
    """Of one GPU: its energy counter at the newest sample, and joules saved since the tuner started; `reported`: the
    most they ever were. A rest may save less than nothing, and Prometheus takes a counter that falls for a reset.
    """

    counter: float | None = None
    saved: float = 0.0
    reported: float = 0.0


class Since(NamedTuple):
    """Unix seconds since which a GPU is in a state."""

    state: TuningState
    at: float


class CycleMemory(Record, frozen=True, kw_only=True):
    """What is carried from one cycle to the next; CycleMemory() at the start. `tuned`, `gangs`: by `Gang.key`;
    `used_saves`: keys whose saved state is not needed any more; `rate_limits`, `watches`, `accounts`, `since`: by uuid.
    `held`: the settings of ours that may be in force. `view_at`: of the newest View. `budget`: of the node's power.
    """

    gate_history: GateHistory = {}
    tuned: Mapping[str, GangState] = {}
    gangs: Mapping[str, Gang] = {}
    used_saves: frozenset[str] = frozenset()
    cooldowns: Cooldowns = {}
    rate_limits: Mapping[str, RateLimit] = {}
    watches: Mapping[str, ConflictWatch] = {}
    accounts: Mapping[str, Account] = {}
    since: Mapping[str, Since] = {}
    held: frozenset[Key] = frozenset()
    view_at: float | None = None
    budget: BudgetMemory = BudgetMemory()


class CycleResult(Record, frozen=True, kw_only=True):
    """The results of a cycle. `orders`: to be carried out in this order; `reports`: decisions, for the audit; `kept`:
    what is to be saved for the next tuner, by `Gang.key`; `known`: the caps that hold, for the same
    work when it comes back.
    """

    memory: CycleMemory
    orders: tuple[SettingOrder, ...] = ()
    gpus: tuple[GpuTuning, ...] = ()
    reports: tuple[OrderReport, ...] = ()
    kept: Mapping[str, TrialState] = {}
    known: Mapping[str, float] = {}
    budget: BudgetState | None = None
