"""In which order power limits are written, so that at no instant their sum exceeds the budget.

Whoever writes may die after any write, and any write may fail. So nobody gets more before others were seen to have
less: do the first write, read back, ask again. What could not be read counts as the highest it could be.
"""

from collections.abc import Mapping, Sequence

from gpuwatch.model.snapshot import Record
from gpuwatch.rules.restoring import TOLERANCE_WATTS

DEAD_BAND_WATTS = 5.0
"""While the budget is kept, nothing is written for less: a draw's noise is no reason to act."""


class InForce(Record, frozen=True, kw_only=True):
    """A GPU's limit, watts, as read from the driver. None: it could not be read; `most`: what it could be at worst."""

    uuid: str
    watts: float | None
    most: float

    @property
    def at_worst(self) -> float:
        """What it counts for."""
        return self.most if self.watts is None else self.watts


class Write(Record, frozen=True, kw_only=True):
    """One power limit to set, watts; `before` is what is in force."""

    uuid: str
    before: float
    watts: float


def steps(
    now: Sequence[InForce], wanted: Mapping[str, float], budget: float, failed: frozenset[str] = frozenset()
) -> tuple[Write, ...]:
    """What is left to write, in order, if each write succeeds; empty: done, or nothing may be written.

    `now`: every GPU that may draw of the budget, those that are not tuned included. `failed`: a write did not show when
    it was read back; they are left alone until the caller forgets it. A GPU that cannot be read is never written.
    """
    limits = [(each, each.watts, wanted[each.uuid]) for each in now if each.watts is not None and each.uuid in wanted]
    moves = [Write(uuid=each.uuid, before=before, watts=after) for each, before, after in limits]
    moves = [move for move in moves if move.uuid not in failed and abs(_rise(move)) > TOLERANCE_WATTS]
    total = sum(each.at_worst for each in now)
    if total <= budget and all(abs(_rise(move)) < DEAD_BAND_WATTS for move in moves):
        return ()
    ordered = sorted(moves, key=lambda move: (_rise(move) > 0, -abs(_rise(move)), move.uuid))
    plan = []
    for move in ordered:
        allowed = min(move.watts, move.before + budget - total)
        granted = move if _rise(move) < 0 else Write(uuid=move.uuid, before=move.before, watts=allowed)
        if _rise(move) < 0 or _rise(granted) > TOLERANCE_WATTS:
            plan.append(granted)
            total += _rise(granted)
    return tuple(plan)


def _rise(move: Write) -> float:
    return move.watts - move.before
