"""One gang in one cycle: may its GPUs be tuned, by which knob, in which state is their work, what should be in force?

The slowest rank of a parallel job sets its pace. So the GPUs of one owner have one ladder of values, and change
together.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.config import TuningConfig
from gpuwatch.model.consent import ProgressCounter
from gpuwatch.model.snapshot import Gpu
from gpuwatch.tuning.cycle import gang_energy as energy
from gpuwatch.tuning.cycle.gang_energy import GangState
from gpuwatch.tuning.cycle.obstacles import EXTERNAL_REASONS, in_order
from gpuwatch.tuning.cycle.state import CycleInputs, CycleMemory, Key
from gpuwatch.tuning.energy.meter import IdleCap, is_counted
from gpuwatch.tuning.energy.model import Ladder, Terms, TrialState, clocks, limits
from gpuwatch.tuning.energy.resumption import known_cap, released, resumed
from gpuwatch.tuning.energy.slo import TargetHistogram
from gpuwatch.tuning.gates.consent import TuningRequest, slo_of, tuning_request
from gpuwatch.tuning.gates.cooldowns import Cooldown, RateLimit, wait_seconds, with_action
from gpuwatch.tuning.gates.owners import Gang, follow, returning_key
from gpuwatch.tuning.model.setting import GpuCapabilities
from gpuwatch.tuning.model.status import Obstacle, ObstacleReason

STEP_HERTZ = 15e6
"""The step between SM clocks since Turing, two steps of Volta; a tuner that observes cannot read the driver's list."""


def ladder_of(capabilities: Sequence[GpuCapabilities | None], config: TuningConfig) -> Ladder | Obstacle:
    """The ladder for GPUs that are moved together, or why there is none. None: the driver reports nothing of a GPU."""
    known = [board for board in capabilities if board is not None]
    if len(known) < len(capabilities) or not known:
        return _no_knob("the driver does not report what may be set")
    lockable = all(board.clocks for board in known)
    if config.knob == "locked_clocks" and not lockable:
        return _no_knob("its clocks cannot be locked")
    if lockable and config.knob in ("locked_clocks", "auto"):
        lowest = config.min_clock_fraction
        found = {clocks(board.clocks, top=max(board.clocks), min_fraction=lowest) for board in known}
    elif config.node_budget_watts is not None:
        return _no_knob("its clocks cannot be locked, and its power limit is the node budget's")
    elif any(board.limit is None or board.limit_min is None for board in known):
        return _no_knob("neither its clocks nor its power limit can be set")
    else:
        found = {limits(top=board.limit or 0.0, lowest=board.limit_min or 0.0) for board in known}
    if len(found) > 1:
        return _no_knob("its GPUs are of different kinds, and they may only be moved together")
    return found.pop()


def sampled_capabilities(gpu: Gpu) -> GpuCapabilities:
    """What may be set, by a sample, for a tuner without access to the driver: the clocks in steps of STEP_HERTZ."""
    top, power = gpu.clocks.graphics_max, gpu.power
    steps = 0 if top is None else int(top / STEP_HERTZ)
    return GpuCapabilities(
        uuid=gpu.identity.uuid,
        clocks=tuple((top or 0.0) - STEP_HERTZ * step for step in range(steps)),
        limit=power.limit_configured,
        limit_default=power.limit_default,
        limit_min=power.limit_min,
        limit_max=power.limit_max,
    )


def _no_knob(message: str) -> Obstacle:
    return Obstacle(reason=ObstacleReason.NO_KNOB, message=message)


class CycleSamples(NamedTuple):
    """What this cycle knows, by uuid: all samples, those of them that are new, and the obstacles of the GPUs."""

    samples: Mapping[str, Gpu]
    new: Mapping[str, Gpu]
    closed: Mapping[str, tuple[Obstacle, ...]]


class GangDecision(NamedTuple):
    """The decision about a gang. `tuned` None: nothing about these GPUs is worth keeping for the next cycle."""

    gang: Gang
    request: TuningRequest
    closed: Mapping[str, tuple[Obstacle, ...]]
    tuned: GangState | None = None
    target: energy.TargetCap | None = None
    rate_limits: Mapping[str, RateLimit] = {}
    cooldown: Cooldown | None = None


