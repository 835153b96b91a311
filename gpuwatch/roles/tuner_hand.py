"""The hand of a tuner: turns knobs, never above what they were, and records each value before the driver is asked.

For each order: the GPU's lock, the record, what is in force, the record again, the driver, what is in force now.
Nothing is taken from memory: a guard may have given everything back while this process was stopped, and then the
original is what the driver says now. `roles.restoring` tells how two processes share a GPU; where another one has it,
nothing is set here.
"""

import logging
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from msgspec.structs import replace

from gpuwatch.model.clock import Clock
from gpuwatch.model.errors import GpuwatchError, NoGpuStack, PermissionMissing, Unsupported
from gpuwatch.model.order import Board, Order, Outcome, Turned
from gpuwatch.model.setting import Actuation, Setting, Trigger
from gpuwatch.roles import restoring
from gpuwatch.roles.gpu_lanes import Lanes
from gpuwatch.roles.restoring import Connect, Control, Restorer
from gpuwatch.rules.restoring import is_same, outlived
from gpuwatch.rules.turning import Refused, lowest_clock, original_limit, watts_to_set
from gpuwatch.sinks.audit import Audit
from gpuwatch.sinks.settings_record import SettingsRecord

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 1.0
"""For the driver to do what is asked of one GPU."""

LOCK_SECONDS = 0.5
"""For another process to be done with a GPU or with the record."""


