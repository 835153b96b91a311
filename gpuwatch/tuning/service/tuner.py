"""The tuner of one node: says of each GPU whether it may be tuned, and in mode enforce tunes it.

`step` does one cycle and never sleeps; who calls it decides how time passes. `rules.tuning_loop` decides; here is what
it goes by, and what it leads to. A tuner that observes has no hand, and cannot get one.
"""

import logging
import threading
from collections import Counter
from collections.abc import Collection, Mapping

from gpuwatch.agent.client import ViewSource
from gpuwatch.config import Config, TuningConfig
from gpuwatch.model.clock import Clock
from gpuwatch.model.consent import Consents
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.finding import XidClass
from gpuwatch.model.setting import Actuation, Knob, Trigger
from gpuwatch.storage.audit import Audit
from gpuwatch.tuning.actuation.interface import Hand
from gpuwatch.tuning.cycle.cycle import Inputs, Memory, Step, cycle
from gpuwatch.tuning.cycle.obstacles import stopped
from gpuwatch.tuning.model.order import Outcome, Turned
from gpuwatch.tuning.model.status import Reason, TunerState
from gpuwatch.tuning.service.audit import Deeds
from gpuwatch.tuning.service.gpu_capabilities import Boards
from gpuwatch.tuning.service.saved_state import TunerPast
from gpuwatch.tuning.service.state_dir import Hearing, TunerFolder

log = logging.getLogger(__name__)

FRESH_INTERVALS, FRESH_SECONDS = 3, 3.0
"""A View is too old when it is older than both."""

FINISH_SECONDS = 1.5
"""At the end, for a cycle under way: the hand waits a second for the driver."""

GUARD_SECONDS = 30.0
"""Without a beat of the guard for so long, nobody guards."""

QUIET_SECONDS = 2.0
"""A guard that lives is heard within this at the start, for it beats each second: until then its absence is no news."""

ADOPTED: tuple[Knob, ...] = ("power_limit",)
"""Of what an earlier tuner has left: a budget that is kept goes on with it."""


