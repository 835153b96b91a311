"""What the energy tuner remembers of a gang of GPUs between two windows: plain values that survive a restart."""

from enum import StrEnum

from gpuwatch.model.snapshot import Record
from gpuwatch.tuning.energy.windows import Gang, Pair


class Phase(StrEnum):
    """What is being done."""

    OBSERVE = "observe"  # at full speed: is there a signal, and is it steady?
    SEARCH = "search"
    HOLD = "hold"
    VERIFY = "verify"  # one block at the held cap
    REFUSED = "refused"  # nothing is done, for the reason told


class Refusal(StrEnum):
    """Why a GPU is not tuned. The first ones speak of its work, the last of what was found out."""

    WEAK_SIGNAL = "weak_signal"
    UNSTEADY = "unsteady"
    DISAGREE = "signals_disagree"
    NO_STEP = "no_step"  # the knob has no lower setting that may be tried
    NOT_OBEYED = "cap_not_obeyed"
    UNREADABLE = "unreadable"
    NO_GAIN = "no_gain"
    FAILED = "verification_failed"
    RELEASED = "released"  # the caller lifted the cap: a gate closed


class Probe(Record, frozen=True, kw_only=True):
    """What was measured at one cap. `good` None: not decided yet; `disagreed`: its signals told two stories."""

    cap: float
    pairs: tuple[Pair, ...] = ()
    good: bool | None = None
    disagreed: bool = False


class State(Record, frozen=True, kw_only=True):
    """A gang of GPUs. Seconds are those of the windows seen since the phase began, as there is no clock here.

    `full`: the windows of OBSERVE. `before`, `reduced`: those of the pair under way in `probe`; `newest`: the reduced
    one of the pair before. `probes`: those that are finished and speak of the work of now; `left`: how many more may be
    made. `held`: the cap that is held, whose probe is among `probes`. `watched`: the first windows of a hold, `level`
    what they say, `odd`: windows in a row that look otherwise, `holds`: how many ran their time since the search.
    `failures`: verifications in a row that failed. `rest`: seconds to wait when refused, doubled each time. `ignored`:
    windows in a row that were measured at another cap than asked for or could not be read. `lifted`: windows for which
    a burst keeps the cap away.
    """

    phase: Phase = Phase.OBSERVE
    refusal: Refusal | None = None
    seconds: float = 0.0
    full: tuple[Gang, ...] = ()
    before: Gang | None = None
    reduced: Gang | None = None
    newest: Gang | None = None
    probe: Probe | None = None
    probes: tuple[Probe, ...] = ()
    left: int = 0
    held: float | None = None
    watched: tuple[Gang, ...] = ()
    level: tuple[tuple[float, float], ...] = ()
    odd: int = 0
    holds: int = 0
    failures: int = 0
    rest: float = 0.0
    ignored: int = 0
    lifted: int = 0


class Decision(Record, frozen=True, kw_only=True):
    """What is to be in force from now on. `cap` None: nothing, the GPU's own setting."""

    cap: float | None
    words: str
