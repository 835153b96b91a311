"""What a tuner says about itself: for each GPU whether it may be tuned now, and why not."""

from enum import StrEnum

from gpuwatch.model.setting import Actuation, Knob
from gpuwatch.model.snapshot import Record


class TuningState(StrEnum):
    """Where a GPU is in the tuner's eyes."""

    IDLE = "idle"  # nothing stands against it, but nobody uses it
    ELIGIBLE = "eligible"
    REFUSED = "refused"


class Reason(StrEnum):
    """Why a GPU is refused; the order is that in which they are told."""

    STALE_VIEW = "stale_view"
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


class Obstacle(Record, frozen=True, kw_only=True):
    """One thing that stands against tuning a GPU."""

    reason: Reason
    words: str


class GpuTuning(Record, frozen=True, kw_only=True):
    """One GPU. `foreign` tells of each knob that can be read whether somebody else has turned it."""

    index: int
    uuid: str
    state: TuningState
    obstacles: tuple[Obstacle, ...] = ()
    foreign: dict[Knob, bool] = {}

    @property
    def reason(self) -> Reason | None:
        """The first obstacle's; None: there is none."""
        return self.obstacles[0].reason if self.obstacles else None

    @property
    def words(self) -> str:
        """All obstacles."""
        return "; ".join(obstacle.words for obstacle in self.obstacles)


class TunerState(Record, frozen=True, kw_only=True):
    """As of the newest cycle."""

    mode: str
    gpus: tuple[GpuTuning, ...] = ()
    view_at: float | None = None
    actuation: Actuation | None = None  # None: the record cannot be read
    actions: dict[tuple[Knob, str], int] = {}  # (knob, result) -> count since the start
    config_error: str | None = None
    trouble: str | None = None  # why nobody can say more just now
