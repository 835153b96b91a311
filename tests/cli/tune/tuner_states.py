"""What a tuner says of the node `views.healthy`, for the screens: at work, and in trouble; and what it would do."""

from msgspec.structs import replace

from gpuwatch.model.consent import AUTOTUNE, CLASS, MAX_SLOWDOWN, Consents, PodConsent
from gpuwatch.model.snapshot import Activity, Clocks, Power
from gpuwatch.model.view import View
from gpuwatch.tuning.model.status import (
    BudgetState,
    GpuTuning,
    Obstacle,
    ObstacleReason,
    TunerState,
    TuningState,
)
from tests.model import views

TRAIN, CHAT = "ml-research/llama-3-pretrain-worker-0-7b9c5d", "serving/chat-0"


def gpu(index: int, state: TuningState, reason: ObstacleReason | None = None, message: str = "", **more) -> GpuTuning:
    obstacles = (Obstacle(reason=reason, message=message),) if reason else ()
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
        note="next trial in 15 min",
    )
    tried = gpu(
        1, TuningState.SEARCHING, owners=(CHAT,), bound=0.03, clock_cap=1.785e9, note="1785 MHz in turns, pair 6"
    )
    return TunerState(
        mode="enforce",
        guard=True,
        consents_at=views.AT - 8,
        budget=BudgetState(budget=1800.0, how="roomy", message="no GPU is limited", limits=1795.0, draw=1042.4),
        gpus=(held, tried, gpu(2, TuningState.IDLE)),
    )


def troubled() -> TunerState:
    """Everything is given back: the guard and the consents are silent, and a person has stopped it."""
    message = {0: "stopped by ada: benchmark until noon", 1: "stopped by ada: benchmark until noon"}
    stopped = tuple(
        gpu(index, TuningState.REFUSED, ObstacleReason.STOPPED, message[index], owners=(owner,))
        for index, owner in enumerate((TRAIN, CHAT))
    )
    asked = gpu(2, TuningState.REFUSED, ObstacleReason.NO_CONSENT, "what team/notebook wants is not known")
    return replace(
        enforcing(),
        guard=False,
        consents_at=views.AT - 600,
        stopped="stopped by ada: benchmark until noon",
        trouble="cannot read /var/lib/gpuwatch/consents/consents.json; Permission denied",
        budget=None,
        gpus=(*stopped, asked),
    )


def tunable(interval: float = 1.0) -> View:
    """`views.healthy` with all that a tuner needs to see; `interval`: seconds between the agent's looks."""
    view = views.healthy()
    gpus = tuple(
        replace(
            gpu,
            activity=Activity(sm=0.7, tensor=0.4, dram=0.5, graphics=0.98),
            clocks=Clocks(sm=1.98e9, graphics=1.98e9, graphics_max=1.98e9),
            power=Power(
                average=draw,
                energy=3.6e6,
                limit_enforced=700.0,
                limit_configured=700.0,
                limit_default=700.0,
                limit_min=200.0,
                limit_max=700.0,
            ),
        )
        for gpu, draw in zip(view.snapshot.gpus, (660.0, 310.0, 75.0), strict=True)
    )
    return replace(view, snapshot=replace(view.snapshot, interval=interval, gpus=gpus))


def consents() -> Consents:
    """The namespace of the training pod agrees, the one that serves does not."""
    train = PodConsent(
        namespace="ml-research",
        name="llama-3-pretrain-worker-0-7b9c5d",
        uid=f"uid-{views.TRAIN.pod}",
        annotations={MAX_SLOWDOWN: "3%"},
        priority=1000,
    )
    chat = PodConsent(namespace="serving", name="chat-0", uid=f"uid-{views.CHAT.pod}", annotations={AUTOTUNE: "off"})
    return Consents(
        at=views.AT - 8, namespaces={"ml-research": {AUTOTUNE: "enforce", CLASS: "batch"}}, pods=(train, chat)
    )
