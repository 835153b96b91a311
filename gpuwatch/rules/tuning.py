"""Which GPUs may be tuned now, and why the others may not."""

from collections.abc import Iterator, Mapping

from gpuwatch.model.check_names import XidClass
from gpuwatch.model.setting import Setting
from gpuwatch.model.tuner_state import GpuTuning, Obstacle, Reason, TuningState
from gpuwatch.model.view import View
from gpuwatch.rules.tuning_gates import GATES, REST_SECONDS, Case, foreign_limit, owners

Seen = Mapping[tuple[str, Reason], float]
"""(uuid, reason) -> monotonic seconds at which a gate that rests was last seen closed."""


def judge(
    view: View,
    *,
    fresh: bool,
    now: float,
    settings: tuple[Setting, ...] = (),
    seen: Seen | None = None,
    classes: Mapping[int, XidClass] | None = None,
) -> tuple[tuple[GpuTuning, ...], Seen]:
    """Every GPU that was ever seen, and what to hand in next time as `seen`. `now`: monotonic; `fresh`: the View tells
    of now; `settings`: the record of what gpuwatch has set; `classes`: `checks.xids`.
    """
    samples = {gpu.identity.uuid: gpu for gpu in view.snapshot.gpus}
    kept = {key: at for key, at in (seen or {}).items() if now - at < REST_SECONDS}
    found = []
    for status in view.snapshot.statuses:
        uuid = status.identity.uuid
        own = tuple(setting for setting in settings if setting.uuid == uuid)
        case = Case(view=view, status=status, gpu=samples.get(uuid), settings=own, classes=classes or {})
        obstacles: tuple[Obstacle, ...]
        if not fresh:
            obstacles = (Obstacle(reason=Reason.STALE_VIEW, words="the agent's view is too old"),)
        else:
            closed = {gate.reason: words for gate in GATES if (words := gate.closed(case))}
            kept |= {(uuid, gate.reason): now for gate in GATES if gate.rests and gate.reason in closed}
            obstacles = tuple(_obstacles(uuid, closed, kept, now))
        found.append(_tuning(case, obstacles))
    return tuple(found), kept


def _obstacles(uuid: str, closed: Mapping[Reason, str], seen: Seen, now: float) -> Iterator[Obstacle]:
    for gate in GATES:
        if gate.reason in closed:
            yield Obstacle(reason=gate.reason, words=closed[gate.reason])
        elif (at := seen.get((uuid, gate.reason))) is not None:
            yield Obstacle(reason=gate.reason, words=f"{gate.reason} {now - at:.0f} s ago, rests {REST_SECONDS:.0f} s")


def _tuning(case: Case, obstacles: tuple[Obstacle, ...]) -> GpuTuning:
    used = case.gpu is not None and bool(owners(case.view, case.gpu))
    state = TuningState.REFUSED if obstacles else TuningState.ELIGIBLE if used else TuningState.IDLE
    foreign = None if case.gpu is None else foreign_limit(case.gpu, case.settings)
    return GpuTuning(
        index=case.status.identity.index,
        uuid=case.uuid,
        state=state,
        obstacles=obstacles,
        foreign={} if foreign is None else {"power_limit": foreign},
    )
