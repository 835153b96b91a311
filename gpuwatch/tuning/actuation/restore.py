"""Restores what the record lists: reads what is in force, sets the original, reads it back, then drops the record.

Two processes may change the same GPU: a tuner that sets, a guard that restores. Each holds the GPU's lock from before
the record is read to after the driver's answer, so they take turns. A process that hangs in the driver, or is stopped,
keeps its lock. A process that restores waits for it no longer than LOCK_SECONDS: it calls the driver all the same, but
drops nothing from the record, as the other one's call may still take effect. What that call sets was recorded before
it was made, so the next attempt restores it, at the latest when the other process is dead and its lock is free.
"""

import logging
import time
from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from gpuwatch.model.clock import Clock
from gpuwatch.model.errors import GpuwatchError, NoGpuStack
from gpuwatch.model.event import Result
from gpuwatch.storage.audit import Audit, AuditEntry
from gpuwatch.tuning.actuation.interface import Connect, DriverControl, PerGpuExecutor
from gpuwatch.tuning.actuation.record import RecordBusy, SettingsRecord
from gpuwatch.tuning.model.setting import (
    TOLERANCE_HERTZ,
    Knob,
    PowerLimits,
    Setting,
    Trigger,
    expiry_reason,
    is_foreign,
    is_same,
    power_target,
    setting_text,
)

log = logging.getLogger(__name__)

ANSWER_SECONDS = 3.0
"""How long the driver has to restore all settings of one GPU."""

LOCK_SECONDS = 1.0
"""How long a restore waits for another process that holds a GPU."""


SESSIONS = 2
"""Sessions to try: a reload of the driver ends the open one. A driver of another version needs a new process."""

CLOCK_READS, CLOCK_SECONDS = 5, 0.1
"""How often, and how far apart, a clock is read before it counts as above our lock."""

NO_ANSWER = "the driver does not answer"


class RestoreOutcome(StrEnum):
    """The result of restoring one recorded setting."""

    RESTORED = "restored"
    DROPPED = "dropped"  # nothing of ours is in force any more
    KEPT = "kept"  # not known or not possible; it stays recorded and is tried again
    EXEMPT = "exempt"  # it stays in force, and recorded


GONE = (RestoreOutcome.RESTORED, RestoreOutcome.DROPPED)
"""After these nothing of ours is in force."""

RESULTS = {
    RestoreOutcome.RESTORED: Result.DONE,
    RestoreOutcome.DROPPED: Result.SKIPPED,
    RestoreOutcome.KEPT: Result.FAILED,
    RestoreOutcome.EXEMPT: Result.SKIPPED,
}


class Restored(NamedTuple):
    """One setting and the result; `error`: the cause of a failure, if there is one.

    `foreign`: what is in force is neither ours nor what was there before.
    """

    setting: Setting
    outcome: RestoreOutcome
    message: str
    error: GpuwatchError | None = None
    foreign: bool = False


