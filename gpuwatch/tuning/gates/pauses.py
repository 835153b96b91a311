"""GPUs that are left alone for a while, because an order was not carried out or somebody else turns the same knobs."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from gpuwatch.model.setting import Knob
from gpuwatch.tuning.gates.conflict import YIELD_SECONDS
from gpuwatch.tuning.model.order import Outcome, Turned
from gpuwatch.tuning.model.status import Obstacle, Reason

NOT_SET_SECONDS = 600.0
"""What the driver has just refused, it seldom does a minute later; each try costs the GPU's other calls time."""


class Pause(NamedTuple):
    """Why a GPU is left alone, until a monotonic second."""

    until: float
    reason: Reason
    words: str


Pauses = Mapping[tuple[str, Reason], Pause]


def after(turned: Iterable[Turned], now: float, knobs: Collection[Knob]) -> Iterator[tuple[str, Pause]]:
    """GPUs whose orders for these knobs were not carried out. A driver that is silent may yet do what it was asked."""
    for each in turned:
        order = each.order
        if each.outcome is Outcome.DONE or order.knob not in knobs:
            continue
        if each.outcome is Outcome.FOREIGN:
            yield order.uuid, conflict(now, each.words or f"somebody else has turned {order.knob}")
        else:
            what = "giving back" if order.value is None else "setting"
            words = f"{what} {order.knob}: {each.outcome}{f', {each.words}' if each.words else ''}"
            yield order.uuid, Pause(now + NOT_SET_SECONDS, Reason.NOT_SET, words)


def conflict(now: float, words: str) -> Pause:
    """Somebody else has the GPU's knobs: ours are given back, and the GPU is theirs for an hour."""
    return Pause(now + YIELD_SECONDS, Reason.CONFLICT, words)


def kept(pauses: Pauses, news: Iterable[tuple[str, Pause]], now: float) -> Pauses:
    """Those that are not over, with the new ones."""
    left = {key: pause for key, pause in pauses.items() if pause.until > now}
    return left | {(uuid, pause.reason): pause for uuid, pause in news}


def obstacles(uuid: str, pauses: Pauses, now: float) -> Iterator[Obstacle]:
    """What stands against a GPU."""
    for (name, reason), pause in pauses.items():
        if name == uuid:
            yield Obstacle(reason=reason, words=f"{pause.words}; left alone for {max(0.0, pause.until - now):.0f} s")
