"""The hand of a tuner: turns knobs, never above what they were, and records each value before the driver is asked.

It can be built only in mode enforce: nobody but the command line imports this. Each GPU has a thread and a lock of its
own. `roles.restoring` tells how two processes share a GPU; where another one has it, nothing is set here.
"""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial

from msgspec.structs import replace

from gpuwatch.model.clock import Clock
from gpuwatch.model.errors import GpuwatchError, NoGpuStack
from gpuwatch.model.setting import Actuation, Knob, Setting, Trigger
from gpuwatch.storage.audit import Audit
from gpuwatch.tuning.actuation import restore as restoring
from gpuwatch.tuning.actuation.apply import LOCK_SECONDS, Turning
from gpuwatch.tuning.actuation.driver_session import OpenSession
from gpuwatch.tuning.actuation.gpu_threads import Lanes
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.actuation.restore import SESSIONS, SILENT, Connect, Restorer
from gpuwatch.tuning.model.order import Board, Order, Outcome, Turned

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 1.0
"""For the driver to do what is asked of one GPU."""


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
        self._record, self._connect, self._boot_id, self._clock = record, OpenSession(connect), boot_id, clock
        self._patience, self._lanes, self._closed = patience, Lanes(), False
        self._unlockable: set[str] = set()
        self._restorers = {
            trigger: Restorer(
                record, self._connect, boot_id=boot_id, trigger=trigger, audit=audit, clock=clock, lanes=self._lanes
            )
            for trigger in Trigger
        }

    def board(self, uuid: str) -> Board:
        """What may be set of a GPU; no clocks, once the driver has refused to lock them.

        Raises:
            GpuwatchError: the driver does not say.
        """
        found: list[Board | GpuwatchError] = []

        def ask() -> None:
            try:
                with self._connect() as control:
                    found.append(control.board(uuid))
            except GpuwatchError as error:
                found.append(error)

        self._lanes.run({uuid: ask}, self._patience)
        answer = found[0] if found else GpuwatchError(f"GPU {uuid} says nothing", SILENT)
        if isinstance(answer, GpuwatchError):
            raise answer
        return replace(answer, clocks=()) if uuid in self._unlockable else answer

    def recorded(self) -> Actuation:
        """What the record says now. Raises GpuwatchError: it cannot be read."""
        return self._record.read()

    def give_back(
        self, trigger: Trigger, uuids: Collection[str] | None = None, spared: Collection[Knob] = ()
    ) -> tuple[str, ...]:
        """Everything of these GPUs, None: of all, within 4 s; what was not given back, in words. It stays recorded, and
        so does what is set of the `spared` knobs.

        With Trigger.EXIT nothing is set any more afterwards.
        """
        if trigger is Trigger.EXIT:
            self._closed = True
        try:
            found = self._restorers[trigger].restore(uuids, spared)
        except GpuwatchError as error:
            return (str(error),)
        return tuple(
            f"{each.setting.knob} of {each.setting.uuid}: {each.words}"
            for each in found
            if each.outcome is restoring.Outcome.KEPT
        )

    def close(self) -> None:
        """Give everything back, and set nothing any more; what an earlier EXIT could not give back is the guard's."""
        if not self._closed:
            for words in self.give_back(Trigger.EXIT):
                log.error("not given back: %s", words)
        self._connect.close()

    def turn(self, orders: Sequence[Order]) -> tuple[Turned, ...]:
        """Carry out, in order for each GPU, all GPUs at once; in `patience` seconds."""
        done: dict[int, Turned] = {}
        by_gpu: dict[str, dict[int, Order]] = {}
        for number, order in enumerate(orders):
            by_gpu.setdefault(order.uuid, {})[number] = order
        deadline = time.monotonic() + self._patience

        def wanted() -> bool:
            return not self._closed and time.monotonic() < deadline

        jobs = {uuid: partial(self._gpu, uuid, own, done, wanted) for uuid, own in by_gpu.items()}
        self._lanes.run(jobs, self._patience)
        return tuple(done.get(number) or _turned(order, Outcome.SILENT, SILENT) for number, order in enumerate(orders))

    def _gpu(self, uuid: str, orders: dict[int, Order], done: dict[int, Turned], wanted: Callable[[], bool]) -> None:
        """All orders of one GPU; each outcome is put into `done` by the order's number."""
        outcome, words = Outcome.REFUSED, "the tuner ends"
        with self._record.lock_gpu(uuid, LOCK_SECONDS) as held:
            if self._boot_id is None:
                words = "which boot this is cannot be read"
            elif not held:
                words = "another process is at this GPU"
            elif not self._closed:
                for _ in range(SESSIONS):
                    try:
                        self._carry_out(orders, self._boot_id, done, wanted)
                        break
                    except GpuwatchError as error:
                        outcome, words = Outcome.FAILED, str(error)
                        if not isinstance(error, NoGpuStack):
                            break
        for number, order in orders.items():
            if number not in done:
                done[number] = _turned(order, outcome, words)

    def _carry_out(
        self, orders: dict[int, Order], boot_id: str, done: dict[int, Turned], wanted: Callable[[], bool]
    ) -> None:
        """What is not done yet. Raises GpuwatchError: there is no session, or it has ended."""
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
                    turning = Turning(self._record, control, order, blank, wanted)
                    done[number] = turning.carry_out()
                    if turning.unsupported and order.knob == "locked_clocks":
                        self._unlockable.add(order.uuid)


def _turned(order: Order, outcome: Outcome, words: str) -> Turned:
    return Turned(order=order, outcome=outcome, words=words)