def decide(
    gang: Gang, memory: CycleMemory, inputs: CycleInputs, samples_now: CycleSamples, held: frozenset[Key]
) -> GangDecision:
    """Decide for one cycle. `held`: the settings of ours that may be in force."""
    gang, is_other = follow(memory.gangs.get(gang.key), gang)
    before = None if is_other else memory.tuned.get(gang.key)
    request = tuning_request(inputs.config, inputs.consents, gang.owners, inputs.at, shared=gang.shared)
    closed = {uuid: samples_now.closed.get(uuid, ()) for uuid in gang.uuids}
    if not gang.owners:
        return GangDecision(gang, request, closed)
    capabilities = [inputs.capabilities.get(uuid) for uuid in gang.uuids]
    if not inputs.enforcing:
        samples = [samples_now.samples.get(uuid) for uuid in gang.uuids]
        capabilities = [None if gpu is None else sampled_capabilities(gpu) for gpu in samples]
    ladder = ladder_of(capabilities, inputs.config)
    own = tuple(_common_obstacles(gang, request, ladder, before, samples_now))
    closed = _together({uuid: (*each, *own) for uuid, each in closed.items()})
    if isinstance(ladder, Obstacle) or request.terms is None:
        return GangDecision(gang, request, closed, before and _suspended(before, gang, inputs, closed))

    tuned = before or GangState(
        ladder=ladder,
        terms=request.terms,
        state=_initial_state(gang, memory, inputs, ladder, request.terms, is_other=is_other),
    )
    if any(closed.values()):
        return GangDecision(gang, request, closed, _suspended(tuned, gang, inputs, closed))
    tuned = energy.with_terms(tuned, ladder, request.terms, len(gang.uuids))
    if tuned.owned and not all((uuid, ladder.knob) in held for uuid in gang.uuids):
        # The guard or an operator has restored what was set and is no longer recorded.
        tuned = replace(tuned, state=released(tuned.state), idle=IdleCap(), resting=False, estimate=None)

    enforcing = inputs.enforcing and request.mode == "enforce"
    if all(uuid in samples_now.new for uuid in gang.uuids):
        gpus = tuple(samples_now.new[uuid] for uuid in gang.uuids)
        tuned = energy.with_idle(tuned, gpus, inputs.now, allowed=enforcing and tuned.terms.latency == "batch")
        if not tuned.resting:
            known = inputs.progress.owners if inputs.progress is not None else {}
            counters = tuple(known.get(owner.id) for owner in gang.owners)
            slo = slo_histograms(gang, inputs) if tuned.terms.slo else ()
            tuned = energy.with_samples(tuned, gpus, counters if any(counters) else (), enforcing=enforcing, slo=slo)
    if not enforcing:
        return GangDecision(gang, request, closed, energy.lifted(tuned, inputs.at))
    target = energy.target(tuned)
    if target is None or target.value is None or target.value == tuned.tried:
        return GangDecision(gang, request, closed, tuned, target)
    return _attempt(GangDecision(gang, request, closed, tuned, target), tuned, target.value, memory, inputs)


def slo_histograms(gang: Gang, inputs: CycleInputs) -> tuple[TargetHistogram, ...]:
    """The targets of all owners, as in their terms, each with its histogram from the owner's page."""
    known = inputs.progress.owners if inputs.progress is not None else {}
    return tuple(
        (target, known.get(owner.id, ProgressCounter()).histograms.get(target.name))
        for owner in gang.owners
        for target in slo_of(inputs.consents, owner)
    )


def _initial_state(
    gang: Gang, memory: CycleMemory, inputs: CycleInputs, ladder: Ladder, terms: Terms, *, is_other: bool
) -> TrialState:
    """A state that an earlier tuner saved for this owner is verified once; without one, a search begins at the cap that
    held for the same work before, if one is known.
    """
    state = inputs.saved.get(gang.key)
    if not inputs.enforcing:
        return TrialState()
    if state is None or gang.key in memory.used_saves or is_other:
        return TrialState(known=inputs.known.get(_work_key(gang, ladder, terms, inputs)))
    return resumed(state, ladder, terms, len(gang.uuids))


