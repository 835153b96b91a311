"""The tuner of one node: reports for each GPU whether it may be tuned, and in mode enforce tunes it.

`step` does one cycle and never sleeps; its caller decides how time passes. `cycle.cycle` decides; this module collects
its inputs and carries out its orders. A tuner that observes has no actuator, and cannot get one.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from gpuwatch.agent.client import ViewSource
from gpuwatch.config import Config, TuningConfig
from gpuwatch.model.clock import Clock
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.event import Result
from gpuwatch.model.finding import XidClass
from gpuwatch.model.snapshot import GpuState
from gpuwatch.model.view import STALE_INTERVALS, View
from gpuwatch.storage.audit import Audit, AuditEntry
from gpuwatch.tuning.actuation.interface import Actuator
from gpuwatch.tuning.cycle.cycle import cycle
from gpuwatch.tuning.cycle.obstacles import stopped
from gpuwatch.tuning.cycle.state import CycleInputs, CycleMemory, CycleResult, OrderReport
from gpuwatch.tuning.model.setting import ApplyResult, GpuCapabilities, Knob, OrderOutcome, Trigger
from gpuwatch.tuning.model.status import ObstacleReason, TunerState
from gpuwatch.tuning.service.state_dir import HeartbeatMonitor, KnownCaps, SavedSearches, TunerFolder

T = TypeVar("T")

log = logging.getLogger(__name__)

FRESH_SECONDS = 3.0
"""A View is too old when it is older than this and than STALE_INTERVALS of its intervals."""

FINISH_SECONDS = 1.5
"""At the end, for a cycle under way: the actuator waits a second for the driver."""

GUARD_SECONDS = 30.0
"""A guard without a beat for so long counts as dead."""

GRACE_SECONDS = 2.0
"""A live guard, which beats each second, is found within this at the start: before, its absence is not logged."""

RETRY_SECONDS = 60.0
"""Seconds until what may be set on a GPU is read again after a failure."""

RESULTS = {OrderOutcome.DONE: Result.DONE, OrderOutcome.FOREIGN: Result.SKIPPED}
"""The result of an order, for the audit; every other outcome is a failure."""

ADOPTED: tuple[Knob, ...] = ("power_limit",)
"""Settings of an earlier tuner that stay: a budget that is kept continues with them."""


class CapabilityCache:
    """What may be set on each GPU of one node: read from the driver once for each, and again when another driver was
    loaded. Without an actuator nothing is read, and nothing is known.
    """

    def __init__(self, actuator: Actuator | None) -> None:
        self._actuator, self._driver = actuator, ""
        self._known: dict[str, GpuCapabilities] = {}
        self._unanswered: dict[str, tuple[float, str]] = {}
        self._invalid: set[str] = set()

    def known(self, view: View | None, now: float, troubles: list[str | None]) -> Mapping[str, GpuCapabilities]:
        """By uuid, of the GPUs that answer. One that does not takes a second, and the others wait a cycle."""
        if self._actuator is None or view is None:
            return {}
        driver = view.snapshot.driver.version if view.snapshot.driver else None
        if driver is not None and driver != self._driver:
            self._driver = driver
            self._known.clear()
            self._unanswered.clear()
        self._unanswered = {uuid: each for uuid, each in self._unanswered.items() if each[0] > now}
        for status in view.snapshot.statuses:
            uuid = status.identity.uuid
            is_unknown = (uuid not in self._known or uuid in self._invalid) and uuid not in self._unanswered
            if not is_unknown or status.state is not GpuState.FRESH:
                continue
            before = self._known.pop(uuid, None)
            self._invalid.discard(uuid)
            try:
                capabilities = self._actuator.capabilities(uuid)
            except GpuwatchError as error:
                self._unanswered[uuid] = now + RETRY_SECONDS, str(error)
                break
            # a limit of ours may be in force by now; the earlier one counts
            self._known[uuid] = capabilities if before is None else replace(capabilities, limit=before.limit)
        troubles += dict.fromkeys(message for _, message in self._unanswered.values())
        return dict(self._known)

    def invalidate(self, uuids: Iterable[str]) -> None:
        """Something was not set on these: read again what may be."""
        self._invalid.update(uuids)


class Tuner:
    """Runs the cycles for the GPUs of one node. `actuator` None: it only observes."""

    def __init__(
        self,
        config: TuningConfig,
        views: ViewSource,
        folder: TunerFolder,
        *,
        clock: Clock,
        classes: Mapping[int, XidClass] | None = None,
        actuator: Actuator | None = None,
        audit: Audit | None = None,
    ) -> None:
        self._views, self._folder, self._clock, self._actuator = views, folder, clock, actuator
        self._guard_monitor = HeartbeatMonitor(folder.guard, GUARD_SECONDS)
        self._searches, self._caps = SavedSearches(folder.memory), KnownCaps(folder.caps)
        self._capabilities, self._audit = CapabilityCache(actuator), audit
        self._memory, self._results = CycleMemory(), tuple[ApplyResult, ...]()
        self._actions: Counter[tuple[Knob, str]] = Counter()
        self._logged: dict[str, object] = {}
        self._trouble: str | None = None
        self.config_error: str | None = None
        """Why the newest configuration is not in force."""
        self._cycle_lock, self._ended = threading.Lock(), False
        self._begun = self._enforced = False
        self.reconfigure(config, classes)
        self.state = TunerState(mode=config.mode, trouble="no view yet")

    def reconfigure(self, config: TuningConfig, classes: Mapping[int, XidClass] | None = None) -> None:
        """Take over another configuration; `classes`: `checks.xids`."""
        self._config, self._classes = config, classes or {}

    def step(self) -> TunerState:
        """Write a heartbeat, read the inputs, decide, set; returns the new state."""
        with self._cycle_lock:
            if self._ended:
                return self.state
            config, troubles = self._config, list[str | None]()  # another one may come while this cycle runs
            try:
                self._folder.heartbeat.beat(config.mode, self._clock.time())
            except GpuwatchError as error:
                troubles.append(str(error))
            enforcing = config.mode == "enforce" and self._actuator is not None
            if self._actuator is not None:
                troubles += self._restore_leftovers(self._actuator, config, enforcing=enforcing)
            inputs = self._inputs(config, troubles)
            found = cycle(self._memory, inputs)
            self._memory = found.memory
            if self._actuator is not None and enforcing:
                orders = () if self._ended else found.orders
                self._results = self._actuator.apply(orders) if orders else ()
                for each in self._results:
                    self._actions[each.order.knob, each.outcome] += 1
                self._capabilities.invalidate(
                    each.order.uuid for each in self._results if each.outcome is not OrderOutcome.DONE
                )
                self._write_audit(found.reports)
                self._searches.keep(found.kept, found.memory.used_saves)
                self._caps.keep(found.known)
            troubles.append(self._views.trouble if config.mode != "off" else None)
            self._publish(inputs, found, troubles, enforcing=enforcing)
            return self.state

    def reset(self) -> None:
        """After a cycle that failed: what it has set is not known, so everything is restored."""
        with self._cycle_lock:
            self._reset_memory()
            if self._actuator is not None and not self._ended:
                self._restore(self._actuator, Trigger.TUNER)

    def end(self) -> None:
        """Set nothing any more, and restore everything; what was found out is kept for the next tuner."""
        self._ended = True  # a cycle under way sets nothing more
        held = self._cycle_lock.acquire(timeout=FINISH_SECONDS)  # a cycle that hangs must not prevent the restore
        try:
            if self._actuator is not None:
                self._restore(self._actuator, Trigger.EXIT)
                self._searches.write()
            self._folder.status.clear()
        finally:
            if held:
                self._cycle_lock.release()

    def _restore_leftovers(self, actuator: Actuator, config: TuningConfig, *, enforcing: bool) -> list[str]:
        """Restore everything before the first cycle, and in a mode that sets nothing. Only the power limits of a budget
        stay at the start: without them the budget would be exceeded until they are set again.
        """
        trigger = Trigger.TUNER if self._begun else Trigger.START
        if enforcing != self._enforced:
            self._reset_memory()
        is_adopted = trigger is Trigger.START and enforcing and config.node_budget_watts is not None
        try:
            settled = self._begun and (enforcing or not actuator.recorded().settings)
        except GpuwatchError:
            settled = False  # the restore reports why
        self._begun, self._enforced = True, enforcing
        return [] if settled else self._restore(actuator, trigger, ADOPTED if is_adopted else ())

    def _restore(self, actuator: Actuator, trigger: Trigger, kept_knobs: Collection[Knob] = ()) -> list[str]:
        left = list(actuator.restore(trigger, kept_knobs=kept_knobs))
        for message in left:
            log.error("not restored: %s", message)
        return left

    def _reset_memory(self) -> None:
        """Drop all but the joules saved, how often GPUs were tried, and which saved states were used."""
        known = self._memory
        self._memory, self._results = (
            CycleMemory(accounts=known.accounts, rate_limits=known.rate_limits, used_saves=known.used_saves),
            (),
        )

    def _inputs(self, config: TuningConfig, troubles: list[str | None]) -> CycleInputs:
        view, now = self._views.view, self._clock.monotonic()
        interval = view.snapshot.interval if view is not None else 0.0
        stop = self._folder.stop.read()
        consents = _read(self._folder.consents.read, troubles)
        actuation = _read(self._folder.record.read, troubles)
        if actuation is not None and actuation.settings and self._actuator is None:
            troubles.append(
                f"{len(actuation.settings)} settings of an earlier tuner are recorded; "
                "a guard restores them, or `gpuwatch tune restore`"
            )
        return CycleInputs(
            view=view,
            fresh=view is not None and self._views.age <= max(STALE_INTERVALS * interval, FRESH_SECONDS),
            now=now,
            at=self._clock.time(),
            config=config,
            consents=consents,
            actuation=actuation,
            capabilities=self._capabilities.known(view, now, troubles),
            guarded=self._guard_monitor.is_alive(now),
            guard_awaited=self._guard_monitor.is_awaited(now),
            stopped=stop.message if stop is not None else "",
            results=self._results,
            saved=self._searches.saved,
            known=self._caps.known,
            classes=self._classes,
            progress=_read(self._folder.progress.read, troubles),  # without it GPU counters decide
        )

    def _write_audit(self, reports: Iterable[OrderReport]) -> None:
        """One entry for each decision. A decision without an order counts as done."""
        if self._audit is None:
            return
        by_key = {(each.order.uuid, each.order.knob): each for each in self._results}
        for each in reports:
            found = by_key.get((each.uuid, each.knob)) if each.knob is not None else None
            result = Result.DONE if found is None else RESULTS.get(found.outcome, Result.FAILED)
            entry = AuditEntry(
                action=each.action, target=f"gpu/{each.uuid}", why=each.why, before=each.before, after=each.after
            )
            self._audit.note(entry, result, found.message if found else "")

    def _publish(self, inputs: CycleInputs, found: CycleResult, troubles: list[str | None], *, enforcing: bool) -> None:
        self.state = TunerState(
            mode=inputs.config.mode,
            at=inputs.at,
            guard=inputs.guarded if enforcing else None,
            consents_at=inputs.consents.at if inputs.consents is not None else None,
            stopped=stopped(inputs),
            budget=found.budget,
            gpus=found.gpus,
            view_at=inputs.view.snapshot.at if inputs.view is not None else None,
            actuation=inputs.actuation,
            actions=dict(self._actions),
            config_error=self.config_error,
            trouble="; ".join(filter(None, troubles)) or None,
        )
        try:
            self._folder.status.write(self.state)
        except GpuwatchError as error:
            log.debug("%s", error)  # the heartbeat has already reported the folder
        is_early = self._guard_monitor.is_awaited(inputs.now, GRACE_SECONDS)
        is_awaited = self._guard_monitor.is_awaited(inputs.now)
        for gpu in self.state.gpus:
            is_unguarded = gpu.reason is ObstacleReason.NO_GUARD
            if is_early and is_unguarded:
                continue
            if self._logged.get(gpu.uuid) != (summary := (gpu.state, gpu.reason, is_unguarded and is_awaited)):
                self._logged[gpu.uuid] = summary
                message = gpu.message or gpu.note
                log.info("GPU %d: %s%s", gpu.index, gpu.state, f"; {message}" if message else "")
        if self.state.trouble != self._trouble and self.state.trouble:
            log.warning("%s", self.state.trouble)
        self._trouble = self.state.trouble


def _read(read: Callable[[], T | None], troubles: list[str | None]) -> T | None:
    try:
        return read()
    except GpuwatchError as error:
        troubles.append(str(error))
        return None


def checked(config: Config, *, enforcing: bool) -> Config:
    """The configuration, if a tuner that was started to enforce, or not to, can apply it. Raises UsageError.

    A tuner that observes has neither the rights nor the driver to set anything, and cannot get them while it runs.
    """
    if config.tuning.mode == "enforce" and not enforcing:
        raise UsageError(
            "tuning.mode enforce is not for a tuner that was started to observe",
            "it has no access to the driver",
            "restart the tuner",
        )
    return config
