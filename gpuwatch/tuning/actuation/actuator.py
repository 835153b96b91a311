"""The actuator of a tuner in mode enforce: it records each value before it sets it, never above the original.

Only the command line imports it. Each GPU has a thread and a lock of its own; `restore` explains how two processes
share a GPU. Nothing is taken from memory: a guard may have restored everything while this process was stopped, so each
order reads the record and the driver again.
"""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial

from msgspec.structs import replace

from gpuwatch.model.clock import Clock
from gpuwatch.model.errors import GpuwatchError, NoGpuStack, PermissionMissing, Unsupported
from gpuwatch.storage.audit import Audit
from gpuwatch.tuning.actuation.interface import Connect, DriverControl, OpenSession, PerGpuExecutor
from gpuwatch.tuning.actuation.record import RecordBusy, SettingsRecord
from gpuwatch.tuning.actuation.restore import NO_ANSWER, SESSIONS, RestoreOutcome, Restorer, restore_setting
from gpuwatch.tuning.model.setting import (
    Actuation,
    ApplyResult,
    GpuCapabilities,
    Knob,
    OrderOutcome,
    OrderRefused,
    Setting,
    SettingOrder,
    Trigger,
    expiry_reason,
    is_same,
    lowest_clock,
    original_limit,
    watts_to_set,
)

LOCK_SECONDS = 0.5
"""How long an order waits for another process that holds the lock of its GPU."""


class SettingWriter:
    """`blank`: a Setting of this GPU, knob, boot and driver, without a value. `is_awaited`: the caller still waits.
    `lifted`: settings that this process has lifted: if one is not in force, no other process has to be the cause.

    `unsupported`, afterwards: the driver refuses the knob or the value on this GPU.
    """

    def __init__(
        self,
        record: SettingsRecord,
        control: DriverControl,
        order: SettingOrder,
        blank: Setting,
        is_awaited: Callable[[], bool],
        lifted: set[tuple[str, Knob]],
    ) -> None:
        self._record, self._control, self._order, self._blank = record, control, order, blank
        self._is_awaited, self._lifted, self.unsupported = is_awaited, lifted, False

    def carry_out(self) -> ApplyResult:
        """The outcome of the order. Raises NoGpuStack: the session with the driver has ended."""
        try:
            before = self._recorded()
            return self._restore(before) if self._order.value is None else self._set(before, self._order.value)
        except OrderRefused as refused:
            return self._result(refused.outcome, str(refused))
        except RecordBusy as error:
            return self._result(OrderOutcome.REFUSED, str(error))
        except NoGpuStack:
            raise
        except GpuwatchError as error:
            return self._result(OrderOutcome.FAILED, str(error))

    def _recorded(self) -> Setting | None:
        """The recorded setting of this knob; one that ended with another boot or driver is dropped from the record."""
        key = self._order.uuid, self._order.knob
        found = next((each for each in self._record.read().settings if (each.uuid, each.knob) == key), None)
        if found is not None and expiry_reason(found, self._blank.boot_id, self._blank.driver):
            self._drop(found, 0)
            return None
        return found

    def _restore(self, before: Setting | None) -> ApplyResult:
        if before is None:  # whatever is in force is not ours
            return self._result(OrderOutcome.DONE, "nothing was set")
        key = self._order.uuid, self._order.knob
        found = restore_setting(before, self._control, self._blank.driver)
        if found.outcome is RestoreOutcome.KEPT:
            return self._result(OrderOutcome.FAILED, found.message)
        is_foreign = found.foreign and key not in self._lifted
        self._lifted.add(key)
        if not self._order.keep:
            self._drop(before, int(found.outcome is RestoreOutcome.RESTORED))
        return self._result(OrderOutcome.FOREIGN if is_foreign else OrderOutcome.DONE, found.message)

    def _set(self, before: Setting | None, value: float) -> ApplyResult:
        setting, write = self._prepared(before, value)
        (value,) = setting.applied
        if not self._is_awaited():  # the driver took long to report what is in force, and much may have changed
            raise OrderRefused(OrderOutcome.TIMEOUT, "the driver took too long to answer")
        if before is None or value not in before.applied:
            self._record.add(setting)
        self._lifted.discard((self._order.uuid, self._order.knob))
        try:
            write()
        except (PermissionMissing, Unsupported) as error:  # without a doubt nothing has changed
            self.unsupported = isinstance(error, Unsupported)
            if before is None:
                self._drop(setting, 0)
            raise
        if before is not None and before.applied != (value,):
            self._record.confirm(self._order.uuid, self._order.knob, value)
        return self._result(OrderOutcome.DONE, in_force=value)

    def _prepared(self, before: Setting | None, value: float) -> tuple[Setting, Callable[[], None]]:
        """The setting to record, and the call to make after that. Raises OrderRefused."""
        capabilities = self._control.capabilities(self._order.uuid)
        if self._order.knob == "locked_clocks":
            lowest = lowest_clock(value, capabilities)
            lock = partial(self._control.set_locked_clocks, self._order.uuid, lowest, value)
            return replace(self._blank, applied=(value,)), lock
        original = original_limit(capabilities, before)
        watts = watts_to_set(value, capabilities, original)
        return replace(self._blank, original=original, applied=(watts,)), lambda: self._write_limit(watts)

    def _write_limit(self, watts: float) -> None:
        self._control.set_power_limit(self._order.uuid, watts)
        after, _ = self._control.power_limits(self._order.uuid)
        if not is_same(after, watts):
            raise GpuwatchError(f"{watts:g} W were set", f"the driver reports {after:g} W")

    def _drop(self, setting: Setting, restored: int) -> None:
        self._record.settle((setting,), restored, Trigger.TUNER)

    def _result(self, outcome: OrderOutcome, message: str = "", in_force: float | None = None) -> ApplyResult:
        return ApplyResult(order=self._order, outcome=outcome, message=message, in_force=in_force)


