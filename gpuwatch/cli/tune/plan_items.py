"""The nouns of `gpuwatch tune plan`: what a tuner in mode enforce would do with each GPU, by its own rules.

It predicts no savings: what a cap saves and costs is known only after it was tried.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.cli.console.document import Envelope
from gpuwatch.cli.look.items import Item, same_members
from gpuwatch.cli.tune.inputs import TunerInputs, preview
from gpuwatch.cli.tune.items import BudgetItem, ObstacleItem, budget_item
from gpuwatch.config import Mode, TuningConfig
from gpuwatch.model.consent import Consents
from gpuwatch.model.snapshot import Gpu
from gpuwatch.model.view import View
from gpuwatch.tuning.cycle.cycle import FIXED
from gpuwatch.tuning.cycle.gang import ladder_of, sampled_capabilities
from gpuwatch.tuning.cycle.obstacles import MAX_VIEW_INTERVAL
from gpuwatch.tuning.energy.model import Ladder
from gpuwatch.tuning.energy.search import first
from gpuwatch.tuning.gates.consent import TuningRequest, consent_decision, tuning_request
from gpuwatch.tuning.gates.owners import Gang, consent_of, gangs
from gpuwatch.tuning.model.setting import Knob
from gpuwatch.tuning.model.status import GpuTuning, ObstacleReason
from gpuwatch.tuning.power_budget.allocation import PowerDemand, share
from gpuwatch.tuning.power_budget.demand import natural, watts_of

CONSENTS = (ObstacleReason.STOPPED, ObstacleReason.OPTED_OUT, ObstacleReason.NOT_OPTED_IN, ObstacleReason.NO_CONSENT)


class PlanItem(Item, frozen=True, kw_only=True):
    """One GPU. `mode`: the least that operator, Node, namespace, pod allow if `tuning.mode` is enforce; `decided_by`:
    what decides it. `gang`: all GPUs that are set together with it. `bound`: the share of its speed the work may lose.

    `first`, `lowest` and `top`: the first value of the setting to be tried, the lowest that is ever tried, and that of
    full speed; hertz or watts, from the View: the driver's own steps may lie a little higher. `budget_limit`: its share
    of `tuning.node_budget_watts`, watts: as a tuner that answers has set it, or else by the present draw. Null: none,
    or not known.
    """

    gpu: int
    uuid: str
    would_tune: bool
    mode: Mode
    decided_by: str
    users: tuple[str, ...]
    gang: tuple[int, ...]
    work_class: str | None
    bound: float | None
    knob: Knob | None
    first: float | None
    lowest: float | None
    top: float | None
    budget_limit: float | None
    obstacles: tuple[ObstacleItem, ...]


class TunePlan(Envelope, frozen=True, kw_only=True):
    """`mode`: of the tuner that answers, or else as configured; the plan does not depend on it. `budget`: how it would
    be shared.
    """

    mode: str
    budget: BudgetItem | None


class PlanBasis(NamedTuple):
    """The inputs of a plan. `config`: in mode enforce."""

    view: View
    config: TuningConfig
    consents: Consents | None
    samples: Mapping[str, Gpu]
    found: Mapping[str, GpuTuning]
    inputs: TunerInputs


def planned(
    view: View, inputs: TunerInputs, consents: Consents | None
) -> tuple[tuple[PlanItem, ...], BudgetItem | None]:
    """Every GPU, by index, and the budget. Without an agent, the View's interval counts as short enough."""
    if not inputs.agent:
        view = replace(view, snapshot=replace(view.snapshot, interval=MAX_VIEW_INTERVAL))
    samples = {gpu.identity.uuid: gpu for gpu in view.snapshot.gpus}
    enforcing = replace(inputs.config.tuning, mode="enforce")
    basis = PlanBasis(view, enforcing, consents, samples, preview(view, inputs, consents, "enforce"), inputs)
    groups = gangs(view, consents)
    limits, budget = _shared(basis, groups)
    items = [item for gang in groups for item in _items(basis, gang, limits)]
    return tuple(sorted(items, key=lambda item: item.gpu)), budget


