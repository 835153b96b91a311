"""One order, carried out while its GPU's lock is held: the record, what is in force, the record again, the driver.

Nothing is taken from memory. A guard may have given everything back while this process was stopped; then the original
is what the driver says now.
"""

import contextlib
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from gpuwatch.model.errors import GpuwatchError, NoGpuStack, PermissionMissing, Unsupported
from gpuwatch.model.setting import Setting, Trigger
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.actuation.restore import Control, Outcome, give_back
from gpuwatch.tuning.model.order import Order, Turned
from gpuwatch.tuning.model.order import Outcome as Became
from gpuwatch.tuning.model.order_values import Refused, lowest_clock, original_limit, watts_to_set
from gpuwatch.tuning.model.restore_value import is_same, outlived

LOCK_SECONDS = 0.5
"""For another process to be done with a GPU or with the record."""


class Turning:
    """`blank`: a Setting of this GPU, knob, boot and driver, without a value. `wanted`: does somebody still wait?

    `unsupported`, afterwards: the driver says that this GPU does not have the knob.
    """

    def __init__(
        self, record: SettingsRecord, control: Control, order: Order, blank: Setting, wanted: Callable[[], bool]
    ) -> None:
        self._record, self._control, self._order, self._blank = record, control, order, blank
        self._wanted, self.unsupported = wanted, False

    def carry_out(self) -> Turned:
        """What came of it. Raises NoGpuStack: the session with the driver has ended."""
        try:
            before = self._recorded()
            return self._lift(before) if self._order.value is None else self._set(before, self._order.value)
        except Refused as refused:
            return self._turned(refused.outcome, str(refused))
        except NoGpuStack:
            raise
        except GpuwatchError as error:
            return self._turned(Became.FAILED, str(error))

    def _recorded(self) -> Setting | None:
        """Of this knob; what went with another boot or driver is forgotten."""
        key = self._order.uuid, self._order.knob
        found = next((each for each in self._record.read().settings if (each.uuid, each.knob) == key), None)
        if found is not None and outlived(found, self._blank.boot_id, self._blank.driver):
            self._forget(found, 0)
            return None
        return found

    def _lift(self, before: Setting | None) -> Turned:
        if before is None:  # whatever is in force is not ours
            return self._turned(Became.DONE, "nothing was set")
        found = give_back(before, self._control, self._blank.driver)
        if found.outcome is Outcome.KEPT:
            return self._turned(Became.FAILED, found.words)
        if not self._order.keep:
            self._forget(before, int(found.outcome is Outcome.RESTORED))
        return self._turned(Became.FOREIGN if found.foreign else Became.DONE, found.words)

    def _set(self, before: Setting | None, value: float) -> Turned:
        setting, write = self._prepared(before, value)
        (value,) = setting.applied
        if not self._wanted():  # the driver took long to say what is in force, and much may have happened
            raise Refused(Became.SILENT, "the driver took too long to answer")
        if before is None or value not in before.applied:
            with self._changing():
                self._record.add(setting)
        try:
            write()
        except (PermissionMissing, Unsupported) as error:  # without a doubt nothing has changed
            self.unsupported = isinstance(error, Unsupported)
            if before is None:
                self._forget(setting, 0)
            raise
        if before is not None and before.applied != (value,):
            with self._changing():
                self._record.confirm(self._order.uuid, self._order.knob, value)
        return self._turned(Became.DONE, in_force=value)

    def _prepared(self, before: Setting | None, value: float) -> tuple[Setting, Callable[[], None]]:
        """What to record, and then to do. Raises Refused."""
        board = self._control.board(self._order.uuid)
        if self._order.knob == "locked_clocks":
            lowest = lowest_clock(value, board)
            return replace(self._blank, applied=(value,)), lambda: self._lock(lowest, value)
        original = original_limit(board, before)
        watts = watts_to_set(value, board, original)
        return replace(self._blank, original=original, applied=(watts,)), lambda: self._limit(watts)

    def _lock(self, lowest: float, cap: float) -> None:
        self._control.set_locked_clocks(self._order.uuid, lowest, cap)

    def _limit(self, watts: float) -> None:
        self._control.set_power_limit(self._order.uuid, watts)
        after, _ = self._control.power_limits(self._order.uuid)
        if not is_same(after, watts):
            raise GpuwatchError(f"asked for {watts:g} W", f"the driver still says {after:g} W")

    def _forget(self, setting: Setting, restored: int) -> None:
        with self._changing():
            self._record.settle((setting,), restored, Trigger.TUNER)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """While the record is changed. Raises Refused: another process changes it."""
        with self._record.lock(LOCK_SECONDS) as held:
            if not held:
                raise Refused(Became.REFUSED, f"another process holds {self._record.path}")
            yield

    def _turned(self, outcome: Became, words: str = "", in_force: float | None = None) -> Turned:
        return Turned(order=self._order, outcome=outcome, words=words, in_force=in_force)
