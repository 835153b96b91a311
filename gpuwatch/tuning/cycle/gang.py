"""One owner's GPUs in one cycle: may they be tuned, what does their work look like, and what is wanted of them?"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gpuwatch.model.snapshot import Gpu
from gpuwatch.tuning.cycle import gang_energy as energy
from gpuwatch.tuning.cycle.gang_energy import Tuned, evolve
from gpuwatch.tuning.cycle.ladder import ladder_of, seen_board
from gpuwatch.tuning.cycle.obstacles import DOUBTS, told
from gpuwatch.tuning.cycle.orders import Key
from gpuwatch.tuning.cycle.state import Inputs, Memory
from gpuwatch.tuning.energy.idle import Rest
from gpuwatch.tuning.energy.meter import is_counted
from gpuwatch.tuning.energy.resume import released, resumed
from gpuwatch.tuning.energy.state import State
from gpuwatch.tuning.energy.windows import Ladder, Terms
from gpuwatch.tuning.gates import rate_limit as pacing
from gpuwatch.tuning.gates.consent import Wish, wish
from gpuwatch.tuning.gates.owners import Team, follow
from gpuwatch.tuning.gates.pauses import Pause
from gpuwatch.tuning.gates.rate_limit import Pace
from gpuwatch.tuning.model.status import Obstacle, Reason


class Sight(NamedTuple):
    """What is seen in this cycle, by uuid: the samples there are, those that are new, and what stands against GPUs."""

    samples: Mapping[str, Gpu]
    news: Mapping[str, Gpu]
    closed: Mapping[str, tuple[Obstacle, ...]]


class Moved(NamedTuple):
    """What came of it. `tuned` None: nothing is known of these GPUs that is worth carrying on."""

    team: Team
    wish: Wish
    closed: Mapping[str, tuple[Obstacle, ...]]
    tuned: Tuned | None = None
    aim: energy.Aim | None = None
    paces: Mapping[str, Pace] = {}
    pause: Pause | None = None


def move(team: Team, memory: Memory, inputs: Inputs, sight: Sight, held: frozenset[Key]) -> Moved:
    """One cycle. `held`: knobs that may have something of ours in force."""
    team, is_other = follow(memory.teams.get(team.key), team)
    before = None if is_other else memory.tuned.get(team.key)
    wanted = wish(inputs.config, inputs.consents, team.owners, inputs.at)
    if not team.owners:
        return Moved(team, wanted, {uuid: sight.closed.get(uuid, ()) for uuid in team.uuids})
    ladder = _ladder(team, inputs, sight)
    own = tuple(_against(team, wanted, ladder, before, sight))
    closed = _together(team, {uuid: (*sight.closed.get(uuid, ()), *own) for uuid in team.uuids})
    if isinstance(ladder, Obstacle) or wanted.terms is None:
        shut = None if before is None else _shut(before, team, inputs, closed)
        return Moved(team, wanted, closed, shut)
    state = State() if is_other else _saved(team, memory, inputs, ladder, wanted.terms)
    tuned = before or Tuned(ladder=ladder, terms=wanted.terms, state=state)
    if any(closed.values()):
        return Moved(team, wanted, closed, _shut(tuned, team, inputs, closed))
    tuned = _taken_away(energy.fitted(tuned, ladder, wanted.terms, len(team.uuids)), team, held)
    enforcing = inputs.enforcing and wanted.mode == "enforce"
    if all(uuid in sight.news for uuid in team.uuids):
        tuned = _looked(tuned, tuple(sight.news[uuid] for uuid in team.uuids), inputs, enforcing=enforcing)
    return _aimed(team, wanted, closed, tuned, memory, inputs, enforcing=enforcing)


def _saved(team: Team, memory: Memory, inputs: Inputs, ladder: Ladder, terms: Terms) -> State:
    """What an earlier tuner has written down of this owner is worth a verification, once."""
    state = inputs.saved.get(team.key)
    if state is None or team.key in memory.met or not inputs.enforcing:
        return State()
    return resumed(state, ladder, terms, len(team.uuids))


def _ladder(team: Team, inputs: Inputs, sight: Sight) -> Ladder | Obstacle:
    boards = [inputs.boards.get(uuid) for uuid in team.uuids]
    if not inputs.enforcing:
        boards = [None if (gpu := sight.samples.get(uuid)) is None else seen_board(gpu) for uuid in team.uuids]
    return ladder_of(boards, inputs.config)


def _against(
    team: Team, wanted: Wish, ladder: Ladder | Obstacle, before: Tuned | None, sight: Sight
) -> Iterator[Obstacle]:
    """What stands against all of them alike."""
    if wanted.obstacle is not None:
        yield wanted.obstacle
    elif wanted.terms is None:
        yield Obstacle(reason=Reason.NO_CLASS, words="nobody has said whether somebody waits for its work")
    if isinstance(ladder, Obstacle):
        yield ladder
    begun = before is not None and before.state.phase in energy.ACTIVE
    if not begun and any(not is_counted(gpu) for uuid in team.uuids if (gpu := sight.samples.get(uuid)) is not None):
        yield Obstacle(reason=Reason.NO_COUNTERS, words="no DRAM or pipe activity is counted (GPM: Hopper and newer)")


def _together(team: Team, closed: dict[str, tuple[Obstacle, ...]]) -> dict[str, tuple[Obstacle, ...]]:
    """None is moved unless all are."""
    first = next((each[0] for each in closed.values() if each), None)
    if first is None:
        return closed
    apart = Obstacle(reason=Reason.GANG, words=f"another GPU of the same work is refused: {first.words}")
    return {uuid: told(each) or (apart,) for uuid, each in closed.items()}


def _shut(tuned: Tuned, team: Team, inputs: Inputs, closed: Mapping[str, tuple[Obstacle, ...]]) -> Tuned:
    reasons = {obstacle.reason for each in closed.values() for obstacle in each} - {Reason.GANG}
    return energy.shut(tuned, inputs.at, len(team.uuids), doubt=reasons <= set(DOUBTS))


def _taken_away(tuned: Tuned, team: Team, held: frozenset[Key]) -> Tuned:
    """What was set and is no longer recorded was given back by somebody: a guard, or a person."""
    if not tuned.owned or all((uuid, tuned.ladder.knob) in held for uuid in team.uuids):
        return tuned
    return evolve(tuned, state=released(tuned.state), idle=Rest(), resting=False, belief=None)


def _looked(tuned: Tuned, gpus: tuple[Gpu, ...], inputs: Inputs, *, enforcing: bool) -> Tuned:
    batch = tuned.terms.latency == "batch"
    tuned = energy.rested(tuned, gpus, inputs.now, allowed=enforcing and batch)
    return tuned if tuned.resting else energy.looked(tuned, gpus, enforcing=enforcing)


def _aimed(
    team: Team,
    wanted: Wish,
    closed: Mapping[str, tuple[Obstacle, ...]],
    tuned: Tuned,
    memory: Memory,
    inputs: Inputs,
    *,
    enforcing: bool,
) -> Moved:
    """What is wanted now, as far as the limit of actions allows."""
    if not enforcing:
        return Moved(team, wanted, closed, energy.lifted(tuned, inputs.at))
    aimed = energy.aim(tuned)
    cap = None if aimed is None else aimed.value
    if cap is not None and cap != tuned.tried:
        paces = {uuid: memory.paces.get(uuid, Pace()) for uuid in team.uuids}
        waits = [pacing.allowed(pace, inputs.now, inputs.config.max_actions_per_hour) for pace in paces.values()]
        if wait := max((each or 0.0 for each in waits), default=0.0):
            spent = f"{inputs.config.max_actions_per_hour} actions in an hour"
            pause = Pause(inputs.now + wait, Reason.RATE_LIMIT, spent)
            refused = dict.fromkeys(team.uuids, (Obstacle(reason=pause.reason, words=pause.words),))
            return Moved(team, wanted, refused, _shut(tuned, team, inputs, refused), pause=pause)
        acted = {uuid: pacing.acted(pace, inputs.now) for uuid, pace in paces.items()}
        return Moved(team, wanted, closed, evolve(tuned, tried=cap), aimed, acted)
    return Moved(team, wanted, closed, tuned, aimed)