log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 1.0
"""How long one call waits for the driver to answer."""


class NvmlActuator:
    """An `Actuator` that sets GPUs through this machine's driver. `boot_id` None: not known, so nothing is set."""

    def __init__(
        self,
        record: SettingsRecord,
        connect: Connect,
        *,
        boot_id: str | None,
        audit: Audit,
        clock: Clock,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self._record, self._connect, self._boot_id, self._clock = record, OpenSession(connect), boot_id, clock
        self._timeout, self._executor, self._closed = timeout, PerGpuExecutor(), False
        self._unlockable: set[str] = set()
        self._lifted: set[tuple[str, Knob]] = set()
        self._restorers = {
            trigger: Restorer(
                record,
                self._connect,
                boot_id=boot_id,
                trigger=trigger,
                audit=audit,
                clock=clock,
                executor=self._executor,
            )
            for trigger in Trigger
        }

    def capabilities(self, uuid: str) -> GpuCapabilities:
        """What may be set on a GPU; no clocks, once the driver has refused to lock them.

        Raises:
            GpuwatchError: the driver does not report it.
        """
        found: list[GpuCapabilities | GpuwatchError] = []

        def read() -> None:
            try:
                with self._connect() as control:
                    found.append(control.capabilities(uuid))
            except GpuwatchError as error:
                found.append(error)

        self._executor.run({uuid: read}, self._timeout)
        answer = found[0] if found else GpuwatchError(f"what may be set on GPU {uuid} was not read", NO_ANSWER)
        if isinstance(answer, GpuwatchError):
            raise answer
        return replace(answer, clocks=()) if uuid in self._unlockable else answer

    def recorded(self) -> Actuation:
        """What the record holds now. Raises GpuwatchError: it cannot be read."""
        return self._record.read()

    def restore(
        self, trigger: Trigger, uuids: Collection[str] | None = None, kept_knobs: Collection[Knob] = ()
    ) -> tuple[str, ...]:
        """Restore all settings of these GPUs, None: of all, within 4 s; returns which were not restored, and why. Those
        stay recorded, and so do the settings of `kept_knobs`.

        After Trigger.EXIT nothing is set any more.
        """
        if trigger is Trigger.EXIT:
            self._closed = True
        try:
            found = self._restorers[trigger].restore(uuids, kept_knobs)
        except GpuwatchError as error:
            return (str(error),)
        return tuple(
            f"{each.setting.knob} of {each.setting.uuid}: {each.message}"
            for each in found
            if each.outcome is RestoreOutcome.KEPT
        )

    def close(self) -> None:
        """Restore everything, and set nothing any more; what an earlier EXIT could not restore is left to the guard."""
        if not self._closed:
            for message in self.restore(Trigger.EXIT):
                log.error("not restored: %s", message)
        self._connect.close()

    def apply(self, orders: Sequence[SettingOrder]) -> tuple[ApplyResult, ...]:
        """Carry out the orders of each GPU in order, all GPUs at once; return within `timeout` seconds."""
        done: dict[int, ApplyResult] = {}
        by_gpu: dict[str, dict[int, SettingOrder]] = {}
        for number, order in enumerate(orders):
            by_gpu.setdefault(order.uuid, {})[number] = order
        deadline = time.monotonic() + self._timeout

        def is_awaited() -> bool:
            return not self._closed and time.monotonic() < deadline

        jobs = {uuid: partial(self._apply_gpu, uuid, own, done, is_awaited) for uuid, own in by_gpu.items()}
        self._executor.run(jobs, self._timeout)
        return tuple(
            done.get(number) or _result(order, OrderOutcome.TIMEOUT, NO_ANSWER) for number, order in enumerate(orders)
        )

    def _apply_gpu(
        self, uuid: str, orders: dict[int, SettingOrder], done: dict[int, ApplyResult], is_awaited: Callable[[], bool]
    ) -> None:
        """All orders of one GPU; each outcome is put into `done` by the order's number."""
        outcome, message = OrderOutcome.REFUSED, "the tuner ends"
        with self._record.lock_gpu(uuid, LOCK_SECONDS) as held:
            if self._boot_id is None:
                message = "which boot this is cannot be read"
            elif not held:
                message = "another process holds the lock of this GPU"
            elif not self._closed:
                for _ in range(SESSIONS):
                    try:
                        self._carry_out(orders, self._boot_id, done, is_awaited)
                        break
                    except GpuwatchError as error:
                        outcome, message = OrderOutcome.FAILED, str(error)
                        if not isinstance(error, NoGpuStack):
                            break
        for number, order in orders.items():
            if number not in done:
                done[number] = _result(order, outcome, message)

    def _carry_out(
        self,
        orders: dict[int, SettingOrder],
        boot_id: str,
        done: dict[int, ApplyResult],
        is_awaited: Callable[[], bool],
    ) -> None:
        """Carry out what is not in `done` yet. Raises GpuwatchError: there is no session, or it has ended."""
        with self._connect() as control:
            driver = control.driver_version()
            for number, order in orders.items():
                if number not in done:
                    blank = Setting(
                        uuid=order.uuid,
                        knob=order.knob,
                        original=None,
                        applied=(),
                        at=self._clock.time(),
                        boot_id=boot_id,
                        driver=driver,
                        pod_uid=order.pod_uid,
                    )
                    writer = SettingWriter(self._record, control, order, blank, is_awaited, self._lifted)
                    done[number] = writer.carry_out()
                    if writer.unsupported and order.knob == "locked_clocks":
                        self._unlockable.add(order.uuid)


def _result(order: SettingOrder, outcome: OrderOutcome, message: str) -> ApplyResult:
    return ApplyResult(order=order, outcome=outcome, message=message)
