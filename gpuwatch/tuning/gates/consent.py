"""Whether the owners of GPUs consent to be tuned, how far, and which setting decides that.

Each of these may allow less than the others, none more: the operator's configuration, the Node, the namespace, the pod.
A value that cannot be read counts as a refusal, and is reported.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from gpuwatch.config import Mode, TuningConfig
from gpuwatch.model.consent import (
    AUTOTUNE,
    CLASS,
    GANG,
    MAX_SLOWDOWN,
    POWER_AGENTS,
    PROGRESS,
    SLO,
    Consents,
    PodConsent,
)
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.slo import Target, slo_targets
from gpuwatch.model.snapshot import Record
from gpuwatch.tuning.energy.model import Terms
from gpuwatch.tuning.gates.owners import Owner, consent_of
from gpuwatch.tuning.model.status import Obstacle, ObstacleReason

MODES: tuple[Mode, ...] = ("off", "observe", "enforce")
"""Least permissive first."""

Latency = Literal["batch", "serving"]
CLASSES: tuple[Latency, ...] = ("batch", "serving")

SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]{0,9})?|\.[0-9]{1,9}) ?(%?)")

SHOWN = 40
"""Characters shown of a value that cannot be read."""

Place = tuple[str, Mapping[str, str]]
"""A pod, a namespace or the Node by name, and its annotations."""


class TuningRequest(Record, frozen=True, kw_only=True):
    """What all owners of some GPUs consent to. `mode`: the least of all; `terms` None: the class is set neither by
    an annotation nor by `tuning.work_class`, or a value cannot be read. `obstacle`: the most serious; None:
    they may be tuned, as far as `mode` goes. `priority`: the highest of their PriorityClasses.
    """

    mode: Mode
    terms: Terms | None = None
    obstacle: Obstacle | None = None
    priority: int = 0


class ConsentDecision(NamedTuple):
    """How far tuning may go; `message`: which annotation or setting decides that."""

    mode: Mode
    message: str


class ConsentValue(NamedTuple):
    """The consent of one owner, or the configuration for it. None: not set, or it cannot be read."""

    mode: Mode
    slowdown: float | None = None
    latency: Latency | None = None
    slo: tuple[Target, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    priority: int = 0


def tuning_request(
    config: TuningConfig, consents: Consents | None, owners: Sequence[Owner], now: float, *, shared: bool = False
) -> TuningRequest:
    """What these owners consent to; without owners, what the operator would do. `now`: unix seconds; `shared`: several
    of them are on one GPU.
    """
    values = [_consent_value(config, consents, owner, now) for owner in owners] or [_outside_pods(config)]
    node = consent_decision([("the Node", consents.node)] if consents else [])
    obstacles = [obstacle for value in values for obstacle in value.obstacles]
    if node is not None and node.mode != "enforce":
        reason = ObstacleReason.STOPPED if node.mode == "off" else ObstacleReason.NOT_OPTED_IN
        obstacles.append(Obstacle(reason=reason, message=node.message))
    slowdowns = [value.slowdown for value in values if value.slowdown is not None]
    latencies = {value.latency for value in values}
    terms = None
    if len(slowdowns) == len(values) and None not in latencies:  # the terms that hold for all of them, or for each
        latency: Latency = "serving" if "serving" in latencies else "batch"
        slo = tuple(target for value in values for target in value.slo) if all(value.slo for value in values) else ()
        each = shared and config.shared == "refuse"
        terms = Terms(slowdown=min(slowdowns), latency=latency, each=each, slo=slo)
    return TuningRequest(
        mode=min([config.mode, *(value.mode for value in values), *([node.mode] if node else [])], key=MODES.index),
        terms=terms,
        obstacle=min(obstacles, key=lambda obstacle: tuple(ObstacleReason).index(obstacle.reason), default=None),
        priority=max(value.priority for value in values),
    )


def stopped(consents: Consents | None) -> str:
    """Which annotation of the Node has stopped the tuner, however old the consents are; empty: none."""
    node = consent_decision([("the Node", consents.node)] if consents else [])
    return node.message if node is not None and node.mode == "off" else ""


def opted_in(config: TuningConfig, consents: Consents | None, owner: Owner, now: float) -> bool:
    """Whether a pod has opted in, whatever the tuner's own mode is. Work outside of pods has opted in if the
    operator names the socket at which it counts its work.
    """
    if not owner.is_pod:
        return bool(config.progress_socket)
    pod = _current_consent(consents, owner, now)
    return pod is not None and consents is not None and _pod_decision(config, consents, pod).mode == "enforce"


def names_progress(config: TuningConfig, consents: Consents | None, owner: Owner) -> bool:
    """Whether a pod or its namespace names where its work is counted, or the operator for work outside of pods. The
    search finds out whether it is counted well enough.
    """
    if not owner.is_pod:
        return bool(config.progress_socket)
    pod = consent_of(owner, consents)
    return pod is not None and consents is not None and any(PROGRESS in texts for _, texts in _places(consents, pod))


def power_agent(consents: Consents | None, owner: Owner) -> str:
    """The annotation by which another agent sets the power of a pod's GPUs; empty: there is none."""
    pod = consent_of(owner, consents)
    return next((name for name in POWER_AGENTS if pod is not None and name in pod.annotations), "")


def consent_decision(places: Sequence[Place]) -> ConsentDecision | None:
    """The least permissive value of AUTOTUNE in these places. None: there is none."""
    decisions = []
    for place, annotations in places:
        if (text := annotations.get(AUTOTUNE)) is not None:
            mode = next((mode for mode in MODES if mode == text.strip()), None)
            shown = mode or f"{_shown(text)}, which is none of {', '.join(MODES)}"
            decisions.append(ConsentDecision(mode or "off", f"{place} sets {AUTOTUNE}: {shown}"))
    return min(decisions, key=lambda each: MODES.index(each.mode), default=None)


