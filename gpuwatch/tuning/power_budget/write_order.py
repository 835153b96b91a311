"""In which order power limits are written, so that at no instant their sum exceeds the budget.

Whoever writes may die after any write, and any write may fail. So nobody gets more before others were seen to have
less: do the first write, read back, ask again. What could not be read counts as the highest it could be.
"""

from collections.abc import Iterator, Mapping, Sequence

from gpuwatch.model.snapshot import Record

UNIT_WATTS = 0.001
"""Drivers take milliwatts."""

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
    now: Sequence[InForce], wanted: Mapping[str, float], budget: float, failed: Mapping[str, float] | None = None
) -> tuple[Write, ...]:
    """What is left to write, in order, if each write succeeds; empty: done, or nothing may be written.

    `now`: every GPU that may draw of the budget, those that are not tuned included. `failed`: watts that were asked for
    and did not show when read back. They may still come, so such a GPU counts for them, and is left alone until the
    caller forgets it; after a restart the record of settings tells them. A GPU that cannot be read is never written.
    """
    lost = failed or {}
    total = sum(max(each.at_worst, lost.get(each.uuid, 0.0)) for each in now)
    moves = [move for move in _moves(now, wanted) if move.uuid not in lost]
    if total <= budget and all(abs(_rise(move)) < DEAD_BAND_WATTS for move in moves):
        return ()
    plan = []
    for move in sorted(moves, key=lambda move: (_rise(move) > 0, -abs(_rise(move)), move.uuid)):
        allowed = min(move.watts, move.before + max(0.0, budget - total)) if _rise(move) > 0 else move.watts
        granted = Write(uuid=move.uuid, before=move.before, watts=allowed)
        if abs(_rise(granted)) >= UNIT_WATTS:
            plan.append(granted)
            total += _rise(granted)
    return tuple(plan)


def _moves(now: Sequence[InForce], wanted: Mapping[str, float]) -> Iterator[Write]:
    for each in now:
        if each.watts is not None and each.uuid in wanted:
            yield Write(uuid=each.uuid, before=each.watts, watts=wanted[each.uuid])


def _rise(move: Write) -> float:
    return move.watts - move.before
