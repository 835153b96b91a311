"""What a tuner asks of whoever turns the knobs; one that observes has nobody to ask."""

from collections.abc import Collection, Sequence
from typing import Protocol

from gpuwatch.model.setting import Actuation, Knob, Trigger
from gpuwatch.tuning.model.order import Board, Order, Turned


class Hand(Protocol):
    """Turns the knobs of this node's GPUs; everything is recorded before the driver is asked."""

    def board(self, uuid: str) -> Board:
        """What may be set. Raises GpuwatchError: the driver does not say."""
        ...

    def turn(self, orders: Sequence[Order]) -> tuple[Turned, ...]:
        """Carry out, in order for each GPU, all GPUs at once; waits a second at most. Never raises for one GPU."""
        ...

    def recorded(self) -> Actuation:
        """What the record says now: the truth about what gpuwatch has set. Raises GpuwatchError: it cannot be read."""
        ...

    def give_back(
        self, trigger: Trigger, uuids: Collection[str] | None = None, spared: Collection[Knob] = ()
    ) -> tuple[str, ...]:
        """Everything of these GPUs, None: of all; what could not be given back, in words. It stays recorded, and so
        does what is set of the `spared` knobs.
        """
        ...
