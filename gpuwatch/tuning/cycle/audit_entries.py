"""What the tuner has decided, in the words of the audit. That full and reduced windows alternate is no decision."""

from collections.abc import Iterator

from gpuwatch.tuning.cycle.gang import Moved
from gpuwatch.tuning.cycle.gang_energy import Tuned, attempt
from gpuwatch.tuning.cycle.orders import Told, text
from gpuwatch.tuning.cycle.state import Memory
from gpuwatch.tuning.energy.state import Phase
from gpuwatch.tuning.model.status import Reason


def deeds(memory: Memory, moves: tuple[Moved, ...]) -> Iterator[Told]:
    """What is another decision than in the cycle before."""
    there = {moved.team.key for moved in moves}
    for key, tuned in memory.tuned.items():
        if key not in there and tuned.owned:
            for uuid in memory.teams[key].uuids:
                yield _given_back(uuid, tuned, "its owner has changed")
    for moved in moves:
        yield from _of_team(memory.tuned.get(moved.team.key), moved)


def why(tuned: Tuned) -> str:
    """What an order that sets something is for."""
    if tuned.resting:
        return "its work holds it and does nothing"
    return f"{tuned.state.phase}, slowdown of {100 * tuned.terms.slowdown:g} % at most"


def why_not(moved: Moved, uuid: str) -> str:
    """What an order that gives back is for."""
    if closed := moved.closed.get(uuid):
        return "; ".join(obstacle.words or obstacle.reason for obstacle in closed)
    if moved.tuned is not None and moved.tuned.state.refusal is not None:
        return moved.tuned.state.refusal
    return "another owner, or another start" if moved.team.owners else "nobody uses it"


def _of_team(before: Tuned | None, moved: Moved) -> Iterator[Told]:
    now = moved.tuned
    for uuid in moved.team.uuids:
        if before is not None and before.owned and (now is None or not now.owned):
            reasons = {obstacle.reason for obstacle in moved.closed.get(uuid, ())}
            told = _given_back(uuid, before, why_not(moved, uuid))
            yield told._replace(action="yield") if Reason.CONFLICT in reasons else told
        elif now is not None and moved.aim is not None:
            yield from _moved(uuid, before, now)


def _moved(uuid: str, before: Tuned | None, now: Tuned) -> Iterator[Told]:
    knob, cap = now.ladder.knob, attempt(now)
    tried = None if before is None else before.tried
    if now.tried is not None and now.tried != tried:
        yield Told("tune", uuid, knob, before=text(knob, tried), after=text(knob, now.tried), why=why(now))
    elif now.state.phase is Phase.HOLD and before is not None and before.state.phase is not Phase.HOLD:
        yield Told("tune", uuid, knob, before=text(knob, cap), after=text(knob, cap), why=_held(now))


def _held(now: Tuned) -> str:
    if now.belief is None:
        return "held"
    found = now.belief
    return f"held: {100 * found.slowdown:.1f} % slower, {100 * found.saved:.1f} % less energy"


def _given_back(uuid: str, before: Tuned, words: str) -> Told:
    knob = before.ladder.knob
    return Told("restore", uuid, knob, before=text(knob, before.tried or before.cap), why=words)