class Tuner:
    """Steps through the life of one node's GPUs. `hand` None: it only looks."""

    def __init__(
        self,
        config: TuningConfig,
        views: ViewSource,
        folder: TunerFolder,
        *,
        clock: Clock,
        classes: Mapping[int, XidClass] | None = None,
        hand: Hand | None = None,
        audit: Audit | None = None,
        guard_seconds: float = GUARD_SECONDS,
    ) -> None:
        self._views, self._folder, self._clock, self._hand = views, folder, clock, hand
        self._hearing, self._past = Hearing(folder.guard, guard_seconds), TunerPast(folder.memory)
        self._boards, self._deeds = Boards(hand), Deeds(audit)
        self._memory, self._turned = Memory(), tuple[Turned, ...]()
        self._actions: Counter[tuple[Knob, str]] = Counter()
        self._told: dict[str, object] = {}
        self._trouble: str | None = None
        self._acting, self._ended = threading.Lock(), False
        self._begun = self._enforced = False
        self.reconfigure(config, classes)
        self.state = TunerState(mode=config.mode, trouble="no view yet")

    def reconfigure(self, config: TuningConfig, classes: Mapping[int, XidClass] | None = None) -> None:
        """Take over another configuration; `classes`: `checks.xids`."""
        self._config, self._classes = config, classes or {}

    def step(self) -> TunerState:
        """Beat, look, decide, set; what is known after it."""
        with self._acting:
            if not self._ended:
                self._step(self._config)
            return self.state

    def give_up(self) -> None:
        """After a cycle that failed: nobody knows what it has left behind, so everything is given back."""
        with self._acting:
            self._forget()
            if self._hand is not None and not self._ended:
                self._give_back(self._hand, Trigger.TUNER)

    def end(self) -> None:
        """Set nothing any more, and give everything back; what was found out is kept for the next tuner."""
        self._ended = True  # a cycle under way sets nothing more
        held = self._acting.acquire(timeout=FINISH_SECONDS)  # one that hangs keeps nobody from giving back
        try:
            if self._hand is not None:
                self._give_back(self._hand, Trigger.EXIT)
                self._past.write()
            self._folder.status.clear()
        finally:
            if held:
                self._acting.release()

    def _step(self, config: TuningConfig) -> None:
        troubles: list[str | None] = [self._beat(config.mode)]
        enforcing = config.mode == "enforce" and self._hand is not None
        if self._hand is not None:
            troubles += self._ready(self._hand, config, enforcing=enforcing)
        inputs = self._inputs(config, troubles)
        found = cycle(self._memory, inputs)
        self._memory = found.memory
        if self._hand is not None and enforcing:
            self._act(self._hand, found)
        troubles.append(self._views.trouble if config.mode != "off" else None)
        self._show(inputs, found, troubles, enforcing=enforcing)

    def _ready(self, hand: Hand, config: TuningConfig, *, enforcing: bool) -> list[str]:
        """Before the first cycle nothing is in force, and in a mode that sets nothing, neither. Only what a budget has
        limited stays so: to give it back would exceed the budget until it is limited again.
        """
        trigger = Trigger.TUNER if self._begun else Trigger.START
        if enforcing != self._enforced:
            self._forget()
        is_adopted = trigger is Trigger.START and enforcing and config.node_budget_watts is not None
        settled = self._begun and (enforcing or self._is_clean(hand))
        self._begun, self._enforced = True, enforcing
        return [] if settled else self._give_back(hand, trigger, ADOPTED if is_adopted else ())

    def _is_clean(self, hand: Hand) -> bool:
        try:
            return not hand.recorded().settings
        except GpuwatchError:
            return False  # to give back says why

    def _give_back(self, hand: Hand, trigger: Trigger, spared: Collection[Knob] = ()) -> list[str]:
        left = list(hand.give_back(trigger, spared=spared))
        for words in left:
            log.error("not given back: %s", words)
        return left

    def _forget(self) -> None:
        """All but what was saved, how often GPUs were tried, and whose past was used."""
        known = self._memory
        self._memory, self._turned = Memory(accounts=known.accounts, paces=known.paces, met=known.met), ()

    def _inputs(self, config: TuningConfig, troubles: list[str | None]) -> Inputs:
        view, now = self._views.view, self._clock.monotonic()
        interval = view.snapshot.interval if view is not None else 0.0
        stop = self._folder.stop.read()
        return Inputs(
            view=view,
            fresh=view is not None and self._views.age <= max(FRESH_INTERVALS * interval, FRESH_SECONDS),
            now=now,
            at=self._clock.time(),
            config=config,
            consents=self._consents(troubles),
            actuation=self._recorded(troubles),
            boards=self._boards.known(view, now, troubles),
            heard=self._hearing.hears(now),
            awaited=self._hearing.awaits(now),
            stopped=stop.words if stop is not None else "",
            turned=self._turned,
            saved=self._past.saved,
            classes=self._classes,
        )

    def _act(self, hand: Hand, found: Step) -> None:
        """Carry out the orders, unless it is over."""
        orders = () if self._ended else found.orders
        self._turned = hand.turn(orders) if orders else ()
        for each in self._turned:
            self._actions[each.order.knob, each.outcome] += 1
        self._boards.doubt(each.order.uuid for each in self._turned if each.outcome is not Outcome.DONE)
        self._deeds.note(found.deeds, self._turned)
        self._past.keep(found.kept, found.memory.met)

    def _beat(self, mode: str) -> str | None:
        try:
            self._folder.heartbeat.beat(mode, self._clock.time())
        except GpuwatchError as error:
            return str(error)
        return None

    def _consents(self, troubles: list[str | None]) -> Consents | None:
        try:
            return self._folder.consents.read()
        except GpuwatchError as error:
            troubles.append(str(error))
            return None

    def _recorded(self, troubles: list[str | None]) -> Actuation | None:
        try:
            found = self._folder.record.read()
        except GpuwatchError as error:
            troubles.append(str(error))
            return None
        if found.settings and self._hand is None:
            troubles.append(
                f"{len(found.settings)} settings of an earlier tuner are recorded; "
                "a guard gives them back, or `gpuwatch tune restore`"
            )
        return found

    def _show(self, inputs: Inputs, found: Step, troubles: list[str | None], *, enforcing: bool) -> None:
        self.state = TunerState(
            mode=inputs.config.mode,
            at=inputs.at,
            guard=inputs.heard if enforcing else None,
            consents_at=inputs.consents.at if inputs.consents is not None else None,
            stopped=stopped(inputs),
            budget=found.budget,
            gpus=found.gpus,
            view_at=inputs.view.snapshot.at if inputs.view is not None else None,
            actuation=inputs.actuation,
            actions=dict(self._actions),
            trouble="; ".join(filter(None, troubles)) or None,
        )
        try:
            self._folder.status.write(self.state)
        except GpuwatchError as error:
            log.debug("%s", error)  # the heartbeat has told of the folder
        self._tell(inputs.now)

    def _tell(self, now: float) -> None:
        """Log what has changed."""
        is_early, waits = self._hearing.awaits(now, QUIET_SECONDS), self._hearing.awaits(now)
        for gpu in self.state.gpus:
            is_unguarded = gpu.reason is Reason.NO_GUARD
            if is_early and is_unguarded:
                continue
            if self._told.get(gpu.uuid) != (told := (gpu.state, gpu.reason, is_unguarded and waits)):
                self._told[gpu.uuid] = told
                words = gpu.words or gpu.note
                log.info("GPU %d: %s%s", gpu.index, gpu.state, f"; {words}" if words else "")
        if self.state.trouble != self._trouble and self.state.trouble:
            log.warning("%s", self.state.trouble)
        self._trouble = self.state.trouble


def checked(config: Config, *, enforcing: bool) -> Config:
    """The configuration, if a tuner that was started to enforce, or not to, can do what it asks for. Raises UsageError.

    Whoever observes has neither the rights nor the driver to set anything, and cannot get them while it runs.
    """
    if config.tuning.mode == "enforce" and not enforcing:
        raise UsageError(
            "tuning.mode enforce is not for a tuner that was started to observe",
            "it has no hand on the driver",
            "restart the tuner",
        )
    return config
