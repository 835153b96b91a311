"""What a tuner reports about itself: for each GPU whether it may be tuned now, and why not."""

from enum import StrEnum

from gpuwatch.model.snapshot import Record
from gpuwatch.tuning.model.setting import Actuation, Knob


class TuningState(StrEnum):
    """What the tuner does with a GPU."""

    IDLE = "idle"  # it has no obstacle, but no workload uses it
    ELIGIBLE = "eligible"  # it would be tuned; the mode is not enforce
    OBSERVING = "observing"  # at full speed: is there a signal, and is it steady?
    SEARCHING = "searching"
    HOLDING = "holding"
    VERIFYING = "verifying"
    RESTING = "resting"  # its work holds it and does nothing: the lowest clock
    REFUSED = "refused"


class ObstacleReason(StrEnum):
    """Why a GPU is refused; reported in this order."""

    STOPPED = "stopped"  # `gpuwatch tune stop`, or the Node's annotation
    NO_GUARD = "no_guard"
    STALE_VIEW = "stale_view"
    SLOW_VIEW = "slow_view"
    QUARANTINED = "quarantined"
    LOST = "lost"
    UNRESPONSIVE = "unresponsive"
    UNKNOWN = "unknown"
    FAULT = "fault"
    XID = "xid"
    REPAIR_PENDING = "repair_pending"
    SLOWDOWN = "slowdown"
    MONITORING = "monitoring"
    MIG = "mig"
    VGPU = "vgpu"
    DISPLAY = "display"
    OWNERS_UNKNOWN = "owners_unknown"
    SHARED = "shared"
    CONFLICT = "conflict"
    NO_CONSENT = "no_consent"  # the pod's consent is not known
    OPTED_OUT = "opted_out"
    NOT_OPTED_IN = "not_opted_in"
    NO_CLASS = "no_class"  # its owner has not declared it `serving` or `batch`
    GANG = "gang"  # other GPUs of the same work are refused, or may be on other nodes
    NO_COUNTERS = "no_counters"
    NO_KNOB = "no_knob"
    RATE_LIMIT = "rate_limit"
    NOT_SET = "not_set"  # the driver refused, or does not answer
    # what the energy tuner found: the values of energy.model.Refusal
    WEAK_SIGNAL = "weak_signal"
    UNSTEADY = "unsteady"
    DISAGREE = "signals_disagree"
    NO_PROGRESS = "no_progress"  # several owners, and GPU counters measure only their sum
    NO_SLO = "no_slo"  # the histogram that its SLO names cannot be read
    NO_STEP = "no_step"
    NOT_OBEYED = "cap_not_obeyed"
    UNREADABLE = "unreadable"
    NO_GAIN = "no_gain"
    FAILED = "verification_failed"
    RELEASED = "released"


class Obstacle(Record, frozen=True, kw_only=True):
    """One reason against tuning a GPU."""

    reason: ObstacleReason
    message: str


class GpuTuning(Record, frozen=True, kw_only=True):
    """One GPU. `foreign`: of each knob that can be read, whether another process has set it.

    `clock_cap` hertz and `power_limit` watts are what gpuwatch has in force now; None: nothing. `slowdown`,
    `slowdown_upper` (95 %) and `saved` are shares: of its speed lost, of the energy for a unit of work saved; None: not
    measured. `bound`: the slowdown allowed. `signal`: what caps are judged by, `counters` of the GPU, the
    application's own `progress` or its `slo`; None: none is. `joules_saved`: since the tuner started, rests too.
    """

    index: int
    uuid: str
    state: TuningState
    obstacles: tuple[Obstacle, ...] = ()
    foreign: dict[Knob, bool] = {}
    owners: tuple[str, ...] = ()
    bound: float | None = None
    clock_cap: float | None = None
    power_limit: float | None = None
    slowdown: float | None = None
    slowdown_upper: float | None = None
    saved: float | None = None
    signal: str | None = None
    joules_saved: float = 0.0
    since: float | None = None  # unix seconds: in this state
    note: str = ""  # what is being done, or would be, as text for display

    @property
    def reason(self) -> ObstacleReason | None:
        """The first obstacle's; None: there is none."""
        return self.obstacles[0].reason if self.obstacles else None

    @property
    def message(self) -> str:
        """All obstacles."""
        return "; ".join(obstacle.message for obstacle in self.obstacles)


class BudgetState(Record, frozen=True, kw_only=True):
    """The node's power budget, watts. `limits`: sum of the limits in force; `draw`: of the draws; None: not known."""

    budget: float
    how: str  # power_budget.allocation.ShareMethod, or a BudgetCondition
    message: str = ""
    limits: float | None = None
    draw: float | None = None


class TunerState(Record, frozen=True, kw_only=True):
    """As of the newest cycle. `guard`: whether its heartbeat arrived lately, None: the tuner sets nothing.
    `consents_at`: of the newest consents, unix seconds; None: there are none. `stopped`: the user and why, if it is.
    """

    mode: str
    at: float = 0.0  # unix seconds
    guard: bool | None = None
    consents_at: float | None = None
    stopped: str = ""
    budget: BudgetState | None = None
    gpus: tuple[GpuTuning, ...] = ()
    view_at: float | None = None
    actuation: Actuation | None = None  # None: the record cannot be read
    actions: dict[tuple[Knob, str], int] = {}  # (knob, result) -> count since the start
    config_error: str | None = None
    trouble: str | None = None  # why no more is known at the moment