class TunerHand:
    """Turns the knobs of this machine's driver: `roles.knobs.Hand`. `boot_id` None: not known, so nothing is set."""

    def __init__(
        self,
        record: SettingsRecord,
        connect: Connect,
        *,
        boot_id: str | None,
        audit: Audit,
        clock: Clock,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._record, self._connect, self._boot_id, self._clock = record, connect, boot_id, clock
        self._patience, self._lanes, self._closed = patience, Lanes(), False
        self._restorers = {
            trigger: Restorer(
                record, connect, boot_id=boot_id, trigger=trigger, audit=audit, clock=clock, lanes=self._lanes
            )
            for trigger in Trigger
        }

    def board(self, uuid: str) -> Board:
        """What may be set of a GPU. Raises GpuwatchError: the driver does not say."""
        found: list[Board | GpuwatchError] = []

        def ask() -> None:
            try:
                with self._connect() as control:
                    found.append(control.board(uuid))
            except GpuwatchError as error:
                found.append(error)

        self._lanes.run({uuid: ask}, self._patience)
        answer = found[0] if found else GpuwatchError(f"GPU {uuid} says nothing", "the driver does not answer")
        if isinstance(answer, GpuwatchError):
            raise answer
        return answer

    def recorded(self) -> Actuation:
        """What the record says now. Raises GpuwatchError: it cannot be read."""
        return self._record.read()

    def give_back(self, trigger: Trigger, uuids: Collection[str] | None = None) -> tuple[str, ...]:
        """Everything of these GPUs, None: of all, within 4 s; what was not given back, in words. It stays recorded."""
        try:
            found = self._restorers[trigger].restore(uuids)
        except GpuwatchError as error:
            return (str(error),)
        return tuple(
            f"{each.setting.knob} of {each.setting.uuid}: {each.words}"
            for each in found
            if each.outcome is restoring.Outcome.KEPT
        )

    def close(self) -> None:
        """Give everything back, and set nothing any more."""
        self._closed = True
        for words in self.give_back(Trigger.EXIT):
            log.error("not given back: %s", words)

    def turn(self, orders: Sequence[Order]) -> tuple[Turned, ...]:
        """Carry out, in order for each GPU, all GPUs at once; in `patience` seconds."""
        done: dict[int, Turned] = {}
        by_gpu: dict[str, dict[int, Order]] = {}
        for number, order in enumerate(orders):
            by_gpu.setdefault(order.uuid, {})[number] = order
        deadline = time.monotonic() + self._patience
        jobs = {uuid: partial(self._gpu, uuid, own, deadline, done) for uuid, own in by_gpu.items()}
        self._lanes.run(jobs, self._patience)
        return tuple(done.get(number) or _silent(order) for number, order in enumerate(orders))

    def _gpu(self, uuid: str, orders: dict[int, Order], deadline: float, done: dict[int, Turned]) -> None:
        failed = Outcome.FAILED, ""
        with self._record.lock_gpu(uuid, LOCK_SECONDS) as held:
            if self._closed:
                failed = Outcome.REFUSED, "the tuner ends"
            elif self._boot_id is None:
                failed = Outcome.REFUSED, "which boot this is cannot be read"
            elif not held:
                failed = Outcome.REFUSED, "another process is at this GPU"
            else:
                for _ in range(2):  # a driver that was loaded anew wants a new session
                    try:
                        self._carry_out(orders, self._boot_id, deadline, done)
                        break
                    except GpuwatchError as error:
                        failed = Outcome.FAILED, str(error)
        for number, order in orders.items():
            if number not in done:
                done[number] = Turned(order=order, outcome=failed[0], words=failed[1])

    def _carry_out(self, orders: dict[int, Order], boot_id: str, deadline: float, done: dict[int, Turned]) -> None:
        """Raises GpuwatchError: there is no session, or it has ended."""
        with self._connect() as control:
            driver = control.driver_version()
            for number, order in orders.items():
                if number not in done:
                    setting = Setting(
                        uuid=order.uuid,
                        knob=order.knob,
                        original=None,
                        applied=(),
                        at=self._clock.time(),
                        boot_id=boot_id,
                        driver=driver,
                        pod_uid=order.pod_uid,
                    )
                    done[number] = _Turning(self._record, control, order, setting, driver, deadline).outcome()


class _Turning:
    """One order, while its GPU's lock is held."""

    def __init__(
        self, record: SettingsRecord, control: Control, order: Order, template: Setting, driver: str, deadline: float
    ) -> None:
        self._record, self._control, self._order, self._template = record, control, order, template
        self._driver, self._deadline = driver, deadline

    def outcome(self) -> Turned:
        """Do it. Raises NoGpuStack: the session has ended."""
        try:
            before = self._recorded()
            return self._set(before, self._order.value) if self._order.value is not None else self._lift(before)
        except Refused as refused:
            return self._turned(refused.outcome, str(refused))
        except NoGpuStack:
            raise
        except GpuwatchError as error:
            return self._turned(Outcome.FAILED, str(error))

    def _recorded(self) -> Setting | None:
        """Of this knob; what went with another boot or driver is taken out."""
        key = self._order.uuid, self._order.knob
        found = next((each for each in self._record.read().settings if (each.uuid, each.knob) == key), None)
        if found is not None and outlived(found, self._template.boot_id, self._driver):
            with self._changing():
                self._record.settle((found,), 0, Trigger.TUNER)
            return None
        return found

    def _lift(self, before: Setting | None) -> Turned:
        if before is None:
            return self._turned(Outcome.DONE, "nothing was set")
        found = restoring.give_back(before, self._control, self._driver)
        if found.outcome is restoring.Outcome.KEPT:
            if isinstance(found.error, NoGpuStack):
                raise found.error
            return self._turned(Outcome.FAILED, found.words)
        if not self._order.keep:
            with self._changing():
                self._record.settle((before,), int(found.outcome is restoring.Outcome.RESTORED), Trigger.TUNER)
        return self._turned(Outcome.FOREIGN if found.foreign else Outcome.DONE, found.words)

    def _set(self, before: Setting | None, value: float) -> Turned:
        board = self._control.board(self._order.uuid)
        if self._order.knob == "power_limit":
            original = original_limit(board, before)
            value = watts_to_set(value, board, original)
            write, setting = partial(self._limit, value), replace(self._template, original=original, applied=(value,))
        else:
            lowest = lowest_clock(value, board)
            write, setting = partial(self._lock, lowest, value), replace(self._template, applied=(value,))
        if time.monotonic() > self._deadline:  # nobody waits for it any more, and it may be wrong by now
            raise Refused(Outcome.SILENT, "the driver took too long to say what is in force")
        if before is None or value not in before.applied:
            with self._changing():
                self._record.add(setting)
        try:
            write()
        except (Unsupported, PermissionMissing):  # said so without a doubt: nothing has changed
            if before is None:
                with self._changing():
                    self._record.settle((setting,), 0, Trigger.TUNER)
            raise
        if before is not None and before.applied != (value,):
            with self._changing():
                self._record.confirm(self._order.uuid, self._order.knob, value)
        return self._turned(Outcome.DONE, in_force=value)

    def _limit(self, watts: float) -> None:
        self._control.set_power_limit(self._order.uuid, watts)
        after, _ = self._control.power_limits(self._order.uuid)
        if not is_same(after, watts):
            raise GpuwatchError(f"asked for {watts:g} W", f"the driver still says {after:g} W")

    def _lock(self, lowest: float, highest: float) -> None:
        self._control.set_locked_clocks(self._order.uuid, lowest, highest)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """While the record is changed. Raises Refused: it cannot be."""
        with self._record.lock(LOCK_SECONDS) as held:
            if not held:
                raise Refused(Outcome.REFUSED, f"another process holds {self._record.path}")
            yield

    def _turned(self, outcome: Outcome, words: str = "", in_force: float | None = None) -> Turned:
        return Turned(order=self._order, outcome=outcome, words=words, in_force=in_force)


def _silent(order: Order) -> Turned:
    return Turned(order=order, outcome=Outcome.SILENT, words="the driver does not answer")
