"""Which GPUs may be tuned now, and why the others may not."""

from collections.abc import Iterator, Mapping

from gpuwatch.config import TuningConfig
from gpuwatch.model.check_names import XidClass
from gpuwatch.model.consent import Consents
from gpuwatch.model.setting import Setting
from gpuwatch.model.tuner_state import GpuTuning, Obstacle, Reason, TuningState
from gpuwatch.model.view import View
from gpuwatch.rules.tuning_gangs import owners
from gpuwatch.rules.tuning_gates import GATES, Case, foreign_limit

Seen = Mapping[tuple[str, Reason | Setting], float]
"""(uuid, what) -> monotonic seconds at which a gate that rests was last closed, or a setting of gpuwatch's recorded."""

LINGER_SECONDS = 15.0
"""A sample is as old as a View may be: it may show a setting that is no longer recorded."""

RESTS = {gate.reason: gate.rests for gate in GATES}


def judge(
    view: View,
    *,
    fresh: bool,
    now: float,
    settings: tuple[Setting, ...] = (),
    seen: Seen | None = None,
    classes: Mapping[int, XidClass] | None = None,
    consents: Consents | None = None,
    config: TuningConfig | None = None,
) -> tuple[tuple[GpuTuning, ...], Seen]:
    """Every GPU that was ever seen, and what to hand in next time as `seen`. `now`: monotonic; `fresh`: the View tells
    of now; `settings`: the record of what gpuwatch has set; `classes`: `checks.xids`; `consents` None: not known,
    `config` None: nobody has opted in.
    """
    samples = {gpu.identity.uuid: gpu for gpu in view.snapshot.gpus}
    kept = {key: at for key, at in (seen or {}).items() if now - at < _kept(key[1])}
    kept |= {(setting.uuid, setting): now for setting in settings}
    found = []
    for status in view.snapshot.statuses:
        uuid = status.identity.uuid
        case = Case(
            view=view,
            status=status,
            gpu=samples.get(uuid),
            settings=tuple(what for name, what in kept if name == uuid and isinstance(what, Setting)),
            classes=classes or {},
            owners=owners(view, uuid, samples.get(uuid), consents),
            consents=consents,
            config=config,
        )
        obstacles: tuple[Obstacle, ...]
        if not fresh:
            obstacles = (Obstacle(reason=Reason.STALE_VIEW, words="the agent's view is too old"),)
        else:
            closed = {gate.reason: words for gate in GATES if (words := gate.closed(case))}
            kept |= {(uuid, reason): now for reason in closed if RESTS[reason]}
            obstacles = tuple(_obstacles(uuid, closed, kept, now))
        found.append(_tuning(case, obstacles))
    return tuple(found), kept


def _kept(what: Reason | Setting) -> float:
    """Seconds for which it counts."""
    return LINGER_SECONDS if isinstance(what, Setting) else RESTS[what]


def _obstacles(uuid: str, closed: Mapping[Reason, str], seen: Seen, now: float) -> Iterator[Obstacle]:
    for gate in GATES:
        if gate.reason in closed:
            yield Obstacle(reason=gate.reason, words=closed[gate.reason])
        elif (at := seen.get((uuid, gate.reason))) is not None:
            yield Obstacle(reason=gate.reason, words=f"{gate.reason} {now - at:.0f} s ago, rests {gate.rests:.0f} s")


def _tuning(case: Case, obstacles: tuple[Obstacle, ...]) -> GpuTuning:
    used = case.gpu is not None and bool(case.owners)
    state = TuningState.REFUSED if obstacles else TuningState.ELIGIBLE if used else TuningState.IDLE
    foreign = None if case.gpu is None else foreign_limit(case.gpu, case.settings)
    return GpuTuning(
        index=case.status.identity.index,
        uuid=case.uuid,
        state=state,
        obstacles=obstacles,
        foreign={} if foreign is None else {"power_limit": foreign},
        owners=tuple(owner.name for owner in case.owners),
    )