def share(text: str) -> float | None:
    """A share of its speed that work may lose: `0.03` or `3%`. None: the text is not one, or not between 0 and 1."""
    found = SHARE.fullmatch(text.strip())
    value = float(found[1]) / (100 if found[2] else 1) if found else 0.0
    return value if 0 < value < 1 else None


def _consent_value(config: TuningConfig, consents: Consents | None, owner: Owner, now: float) -> ConsentValue:
    if not owner.is_pod:
        return _outside_pods(config)
    pod = _current_consent(consents, owner, now)
    if consents is None or pod is None:
        message = f"the consent of {owner.name} is not known: {_unknown_reason(consents, now)}"
        return ConsentValue("observe", obstacles=(Obstacle(reason=ObstacleReason.NO_CONSENT, message=message),))
    places = _places(consents, pod)
    decision = _pod_decision(config, consents, pod)
    slowdowns = [
        (place, text, share(text))
        for place, annotations in places
        if (text := annotations.get(MAX_SLOWDOWN)) is not None
    ]
    errors = [
        f"{place} sets {MAX_SLOWDOWN}: {_shown(text)}, write 0.03 or 3%"
        for place, text, value in slowdowns
        if not value
    ]
    latency, class_error = _class(config, places)
    slo, slo_error = _slo(places)
    if slo and latency == "batch" and any(CLASS in annotations for _, annotations in places):
        errors.append(f"{SLO} is for work of class serving, and {CLASS} is batch; remove one of them")
    elif slo:
        latency, class_error = "serving", ""
    errors += [slo_error] if slo_error else []
    messages = (
        (ObstacleReason.OPTED_OUT, decision.message if decision.mode == "off" else ""),
        (ObstacleReason.OPTED_OUT, "; ".join(errors)),
        (ObstacleReason.NOT_OPTED_IN, decision.message if decision.mode == "observe" else ""),
        (ObstacleReason.NO_CLASS, class_error),
        (ObstacleReason.GANG, _multi_node_job(pod)),
    )
    return ConsentValue(
        mode="off" if errors else decision.mode,
        slowdown=None if errors else min([config.max_slowdown, *(value for _, _, value in slowdowns if value)]),
        latency=latency,
        slo=slo,
        obstacles=tuple(Obstacle(reason=reason, message=message) for reason, message in messages if message),
        priority=pod.priority,
    )


def _outside_pods(config: TuningConfig) -> ConsentValue:
    """Work outside of pods, for which only the configuration counts."""
    missing = Obstacle(reason=ObstacleReason.NO_CLASS, message="tuning.work_class is neither batch nor serving")
    obstacles = () if config.work_class else (missing,)
    return ConsentValue(config.mode, config.max_slowdown, config.work_class, obstacles=obstacles)


def _current_consent(consents: Consents | None, owner: Owner, now: float) -> PodConsent | None:
    return None if consents is None or consents.is_old(now) else consent_of(owner, consents)


def _unknown_reason(consents: Consents | None, now: float) -> str:
    if consents is None:
        return "there is no file of `gpuwatch tuner --consents`"
    if consents.is_old(now):
        return f"`gpuwatch tuner --consents` wrote {now - consents.at:.0f} s ago"
    return "the API server has not reported it yet"


def _places(consents: Consents, pod: PodConsent) -> tuple[Place, ...]:
    """The pod first: its own class and SLO win."""
    namespace = consents.namespaces.get(pod.namespace, {})
    return (f"pod {pod.namespace}/{pod.name}", pod.annotations), (f"namespace {pod.namespace}", namespace)


def _pod_decision(config: TuningConfig, consents: Consents, pod: PodConsent) -> ConsentDecision:
    message = f"{pod.namespace}/{pod.name} has no {AUTOTUNE}, and tuning.pods is {config.pods}"
    return consent_decision(_places(consents, pod)) or ConsentDecision(config.pods, message)


def _class(config: TuningConfig, places: Sequence[Place]) -> tuple[Latency | None, str]:
    """The work's class, or why it is not known."""
    for place, annotations in places:
        if (text := annotations.get(CLASS)) is not None:
            found = next((each for each in CLASSES if each == text.strip()), None)
            return (
                found,
                "" if found else f"{place} sets {CLASS}: {_shown(text)}, which is none of {', '.join(CLASSES)}",
            )
    return config.work_class, "" if config.work_class else f"{places[0][0]} has no {CLASS}"


def _slo(places: Sequence[Place]) -> tuple[tuple[Target, ...], str]:
    """The targets of the SLO, by the pod or else its namespace; or why they cannot be read."""
    for place, annotations in places:
        if (text := annotations.get(SLO)) is not None:
            try:
                return slo_targets(text), ""
            except GpuwatchError as error:
                return (), f"{place}: {error}"
    return (), ""


def slo_of(consents: Consents | None, owner: Owner) -> tuple[Target, ...]:
    """The targets of a pod, or of its namespace; empty: there are none, or they cannot be read."""
    pod = consent_of(owner, consents)
    return () if pod is None or consents is None else _slo(_places(consents, pod))[0]


def _multi_node_job(pod: PodConsent) -> str:
    """Why a job with ranks elsewhere is refused: while ranks wait for each other, a cap here seems to cost nothing."""
    if pod.job is None or pod.annotations.get(GANG, "").strip() in ("local", "independent"):
        return ""
    return (
        f"pod {pod.namespace}/{pod.name} belongs to {pod.job}, which may be on other nodes too; "
        f"if not: {GANG}: local; if its pods do not wait for each other: {GANG}: independent"
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")
