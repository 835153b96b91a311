"""Which GPUs may be tuned now, and why the others may not."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gpuwatch.config import TuningConfig
from gpuwatch.model.consent import Consents
from gpuwatch.model.finding import XidClass
from gpuwatch.model.setting import Setting
from gpuwatch.model.view import View
from gpuwatch.tuning.gates.gates import GATES, LINGER_SECONDS, Case, foreign_limit
from gpuwatch.tuning.gates.owners import owners
from gpuwatch.tuning.model.status import GpuTuning, Obstacle, Reason, TuningState


class Span(NamedTuple):
    """Monotonic seconds at which something was first and last seen."""

    first: float
    last: float


_Key = tuple[str, Reason | Setting]
Seen = Mapping[_Key, Span]
"""By uuid: gates that rest and were closed, settings of gpuwatch's that were recorded."""

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
    kept = {key: span for key, span in (seen or {}).items() if now - span.last < _kept(key[1])}
    kept |= {(setting.uuid, setting): Span(now, now) for setting in settings}
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
            kept = _after(uuid, closed, kept, now)
            obstacles = tuple(_obstacles(uuid, closed, kept, now))
        found.append(_tuning(case, obstacles))
    return tuple(found), kept


def _kept(what: Reason | Setting) -> float:
    """Seconds for which it counts."""
    return LINGER_SECONDS if isinstance(what, Setting) else RESTS[what]


def _after(uuid: str, closed: Mapping[Reason, str], kept: dict[_Key, Span], now: float) -> dict[_Key, Span]:
    """What was seen, with the gates of one GPU as they are now; one that opened before it was proven is forgotten."""
    after = dict(kept)
    for gate in GATES:
        key = (uuid, gate.reason)
        span = kept.get(key)
        if gate.reason in closed and gate.rests:
            after[key] = Span(now if span is None else span.first, now)
        elif span is not None and span.last - span.first < gate.proven:
            del after[key]
    return after


def _obstacles(uuid: str, closed: Mapping[Reason, str], seen: Seen, now: float) -> Iterator[Obstacle]:
    for gate in GATES:
        if gate.reason in closed:
            yield Obstacle(reason=gate.reason, words=closed[gate.reason])
        elif (span := seen.get((uuid, gate.reason))) is not None:
            words = f"{gate.reason} {now - span.last:.0f} s ago, rests {gate.rests:.0f} s"
            yield Obstacle(reason=gate.reason, words=words)


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
