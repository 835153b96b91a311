"""One gang in one cycle: may its GPUs be tuned, by which knob, how does their work look, and what should be in force?

The slowest rank of a parallel job sets its pace. So the GPUs of one owner have one ladder of values, and change
together.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.config import TuningConfig
from gpuwatch.model.setting import Knob
from gpuwatch.model.snapshot import Gpu
from gpuwatch.tuning.cycle import gang_energy as energy
from gpuwatch.tuning.cycle.gang_energy import GangState
from gpuwatch.tuning.cycle.obstacles import DOUBTS, told
from gpuwatch.tuning.cycle.state import CycleInputs, CycleMemory, Key
from gpuwatch.tuning.energy.meter import IdleCap, is_counted
from gpuwatch.tuning.energy.model import Ladder, Terms, TrialState, clocks, limits
from gpuwatch.tuning.energy.tuner import released, resumed
from gpuwatch.tuning.gates.consent import TuningRequest, tuning_request
from gpuwatch.tuning.gates.cooldowns import Cooldown, RateLimit, wait_seconds, with_action
from gpuwatch.tuning.gates.owners import Gang, follow
from gpuwatch.tuning.model.order import GpuCapabilities
from gpuwatch.tuning.model.status import Obstacle, ObstacleReason

STEP_HERTZ = 15e6
"""Between the SM clocks of every NVIDIA GPU since Volta; who only observes cannot ask for the list."""


def ladder_of(capabilities: Sequence[GpuCapabilities | None], config: TuningConfig) -> Ladder | Obstacle:
    """The ladder for GPUs that are moved together, or why there is none. None: the driver did not tell of a GPU."""
    known = [board for board in capabilities if board is not None]
    if len(known) < len(capabilities) or not known:
        return _no_knob("the driver does not say what may be set")
    knob = _knob(known, config)
    if isinstance(knob, Obstacle):
        return knob
    found = {_ladder_for(board, knob, config) for board in known}
    if len(found) > 1:
        return _no_knob("its GPUs are of different kinds, and they may only be moved together")
    return found.pop()


def sampled_capabilities(gpu: Gpu) -> GpuCapabilities:
    """What a sample tells of the knobs, for who has no driver to ask: the clocks in steps of STEP_HERTZ."""
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


def _knob(capabilities: Sequence[GpuCapabilities], config: TuningConfig) -> Knob | Obstacle:
    lockable = all(board.clocks for board in capabilities)
    if config.knob == "locked_clocks" or (config.knob == "auto" and lockable):
        return "locked_clocks" if lockable else _no_knob("its clocks cannot be locked")
    if config.node_budget_watts is not None:
        return _no_knob("its clocks cannot be locked, and its power limit is the node budget's")
    if all(board.limit is not None and board.limit_min is not None for board in capabilities):
        return "power_limit"
    return _no_knob("neither its clocks nor its power limit can be set")


def _ladder_for(board: GpuCapabilities, knob: Knob, config: TuningConfig) -> Ladder:
    if knob == "locked_clocks":
        return clocks(board.clocks, top=max(board.clocks), min_fraction=config.min_clock_fraction)
    top, lowest = board.limit or 0.0, board.limit_min or 0.0
    return limits(top=top, lowest=lowest)


def _no_knob(message: str) -> Obstacle:
    return Obstacle(reason=ObstacleReason.NO_KNOB, message=message)


class CycleSamples(NamedTuple):
    """What is seen in this cycle, by uuid: the samples there are, those that are new, and what stands against GPUs."""

    samples: Mapping[str, Gpu]
    news: Mapping[str, Gpu]
    closed: Mapping[str, tuple[Obstacle, ...]]


class GangDecision(NamedTuple):
    """What came of it. `tuned` None: nothing is known of these GPUs that is worth carrying on."""

    gang: Gang
    request: TuningRequest
    closed: Mapping[str, tuple[Obstacle, ...]]
    tuned: GangState | None = None
    aim: energy.Target | None = None
    rate_limits: Mapping[str, RateLimit] = {}
    cooldown: Cooldown | None = None


def decide(
    gang: Gang, memory: CycleMemory, inputs: CycleInputs, samples_now: CycleSamples, held: frozenset[Key]
) -> GangDecision:
    """One cycle. `held`: knobs that may have something of ours in force."""
    gang, is_other = follow(memory.gangs.get(gang.key), gang)
    before = None if is_other else memory.tuned.get(gang.key)
    wanted = tuning_request(inputs.config, inputs.consents, gang.owners, inputs.at)
    if not gang.owners:
        return GangDecision(gang, wanted, {uuid: samples_now.closed.get(uuid, ()) for uuid in gang.uuids})
    ladder = _ladder(gang, inputs, samples_now)
    own = tuple(_against(gang, wanted, ladder, before, samples_now))
    closed = _together(gang, {uuid: (*samples_now.closed.get(uuid, ()), *own) for uuid in gang.uuids})
    if isinstance(ladder, Obstacle) or wanted.terms is None:
        shut = None if before is None else _shut(before, gang, inputs, closed)
        return GangDecision(gang, wanted, closed, shut)
    state = TrialState() if is_other else _saved(gang, memory, inputs, ladder, wanted.terms)
    tuned = before or GangState(ladder=ladder, terms=wanted.terms, state=state)
    if any(closed.values()):
        return GangDecision(gang, wanted, closed, _shut(tuned, gang, inputs, closed))
    tuned = _taken_away(energy.fitted(tuned, ladder, wanted.terms, len(gang.uuids)), gang, held)
    enforcing = inputs.enforcing and wanted.mode == "enforce"
    if all(uuid in samples_now.news for uuid in gang.uuids):
        tuned = _looked(tuned, tuple(samples_now.news[uuid] for uuid in gang.uuids), inputs, enforcing=enforcing)
    return _aimed(gang, wanted, closed, tuned, memory, inputs, enforcing=enforcing)


def _saved(gang: Gang, memory: CycleMemory, inputs: CycleInputs, ladder: Ladder, terms: Terms) -> TrialState:
    """What an earlier tuner has written down of this owner is worth a verification, once."""
    state = inputs.saved.get(gang.key)
    if state is None or gang.key in memory.met or not inputs.enforcing:
        return TrialState()
    return resumed(state, ladder, terms, len(gang.uuids))


def _ladder(gang: Gang, inputs: CycleInputs, samples_now: CycleSamples) -> Ladder | Obstacle:
    capabilities = [inputs.capabilities.get(uuid) for uuid in gang.uuids]
    if not inputs.enforcing:
        capabilities = [
            None if (gpu := samples_now.samples.get(uuid)) is None else sampled_capabilities(gpu) for uuid in gang.uuids
        ]
    return ladder_of(capabilities, inputs.config)


def _against(
    gang: Gang, wanted: TuningRequest, ladder: Ladder | Obstacle, before: GangState | None, samples_now: CycleSamples
) -> Iterator[Obstacle]:
    """What stands against all of them alike."""
    if wanted.obstacle is not None:
        yield wanted.obstacle
    elif wanted.terms is None:
        yield Obstacle(reason=ObstacleReason.NO_CLASS, message="nobody has said whether somebody waits for its work")
    if isinstance(ladder, Obstacle):
        yield ladder
    begun = before is not None and before.state.phase in energy.ACTIVE
    if not begun and any(
        not is_counted(gpu) for uuid in gang.uuids if (gpu := samples_now.samples.get(uuid)) is not None
    ):
        yield Obstacle(
            reason=ObstacleReason.NO_COUNTERS, message="no DRAM or pipe activity is counted (GPM: Hopper and newer)"
        )


def _together(gang: Gang, closed: dict[str, tuple[Obstacle, ...]]) -> dict[str, tuple[Obstacle, ...]]:
    """None is moved unless all are."""
    first = next((each[0] for each in closed.values() if each), None)
    if first is None:
        return closed
    apart = Obstacle(reason=ObstacleReason.GANG, message=f"another GPU of the same work is refused: {first.message}")
    return {uuid: told(each) or (apart,) for uuid, each in closed.items()}


def _shut(tuned: GangState, gang: Gang, inputs: CycleInputs, closed: Mapping[str, tuple[Obstacle, ...]]) -> GangState:
    reasons = {obstacle.reason for each in closed.values() for obstacle in each} - {ObstacleReason.GANG}
    return energy.shut(tuned, inputs.at, len(gang.uuids), doubt=reasons <= set(DOUBTS))


def _taken_away(tuned: GangState, gang: Gang, held: frozenset[Key]) -> GangState:
    """What was set and is no longer recorded was given back by somebody: a guard, or a person."""
    if not tuned.owned or all((uuid, tuned.ladder.knob) in held for uuid in gang.uuids):
        return tuned
    return replace(tuned, state=released(tuned.state), idle=IdleCap(), resting=False, estimate=None)


def _looked(tuned: GangState, gpus: tuple[Gpu, ...], inputs: CycleInputs, *, enforcing: bool) -> GangState:
    batch = tuned.terms.latency == "batch"
    tuned = energy.rested(tuned, gpus, inputs.now, allowed=enforcing and batch)
    return tuned if tuned.resting else energy.looked(tuned, gpus, enforcing=enforcing)


def _aimed(
    gang: Gang,
    wanted: TuningRequest,
    closed: Mapping[str, tuple[Obstacle, ...]],
    tuned: GangState,
    memory: CycleMemory,
    inputs: CycleInputs,
    *,
    enforcing: bool,
) -> GangDecision:
    """What is wanted now, as far as the limit of actions allows."""
    if not enforcing:
        return GangDecision(gang, wanted, closed, energy.lifted(tuned, inputs.at))
    aimed = energy.aim(tuned)
    cap = None if aimed is None else aimed.value
    if cap is not None and cap != tuned.tried:
        rate_limits = {uuid: memory.rate_limits.get(uuid, RateLimit()) for uuid in gang.uuids}
        waits = [
            wait_seconds(rate_limit, inputs.now, inputs.config.max_actions_per_hour)
            for rate_limit in rate_limits.values()
        ]
        if wait := max((each or 0.0 for each in waits), default=0.0):
            spent = f"{inputs.config.max_actions_per_hour} actions in an hour"
            cooldown = Cooldown(inputs.now + wait, ObstacleReason.RATE_LIMIT, spent)
            refused = dict.fromkeys(gang.uuids, (Obstacle(reason=cooldown.reason, message=cooldown.message),))
            return GangDecision(gang, wanted, refused, _shut(tuned, gang, inputs, refused), cooldown=cooldown)
        acted = {uuid: with_action(rate_limit, inputs.now) for uuid, rate_limit in rate_limits.items()}
        return GangDecision(gang, wanted, closed, replace(tuned, tried=cap), aimed, acted)
    return GangDecision(gang, wanted, closed, tuned, aimed)
