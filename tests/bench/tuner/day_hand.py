"""A hand on a simulated node's knobs: honest, a tenth of a second late, and with a driver that refuses now and then."""

import random
from collections.abc import Sequence

from gpuwatch.tuning.model.setting import Actuation, ApplyResult, OrderOutcome, Setting, SettingOrder
from tests.bench.tuner.day_account import Caps
from tests.bench.tuner.day_node import START, Slot

ANSWER = 0.1
"""Seconds until an order is in force."""

REFUSES, HANGS, HANG = 0.001, 0.0003, 3.0
"""Shares of the orders that the driver refuses or does not answer, and seconds until it does."""


class DayHand:
    """Carries out orders on slots, and keeps the record as the real one does."""

    def __init__(self, slots: Sequence[Slot], caps: Caps, seed: int) -> None:
        self._slots = {slot.uuid: (index, slot) for index, slot in enumerate(slots)}
        self._caps, self._chance = caps, random.Random(f"hand {seed}")
        self._settings: dict[str, Setting] = {}
        self._hanging: dict[str, tuple[float, SettingOrder]] = {}
        self.trouble: list[tuple[float, int]] = []  # (when, slot) an order was not carried out

    def recorded(self) -> Actuation:
        """What is recorded."""
        return Actuation(settings=tuple(self._settings.values()))

    def wait(self, now: float) -> None:
        """Let calls that hung return."""
        for uuid, (until, order) in list(self._hanging.items()):
            if now >= until:
                del self._hanging[uuid]
                self._do(order, now)

    def apply(self, orders: Sequence[SettingOrder], now: float) -> tuple[ApplyResult, ...]:
        """Carry them out."""
        return tuple(self._turn(order, now) for order in orders)

    def _turn(self, order: SettingOrder, now: float) -> ApplyResult:
        index, slot = self._slots[order.uuid]
        assert order.knob == "locked_clocks", order
        drawn = self._chance.random()
        if order.value is not None:
            self._record(order, now)
        if order.uuid in self._hanging or drawn < HANGS:
            self.trouble.append((now, index))
            self._hanging.setdefault(order.uuid, (now + HANG, order))
            return ApplyResult(order=order, outcome=OrderOutcome.TIMEOUT, message="the driver does not answer")
        if drawn < HANGS + REFUSES:
            self.trouble.append((now, index))
            return ApplyResult(order=order, outcome=OrderOutcome.FAILED, message="unknown error", in_force=slot.cap)
        self._do(order, now)
        return ApplyResult(order=order, outcome=OrderOutcome.DONE, in_force=order.value)

    def _do(self, order: SettingOrder, now: float) -> None:
        index, slot = self._slots[order.uuid]
        if order.value is None and not order.keep:
            self._settings.pop(order.uuid, None)
        if order.value != slot.cap:
            slot.before = (slot.cap, (now + ANSWER) % 1.0)
            slot.cap = order.value
            self._caps.changed(index, now + ANSWER, order.value)

    def _record(self, order: SettingOrder, now: float) -> None:
        assert order.value is not None
        before = self._settings.get(order.uuid)
        applied = tuple(dict.fromkeys((order.value, *(before.applied[:7] if before else ()))))
        self._settings[order.uuid] = Setting(
            uuid=order.uuid,
            knob=order.knob,
            original=None,
            applied=applied,
            at=START + now,
            boot_id="boot",
            driver="580",
            pod_uid=order.pod_uid,
        )
