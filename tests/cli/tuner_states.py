"""What a tuner says of the node `views.healthy`, for the screens: at work, and in trouble."""

from msgspec.structs import replace

from gpuwatch.model.tuner_state import (
    BudgetState,
    GpuTuning,
    Obstacle,
    Reason,
    TunerState,
    TuningState,
)
from tests.cli import views

TRAIN, CHAT = "ml-research/llama-3-pretrain-worker-0-7b9c5d", "serving/chat-0"


def gpu(index: int, state: TuningState, reason: Reason | None = None, words: str = "", **more) -> GpuTuning:
    obstacles = (Obstacle(reason=reason, words=words),) if reason else ()
    since = views.AT - 900 * (index + 1)
    return GpuTuning(index=index, uuid=views.uuid(index), state=state, obstacles=obstacles, since=since, **more)


def enforcing() -> TunerState:
    """GPU 0 is held at a cap, GPU 1 is being searched, GPU 2 does nothing."""
    held = gpu(
        0,
        TuningState.HOLDING,
        owners=(TRAIN,),
        bound=0.05,
        clock_cap=1.41e9,
        slowdown=0.031,
        slowdown_upper=0.0462,
        saved=0.112,
        joules_saved=43_560.0,
        note="held for 15 min",
    )
    tried = gpu(1, TuningState.SEARCHING, owners=(CHAT,), bound=0.03, clock_cap=1.785e9, note="1785 MHz, pair 6")
    return TunerState(
        mode="enforce",
        guard=True,
        consents_at=views.AT - 8,
        budget=BudgetState(budget=1800.0, how="roomy", words="nobody is held", limits=1795.0, draw=1042.4),
        gpus=(held, tried, gpu(2, TuningState.IDLE)),
    )


def troubled() -> TunerState:
    """Everything is given back: the guard and the consents are silent, and a person has stopped it."""
    words = {0: "stopped by ada: benchmark until noon", 1: "stopped by ada: benchmark until noon"}
    stopped = tuple(
        gpu(index, TuningState.REFUSED, Reason.STOPPED, words[index], owners=(owner,))
        for index, owner in enumerate((TRAIN, CHAT))
    )
    asked = gpu(2, TuningState.REFUSED, Reason.NO_CONSENT, "what team/notebook wants is not known")
    return replace(
        enforcing(),
        guard=False,
        consents_at=views.AT - 600,
        stopped="stopped by ada: benchmark until noon",
        trouble="cannot read /var/lib/gpuwatch/consents/consents.json; Permission denied",
        budget=None,
        gpus=(*stopped, asked),
    )
