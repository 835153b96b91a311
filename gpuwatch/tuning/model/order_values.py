"""Whether an order may be carried out, and with which values: never above what was there before gpuwatch."""

from gpuwatch.model.setting import Setting
from gpuwatch.tuning.model.order import Board, Outcome
from gpuwatch.tuning.model.restore_value import TOLERANCE_WATTS, is_foreign


class Refused(Exception):
    """The driver is not asked."""

    def __init__(self, outcome: Outcome, words: str) -> None:
        self.outcome = outcome
        super().__init__(words)


def original_limit(board: Board, before: Setting | None) -> float:
    """Watts that were configured before gpuwatch's first write. `before`: what is recorded of this knob.

    Raises:
        Refused: the GPU does not tell its limit, or what it tells is somebody else's.
    """
    if board.limit is None or board.limit_min is None:
        raise Refused(Outcome.REFUSED, "its power limit cannot be set")
    if before is None or before.original is None:
        return board.limit
    if is_foreign(before, board.limit):
        raise Refused(Outcome.FOREIGN, f"somebody else has set the power limit to {board.limit:g} W")
    return before.original


def watts_to_set(watts: float, board: Board, original: float) -> float:
    """The same, but for what the driver rounds. Raises Refused: it is above the original, or below the least."""
    least = min(board.limit_min or 0.0, original)
    if watts > original + TOLERANCE_WATTS:
        raise Refused(Outcome.REFUSED, f"{watts:g} W is above the original {original:g} W")
    if not watts >= least - TOLERANCE_WATTS:  # also what is no number
        raise Refused(Outcome.REFUSED, f"{watts:g} W is below {least:g} W, the least that can be set")
    return max(least, min(watts, original))


def lowest_clock(cap: float, board: Board) -> float:
    """Hertz to lock from, so that an idle GPU still slows down. Raises Refused: the cap is not one it can have."""
    if not board.clocks:
        raise Refused(Outcome.REFUSED, "its clocks cannot be locked")
    highest, lowest = board.clocks[0], board.clocks[-1]
    if not lowest <= cap <= highest:
        raise Refused(Outcome.REFUSED, f"{cap / 1e6:g} MHz is not between {lowest / 1e6:g} and {highest / 1e6:g} MHz")
    return lowest
