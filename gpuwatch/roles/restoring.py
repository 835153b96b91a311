"""Gives back what the record lists: asks what is in force, sets what was before, reads it back, and only then forgets.

Each GPU has a thread of its own for it: one whose driver call does not return keeps nobody else waiting, and is not
asked again while it hangs.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import NamedTuple, Protocol

from gpuwatch.model.clock import Clock
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.event import Result
from gpuwatch.model.setting import Setting, Trigger
from gpuwatch.rules.restoring import Limits, is_same, outlived, power_target
from gpuwatch.sinks.audit import Audit, Deed
from gpuwatch.sinks.settings_record import SettingsRecord

log = logging.getLogger(__name__)

ANSWER_SECONDS = 3.0
"""For the driver to give back everything of one GPU."""

LOCK_SECONDS = 1.0
"""For another process to finish what it does with the record; one that hangs in the driver must not keep us."""


class Control(Protocol):
    """A session with the driver, watts: `sinks.nvml_control.NvmlControl`. Everything may raise GpuwatchError."""

    def driver_version(self) -> str:
        """Of the driver that is loaded."""
        ...

    def power_limits(self, uuid: str) -> tuple[float, float]:
        """Configured, most."""
        ...

    def set_power_limit(self, uuid: str, watts: float) -> None:
        """Set it."""
        ...

    def reset_locked_clocks(self, uuid: str) -> None:
        """Unlock them."""
        ...


Connect = Callable[[], AbstractContextManager[Control]]


class Outcome(StrEnum):
    """What became of a recorded setting."""

    RESTORED = "restored"
    DROPPED = "dropped"  # nothing of ours is in force any more
    KEPT = "kept"  # not known or not possible; it stays recorded and is tried again


class Restored(NamedTuple):
    """One setting, and what became of it in words; `error` behind it, if there is one."""

    setting: Setting
    outcome: Outcome
    words: str
    error: GpuwatchError | None = None


class Restorer:
    """Restores on behalf of `trigger`. `boot_id` None: not known, so nothing is set and nothing forgotten."""

    def __init__(
        self,
        record: SettingsRecord,
        connect: Connect,
        *,
        boot_id: str | None,
        trigger: Trigger,
        audit: Audit,
        clock: Clock,
        patience: float = ANSWER_SECONDS,
    ) -> None:
        self._record, self._connect, self._boot_id, self._trigger = record, connect, boot_id, trigger
        self._audit, self._clock, self._patience = audit, clock, patience
        self._threads: dict[str, threading.Thread] = {}
        self._told: dict[tuple[str, str], str] = {}

    def restore(self) -> tuple[Restored, ...]:
        """Everything that is recorded now.

        Raises:
            GpuwatchError: the record cannot be read or written.
        """
        with self._record.lock(LOCK_SECONDS) as held:
            found = self._ask(self._record.read().settings)
            if not held:
                log.warning("another process holds %s; what is given back stays recorded", self._record.path)
            else:
                gone = tuple(each.setting for each in found if each.outcome is not Outcome.KEPT)
                done = sum(each.outcome is Outcome.RESTORED for each in found)
                self._record.settle(gone, done, self._trigger)
        for each in found:
            self._tell(each)
        return found

    def _ask(self, settings: Iterable[Setting]) -> tuple[Restored, ...]:
        """One thread for each GPU, all at once, none waited for longer than its time."""
        by_gpu: dict[str, list[Setting]] = {}
        for setting in settings:
            by_gpu.setdefault(setting.uuid, []).append(setting)
        answers: dict[Setting, Restored] = {}
        for uuid, own in by_gpu.items():
            if (thread := self._threads.get(uuid)) is None or not thread.is_alive():
                thread = threading.Thread(target=self._gpu, args=(own, answers), name=f"restore {uuid}", daemon=True)
                self._threads[uuid] = thread
                thread.start()
        deadline = time.monotonic() + self._patience
        for uuid in by_gpu:
            self._threads[uuid].join(max(0.0, deadline - time.monotonic()))
        silent = "the driver does not answer"
        everything = (setting for own in by_gpu.values() for setting in own)
        return tuple(answers.get(setting) or Restored(setting, Outcome.KEPT, silent) for setting in everything)

    def _gpu(self, settings: list[Setting], answers: dict[Setting, Restored]) -> None:
        for setting in settings:
            if self._boot_id is None:  # whoever locked the clocks since another boot keeps them
                answers[setting] = Restored(setting, Outcome.KEPT, "which boot this is cannot be read")
            elif words := outlived(setting, self._boot_id, None):
                answers[setting] = Restored(setting, Outcome.DROPPED, words)
        left = [setting for setting in settings if setting not in answers]
        try:
            if left:
                with self._connect() as control:
                    driver = control.driver_version()
                    for setting in left:
                        answers[setting] = _give_back(setting, control, driver)
        except GpuwatchError as error:
            answers.update(
                {each: Restored(each, Outcome.KEPT, str(error), error) for each in left if each not in answers}
            )

    def _tell(self, each: Restored) -> None:
        """One audit line for each outcome; what stays as it was is not said again."""
        setting, key = each.setting, (each.setting.uuid, each.setting.knob)
        if self._told.get(key) == each.words and each.outcome is Outcome.KEPT:
            return
        self._told[key] = each.words
        deed = Deed(
            action="restore",
            target=f"gpu/{setting.uuid}",
            why=f"{setting.knob} recorded",
            evidence=(f"{setting.knob}/{setting.uuid}",),
            before=", ".join(f"{value:g}" for value in setting.applied),
            after="" if setting.original is None else f"{setting.original:g}",
        )
        results = {Outcome.RESTORED: Result.DONE, Outcome.DROPPED: Result.SKIPPED, Outcome.KEPT: Result.FAILED}
        self._audit.note(deed, results[each.outcome], each.words)


def _give_back(setting: Setting, control: Control, driver: str) -> Restored:
    """One setting. Nothing is written before it is known what is in force."""
    if words := outlived(setting, None, driver):
        return Restored(setting, Outcome.DROPPED, words)
    try:
        if setting.knob == "locked_clocks":
            control.reset_locked_clocks(setting.uuid)
            return Restored(setting, Outcome.RESTORED, "the clocks are unlocked")
        now = Limits(*control.power_limits(setting.uuid))
        if (target := power_target(setting, now)) is None:
            return Restored(
                setting, Outcome.DROPPED, f"nothing of gpuwatch is in force, the limit is {now.configured:g} W"
            )
        control.set_power_limit(setting.uuid, target)
        after = Limits(*control.power_limits(setting.uuid)).configured
    except GpuwatchError as error:
        return Restored(setting, Outcome.KEPT, str(error), error)
    if not is_same(after, target):
        return Restored(setting, Outcome.KEPT, f"asked for {target:g} W, the driver still says {after:g} W")
    return Restored(setting, Outcome.RESTORED, f"the power limit is {after:g} W again")
