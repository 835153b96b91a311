"""By which knob the GPUs of one owner are moved, and the values it may take: one ladder for all of them."""

from collections.abc import Sequence

from gpuwatch.config import TuningConfig
from gpuwatch.model.setting import Knob
from gpuwatch.model.snapshot import Gpu
from gpuwatch.tuning.energy.windows import Ladder, clocks, limits
from gpuwatch.tuning.model.order import Board
from gpuwatch.tuning.model.status import Obstacle, Reason

STEP_HERTZ = 15e6
"""Between the SM clocks of every NVIDIA GPU since Volta; who only observes cannot ask for the list."""


def ladder_of(boards: Sequence[Board | None], config: TuningConfig) -> Ladder | Obstacle:
    """The ladder for GPUs that are moved together, or why there is none. None: the driver did not tell of a GPU."""
    known = [board for board in boards if board is not None]
    if len(known) < len(boards) or not known:
        return _none("the driver does not say what may be set")
    knob = _knob(known, config)
    if isinstance(knob, Obstacle):
        return knob
    found = {_ladder(board, knob, config) for board in known}
    if len(found) > 1:
        return _none("its GPUs are of different kinds, and they may only be moved together")
    return found.pop()


def seen_board(gpu: Gpu) -> Board:
    """What a sample tells of the knobs, for who has no driver to ask: the clocks in steps of STEP_HERTZ."""
    top, power = gpu.clocks.graphics_max, gpu.power
    steps = 0 if top is None else int(top / STEP_HERTZ)
    return Board(
        uuid=gpu.identity.uuid,
        clocks=tuple((top or 0.0) - STEP_HERTZ * step for step in range(steps)),
        limit=power.limit_configured,
        limit_default=power.limit_default,
        limit_min=power.limit_min,
        limit_max=power.limit_max,
    )


def _knob(boards: Sequence[Board], config: TuningConfig) -> Knob | Obstacle:
    lockable = all(board.clocks for board in boards)
    if config.knob == "locked_clocks" or (config.knob == "auto" and lockable):
        return "locked_clocks" if lockable else _none("its clocks cannot be locked")
    if config.node_budget_watts is not None:
        return _none("its clocks cannot be locked, and its power limit is the node budget's")
    if all(board.limit is not None and board.limit_min is not None for board in boards):
        return "power_limit"
    return _none("neither its clocks nor its power limit can be set")


def _ladder(board: Board, knob: Knob, config: TuningConfig) -> Ladder:
    if knob == "locked_clocks":
        return clocks(board.clocks, top=max(board.clocks), min_fraction=config.min_clock_fraction)
    top, lowest = board.limit or 0.0, board.limit_min or 0.0
    return limits(top=top, lowest=lowest)


def _none(words: str) -> Obstacle:
    return Obstacle(reason=Reason.NO_KNOB, words=words)