def _items(basis: PlanBasis, gang: Gang, limits: Mapping[str, float]) -> Iterator[PlanItem]:
    request = tuning_request(basis.config, basis.consents, gang.owners, basis.view.snapshot.at)
    # no ladder: an obstacle states why, or the ladder has no step
    boards = [sampled_capabilities(basis.samples[uuid]) if uuid in basis.samples else None for uuid in gang.uuids]
    found = ladder_of(boards, basis.config)
    ladder = found if isinstance(found, Ladder) and found.caps else None
    indexes = tuple(sorted(basis.found[uuid].index for uuid in gang.uuids if uuid in basis.found))
    draws = [watts_of(basis.samples[uuid].power) for uuid in gang.uuids if uuid in basis.samples]
    known = [draw for draw in draws if draw is not None]
    start = first(ladder, request.terms, sum(known) / len(known)) if ladder and request.terms and known else None
    for uuid in gang.uuids:
        gpu = basis.found.get(uuid)
        if gpu is None:
            continue
        obstacles = tuple(same_members(ObstacleItem, each) for each in gpu.obstacles)
        yield PlanItem(
            gpu=gpu.index,
            uuid=uuid,
            would_tune=bool(gang.owners) and not obstacles and ladder is not None,
            mode=request.mode,
            decided_by=_decided_by(basis, gang, request),
            users=tuple(owner.name for owner in gang.owners),
            gang=indexes,
            work_class=request.terms.latency if request.terms else None,
            bound=request.terms.slowdown if request.terms else None,
            knob=ladder.knob if ladder else None,
            first=start,
            lowest=ladder.floor if ladder else None,
            top=ladder.top if ladder else None,
            budget_limit=limits.get(uuid),
            obstacles=obstacles,
        )


def _decided_by(basis: PlanBasis, gang: Gang, request: TuningRequest) -> str:
    """What decides the mode: an obstacle, or for each pod its own or its namespace's consent, else the operator."""
    obstacle = request.obstacle
    if request.mode != "enforce" and obstacle is not None and obstacle.reason in CONSENTS:
        return obstacle.message
    messages = []
    for owner in gang.owners:
        if not owner.is_pod:
            continue
        message = ""
        pod = consent_of(owner, basis.consents)
        if pod is not None and basis.consents is not None:
            namespace = basis.consents.namespaces.get(pod.namespace, {})
            places = [(f"pod {owner.name}", pod.annotations), (f"namespace {pod.namespace}", namespace)]
            decision = consent_decision(places)
            message = decision.message if decision else ""
        messages.append(message or f"tuning.pods is {basis.config.pods}")
    return "; ".join(messages) or "the operator's configuration"


def _shared(basis: PlanBasis, groups: tuple[Gang, ...]) -> tuple[Mapping[str, float], BudgetItem | None]:
    """The shares of a budget, watts by uuid: as a tuner that answers has set them, or else by the present draw."""
    budget, tuner = basis.config.node_budget_watts, basis.inputs.tuner
    if budget is None:
        return {}, None
    if tuner is not None and tuner.budget is not None and tuner.budget.budget == budget:
        return {gpu.uuid: gpu.power_limit for gpu in tuner.gpus if gpu.power_limit is not None}, budget_item(
            tuner.budget
        )
    demands = list(_demands(basis, groups))
    limits = [gpu.power.limit_enforced for gpu in basis.samples.values()]
    draws = [watts_of(gpu.power) for gpu in basis.samples.values()]
    sums = {
        "limits": sum(each or 0.0 for each in limits) if None not in limits else None,
        "draw": sum(each or 0.0 for each in draws) if None not in draws else None,
    }
    if len(demands) < len(basis.found):
        message = "a GPU does not report its power limits"
        return {}, BudgetItem(budget=budget, how="waiting", message=message, **sums)
    shares = share(budget, demands)
    return shares.limits, BudgetItem(budget=budget, how=shares.how, message=shares.message, **sums)


def _demands(basis: PlanBasis, groups: tuple[Gang, ...]) -> Iterator[PowerDemand]:
    """The demand of each GPU whose power limits are known."""
    settings = basis.inputs.actuation.settings if basis.inputs.actuation else ()
    limits = ((each.uuid, each.original) for each in settings if each.knob == "power_limit")
    originals = {uuid: watts for uuid, watts in limits if watts is not None}  # before gpuwatch changed them
    for gang in groups:
        request = tuning_request(basis.config, basis.consents, gang.owners, basis.view.snapshot.at)
        for uuid in gang.uuids:
            power = basis.samples[uuid].power if uuid in basis.samples else None
            if power is None or power.limit_min is None or power.limit_configured is None:
                continue
            yield PowerDemand(
                uuid=uuid,
                floor=power.limit_min,
                ceiling=originals.get(uuid, power.limit_configured),
                draw=natural(None, watts_of(power), power.limit_enforced),
                priority=request.priority,
                fixed=power.limit_configured
                if any(obstacle.reason in FIXED for obstacle in basis.found[uuid].obstacles)
                else None,
            )