class Restorer:
    """Restores on behalf of `trigger`. `boot_id` None: not known, so nothing is set or dropped."""

    def __init__(
        self,
        record: SettingsRecord,
        connect: Connect,
        *,
        boot_id: str | None,
        trigger: Trigger,
        audit: Audit,
        clock: Clock,
        timeout: float = ANSWER_SECONDS,
        executor: PerGpuExecutor | None = None,
    ) -> None:
        self._record, self._connect, self._boot_id, self._trigger = record, connect, boot_id, trigger
        self._audit, self._clock, self._timeout = audit, clock, timeout
        self._executor = PerGpuExecutor() if executor is None else executor
        self._audited: dict[tuple[str, str], str] = {}

    def restore(self, uuids: Collection[str] | None = None, kept_knobs: Collection[Knob] = ()) -> tuple[Restored, ...]:
        """Restore all settings recorded for these GPUs, None: for all. Takes `timeout` seconds at most. Settings of
        `kept_knobs` stay in force and recorded, unless a boot or another driver has ended them.

        Raises:
            GpuwatchError: the record cannot be read.
        """
        selected = [each for each in self._record.read().settings if uuids is None or each.uuid in uuids]
        answers: dict[tuple[str, str], Restored] = {}
        jobs = {each.uuid: partial(self._restore_gpu, each.uuid, kept_knobs, answers) for each in selected}
        self._executor.run(jobs, self._timeout, wait_busy=True)
        found = tuple(
            answers.get((each.uuid, each.knob)) or Restored(each, RestoreOutcome.KEPT, NO_ANSWER) for each in selected
        )
        for each in found:
            self._audit_outcome(each)
        return found

    def _restore_gpu(self, uuid: str, kept_knobs: Collection[Knob], answers: dict[tuple[str, str], Restored]) -> None:
        """Restore all settings of one GPU. The outcomes are put into `answers`, by GPU and knob."""
        with self._record.lock_gpu(uuid, LOCK_SECONDS) as held:
            try:
                settings = [each for each in self._record.read().settings if each.uuid == uuid]
            except GpuwatchError as error:
                log.error("%s", error)
                return
            found = tuple(self._restore_all(settings, kept_knobs))
            if held:
                found = self._drop_restored(found)
        if not held:
            log.warning("another process holds the lock of GPU %s; what is restored of it stays recorded", uuid)
        answers.update({(each.setting.uuid, each.setting.knob): each for each in found})

    def _drop_restored(self, found: tuple[Restored, ...]) -> tuple[Restored, ...]:
        """Drop what was restored from the record; where its disk is full or it is locked, it stays for later."""
        gone = tuple(each.setting for each in found if each.outcome in GONE)
        done = sum(each.outcome is RestoreOutcome.RESTORED for each in found)
        try:
            self._record.settle(gone, done, self._trigger)
        except RecordBusy as error:
            log.warning("%s; what is restored stays recorded", error)
        except GpuwatchError as error:
            return tuple(
                each._replace(outcome=RestoreOutcome.KEPT, message=f"{each.message}; {error}") for each in found
            )
        return found

    def _restore_all(self, settings: Iterable[Setting], kept_knobs: Collection[Knob]) -> Iterator[Restored]:
        left = []
        for setting in settings:
            if self._boot_id is None:  # since another boot, a clock lock would not be ours
                yield Restored(setting, RestoreOutcome.KEPT, "which boot this is cannot be read")
            elif message := expiry_reason(setting, self._boot_id, None):
                yield Restored(setting, RestoreOutcome.DROPPED, message)
            else:
                left.append(setting)
        failed: GpuwatchError | None = None
        for _ in range(SESSIONS if left else 0):
            try:
                with self._connect() as control:
                    driver = control.driver_version()
                    while left:
                        is_exempt = left[0].knob in kept_knobs and not expiry_reason(left[0], None, driver)
                        yield (
                            Restored(left[0], RestoreOutcome.EXEMPT, "it stays in force")
                            if is_exempt
                            else restore_setting(left[0], control, driver)
                        )
                        del left[0]
                return
            except NoGpuStack as error:
                failed = error
            except GpuwatchError as error:
                failed = error
                break
        yield from (Restored(setting, RestoreOutcome.KEPT, str(failed), failed) for setting in left)

    def _audit_outcome(self, each: Restored) -> None:
        """One audit line for each outcome; a setting that is kept for the same reason again is not reported again."""
        setting, key = each.setting, (each.setting.uuid, each.setting.knob)
        if self._audited.get(key) == each.message and each.outcome is RestoreOutcome.KEPT:
            return
        self._audited[key] = each.message
        entry = AuditEntry(
            action="restore",
            target=f"gpu/{setting.uuid}",
            why=f"{setting.knob} recorded",
            evidence=(f"{setting.knob}/{setting.uuid}",),
            before=", ".join(setting_text(setting.knob, value) for value in setting.applied),
            after=setting_text(setting.knob, setting.original),
        )
        self._audit.note(entry, RESULTS[each.outcome], each.message)


def restore_setting(setting: Setting, control: DriverControl, driver: str) -> Restored:
    """Restore one setting. Nothing is written before it is known what is in force.

    Raises:
        NoGpuStack: the session with the driver has ended.
    """
    if message := expiry_reason(setting, None, driver):
        return Restored(setting, RestoreOutcome.DROPPED, message)
    try:
        if setting.knob == "locked_clocks":
            return _unlock(setting, control)
        now = PowerLimits(*control.power_limits(setting.uuid))
        if (target := power_target(setting, now)) is None:
            return Restored(
                setting,
                RestoreOutcome.DROPPED,
                f"nothing of gpuwatch is in force, the limit is {now.configured:g} W",
                foreign=is_foreign(setting, now.configured),
            )
        control.set_power_limit(setting.uuid, target)
        after = PowerLimits(*control.power_limits(setting.uuid)).configured
    except NoGpuStack:
        raise
    except GpuwatchError as error:
        return Restored(setting, RestoreOutcome.KEPT, str(error), error)
    if not is_same(after, target):
        return Restored(setting, RestoreOutcome.KEPT, f"{target:g} W were set, the driver reports {after:g} W")
    above = f"; {setting.original:g} W is above the GPU's default" if target != setting.original else ""
    return Restored(setting, RestoreOutcome.RESTORED, f"the power limit is {after:g} W again{above}")


def _unlock(setting: Setting, control: DriverControl) -> Restored:
    """Unlock the clocks, unless they run above our lock: then it is not in force, and another lock is not ours."""
    cap = max(setting.applied)
    for _ in range(CLOCK_READS):  # a new lock may not be in force yet
        if (clock := control.sm_clock(setting.uuid)) <= cap + TOLERANCE_HERTZ:
            break
        time.sleep(CLOCK_SECONDS)
    else:
        message = f"it runs at {clock / 1e6:.0f} MHz, so the lock of {cap / 1e6:.0f} MHz is not in force"
        return Restored(setting, RestoreOutcome.DROPPED, message, foreign=True)
    control.reset_locked_clocks(setting.uuid)
    return Restored(setting, RestoreOutcome.RESTORED, "the clocks are unlocked")