def held_caps(decisions: Iterable[GangDecision], inputs: CycleInputs) -> dict[str, float]:
    """The caps to save for when the same work comes back, by `_work_key`."""
    tuned = [(decision.gang, decision.tuned) for decision in decisions if decision.tuned is not None]
    return {
        key: cap
        for gang, each in tuned
        if (cap := known_cap(each.state, each.ladder)) is not None
        and (key := _work_key(gang, each.ladder, each.terms, inputs))
    }


def _work_key(gang: Gang, ladder: Ladder, terms: Terms, inputs: CycleInputs) -> str:
    """The key under which a cap is saved: the work, its GPUs, and the terms. Empty: the work is not known."""
    key = None if inputs.view is None else returning_key(gang, inputs.view, inputs.consents)
    terms_text = f"{terms.slowdown:g} {terms.latency} {'; '.join(map(str, terms.slo))}"
    return "" if key is None else f"{key} | {ladder.knob} {terms_text}"


def _common_obstacles(
    gang: Gang, request: TuningRequest, ladder: Ladder | Obstacle, before: GangState | None, samples_now: CycleSamples
) -> Iterator[Obstacle]:
    """The obstacles that all GPUs of the gang share."""
    if request.obstacle is not None:
        yield request.obstacle
    elif request.terms is None:
        yield Obstacle(reason=ObstacleReason.NO_CLASS, message="its owner has not declared it `serving` or `batch`")
    if isinstance(ladder, Obstacle):
        yield ladder
    begun = before is not None and before.state.phase in energy.ACTIVE
    samples = [samples_now.samples[uuid] for uuid in gang.uuids if uuid in samples_now.samples]
    if not begun and not all(is_counted(gpu) for gpu in samples):
        message = "no DRAM or pipe activity is counted (GPM: Hopper and newer)"
        yield Obstacle(reason=ObstacleReason.NO_COUNTERS, message=message)


def _together(closed: dict[str, tuple[Obstacle, ...]]) -> dict[str, tuple[Obstacle, ...]]:
    """An obstacle of one GPU stops all of them, as they are only moved together."""
    first = next((each[0] for each in closed.values() if each), None)
    if first is None:
        return closed
    apart = Obstacle(reason=ObstacleReason.GANG, message=f"another GPU of the same work is refused: {first.message}")
    return {uuid: in_order(each) or (apart,) for uuid, each in closed.items()}


def _suspended(
    tuned: GangState, gang: Gang, inputs: CycleInputs, closed: Mapping[str, tuple[Obstacle, ...]]
) -> GangState:
    reasons = {obstacle.reason for each in closed.values() for obstacle in each} - {ObstacleReason.GANG}
    return energy.suspended(tuned, inputs.at, len(gang.uuids), external=reasons <= set(EXTERNAL_REASONS))


def _attempt(
    decision: GangDecision, tuned: GangState, cap: float, memory: CycleMemory, inputs: CycleInputs
) -> GangDecision:
    """Try another cap, unless that exceeds the limit of actions in an hour."""
    gang, allowed = decision.gang, inputs.config.max_actions_per_hour
    rate_limits = {uuid: memory.rate_limits.get(uuid, RateLimit()) for uuid in gang.uuids}
    waits = [wait_seconds(rate_limit, inputs.now, allowed) for rate_limit in rate_limits.values()]
    if wait := max((each or 0.0 for each in waits), default=0.0):
        cooldown = Cooldown(inputs.now + wait, ObstacleReason.RATE_LIMIT, f"{allowed} actions in an hour")
        refused = dict.fromkeys(gang.uuids, (Obstacle(reason=cooldown.reason, message=cooldown.message),))
        suspended = _suspended(tuned, gang, inputs, refused)
        return decision._replace(closed=refused, tuned=suspended, target=None, cooldown=cooldown)
    acted = {uuid: with_action(rate_limit, inputs.now) for uuid, rate_limit in rate_limits.items()}
    return decision._replace(tuned=replace(tuned, tried=cap), rate_limits=acted)
