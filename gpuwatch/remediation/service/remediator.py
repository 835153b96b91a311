"""The remediator of one node: the agent's View and the live Node in, a Plan, and in mode `enforce` its steps out.

`step` does one cycle and never sleeps; who calls it (`roles.remediator_service`, a simulated fleet, a test) decides how
time passes. Between cycles nothing is asked of the API server: a new finding, a View that has become old, or the time
the last plan named begins the next one, and each begins with the Node as it is then.
"""

import logging
import random
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from gpuwatch.agent.client import ViewSource
from gpuwatch.config import Config, RemediationConfig
from gpuwatch.health.checks import CHECKS
from gpuwatch.kube.errors import AlreadyExists, Backoff, Conflict, Forbidden, Invalid, KubeError, NotFound
from gpuwatch.kube.objects import NodeObject
from gpuwatch.kube.reader import NodeReader, OwnNode
from gpuwatch.kube.transport import NoCluster, Transport
from gpuwatch.model.clock import Clock
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.finding import XidClass
from gpuwatch.remediation.model import Blocked, BlockReason, Evict, PatchNode, Plan, RemediatorState, TakeSlot
from gpuwatch.remediation.planning.evidence import Observation
from gpuwatch.remediation.planning.node_events import DAY
from gpuwatch.remediation.planning.ownership import ClaimState, read_claim
from gpuwatch.remediation.planning.plan import EvictionHistory, PlanInputs, plan, remember
from gpuwatch.remediation.planning.policy import Policy
from gpuwatch.remediation.planning.slots import slot_limit
from gpuwatch.remediation.service.executor import PlanExecutor, PlanOutcome, step_summary
from gpuwatch.remediation.service.memory import SavedMemory
from gpuwatch.remediation.service.node_writer import NodeWriter
from gpuwatch.remediation.service.observation import (
    LookSchedule,
    ObservationTracker,
    ViewFingerprint,
    fingerprint,
    seconds_fresh,
)
from gpuwatch.remediation.service.plan_reads import OwnPod, PlanReads
from gpuwatch.remediation.service.slots import SlotReader, SlotWriter
from gpuwatch.remediation.service.status import StatusReporter
from gpuwatch.storage.audit import ActionStore, Audit

log = logging.getLogger(__name__)

REST_SECONDS = 300.0
"""The Node is looked at this often though nothing happens; a plan may ask for more."""

OBSERVE_SECONDS = 30.0
"""Who only observes is in no hurry to see what became of a plan; news are still looked at when they come."""

PATIENCE_SECONDS = 60.0
"""Before what a person has to mend is tried again."""

TRIES = 10
"""Looks at the Node in one cycle while others write to it faster than we do."""


class Remediator:
    """Steps through the life of one node. `connect` is called when an API server is first needed, never in mode `off`.

    Raises:
        UsageError: the policy makes no sense.
    """

    def __init__(
        self,
        config: RemediationConfig,
        place: OwnNode,
        views: ViewSource,
        connect: Callable[[], Transport],
        *,
        clock: Clock,
        ledger: ActionStore,
        classes: Mapping[int, XidClass] | None = None,
        chance: random.Random | None = None,
        checkpoint: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._place, self._views, self._connect, self._clock = place, views, connect, clock
        self._checkpoint, self._chance = checkpoint, chance or random.Random()  # noqa: S311 no secret
        self._audit = Audit(ledger, clock)
        self._backoff = Backoff(self._chance)
        self._sighting = ObservationTracker(views, clock)
        self._recollection = SavedMemory(ledger)
        self._evictions = EvictionHistory()
        self._node: NodeObject | None = None
        self._news = ViewFingerprint()
        self._pace = LookSchedule(clock, self._chance)
        self._report = StatusReporter(place.node, self._audit, clock)
        self.reconfigure(config, classes)

    def reconfigure(self, config: RemediationConfig, classes: Mapping[int, XidClass] | None = None) -> None:
        """Take over another policy; what was built for the old one is built anew when needed. `classes`: `checks.xids`.

        Raises:
            UsageError: it makes no sense; the old one stays in force.
        """
        self._policy = Policy.compile(config, CHECKS, classes)
        self._reader: NodeReader | None = None
        self._slots: SlotReader | None = None
        self._actuator: PlanExecutor | None = None
        self._own_pod = OwnPod(self._place.pod, config.effect)
        self._pace.at_once()
        self._report.began(config.mode)
        if config.mode != "enforce" and self._node is not None and read_claim(self._node).claim is ClaimState.APPLIED:
            name = self._place.node
            log.warning("mode is %s: %s stays quarantined; `gpuwatch node release %s`", config.mode, name, name)

    @property
    def state(self) -> RemediatorState:
        """What it says about itself."""
        return self._report.state

    def step(self) -> float:
        """Do what is due; seconds until it wants to be called again. A new View is reason to call it earlier."""
        if self._policy.config.mode == "off":
            return REST_SECONDS
        observation = self._sight()
        if (seen := fingerprint(observation)) != self._news:
            self._pace.changed(again=seen.what == self._news.what)
            self._news = seen
        if self._pace.left <= 0:
            self._pace.wait(self._cycle())
        return min(self._pace.left, seconds_fresh(observation) or REST_SECONDS)

    def _sight(self) -> Observation:
        """What is seen now, and for how long all has been well: before that nothing is given back."""
        return replace(self._sighting.look(self._node, self._policy), remarks=self._own_pod.remarks)

    def _cycle(self) -> float:
        """Look, plan, act; seconds to wait after it."""
        try:
            return self._work()
        except NoCluster as error:
            if self._policy.config.mode == "enforce":
                return self._troubled(error)
            return self._imagine(error)
        except GpuwatchError as error:
            return self._troubled(error)

    def _work(self) -> float:
        reader, extras = self._hands(), PlanReads()
        self._settle_in(reader)
        conflict: GpuwatchError | None = None
        for _ in range(TRIES):
            node = self._node = reader.node()
            made = self._plan(node, extras)
            if (missing := extras.missing(made.wants)) and self._slots is not None:
                extras.read(missing, reader, self._slots, self._place.pod)
                if extras.trouble is not None:
                    self._report.refused(extras.trouble)
                continue  # with a Node read after them: what is written is then as young as can be
            if self._actuator is None:
                self._report.observed(made, node)
                return self._ended(made, extras.trouble)
            if any(isinstance(step, PatchNode) and step.step == "taint" for step in made.steps):
                self.check()
            outcome = self._actuator.execute(made, node)
            if any(isinstance(step, Evict) for step in outcome.done):
                self._evictions = self._evictions.among(extras.pods or ())
            self._take_in(made, node, outcome)
            conflict = outcome.stopped if isinstance(outcome.stopped, Conflict | AlreadyExists) else None
            if conflict is None:
                return self._ended(made, outcome.stopped or outcome.refused or extras.trouble)
            if isinstance(outcome.steps[-1].step, TakeSlot):
                extras.forget_slots()
            elif self._slots is not None:
                extras.slots = self._slots.last
        return self._ended(made, conflict)

    def _settle_in(self, reader: NodeReader) -> None:
        """Who only observes has no slot, and no right to look at pods."""
        if self._actuator is not None and self._slots is not None:
            self._own_pod.look(reader)
            try:
                self._recollection.recall_slot(self._slots)
            except KubeError as error:
                self._report.refused(error)  # the next cycle asks again

    def _hands(self) -> NodeReader:
        """The reader, in mode `enforce` a writer: the only place where one is made."""
        if self._reader is None:
            config, place = self._policy.config, self._place
            transport, namespace = self._connect(), config.budget.namespace or place.namespace
            reader = NodeReader(transport, place.node)
            if config.mode == "enforce":
                also = [config.handover.annotation] if config.handover.annotation else []
                reader = writer = NodeWriter(transport, place.node, also=also)
                slots = SlotWriter(writer, self._clock, config.budget.slot_seconds, namespace)
                self._actuator = PlanExecutor(writer, slots, self._audit, self._clock, checkpoint=self._checkpoint)
            self._slots = SlotReader(reader, self._clock, config.budget, namespace)
            self._reader = reader
        return self._reader

    def _plan(self, node: NodeObject, extras: PlanReads) -> Plan:
        observation = self._sight()
        self._audit.boot_id = observation.view.snapshot.host.boot_id if observation.view else None
        return plan(
            PlanInputs(
                observation=observation,
                node=node,
                policy=self._policy,
                memory=self._recollection.memory,
                slots=extras.slots,
                pods=extras.pods,
                now=self._clock.time(),
                jitter=self._chance.random(),
                evictions=self._evictions,
            )
        )

    def check(self) -> None:
        """Refuse a taint that would end this very pod. Raises UsageError; KubeError where it cannot be found out."""
        self._own_pod.check(self._hands)

    def _take_in(self, made: Plan, node: NodeObject, outcome: PlanOutcome) -> None:
        """Learn from what was done."""
        self._node = outcome.node
        self._report.acted(outcome)
        for each in outcome.steps:
            if isinstance(each.step, Evict) and not isinstance(each.error, Conflict | NotFound):
                refused = each.error.why if each.error else ""
                self._evictions = self._evictions.asked(each.step.pod, self._clock.time(), refused)
        if read_claim(outcome.node).claim is not ClaimState.APPLIED:
            self._evictions = EvictionHistory()
        if outcome.lease is not None and self._slots is not None:
            self._slots.known(outcome.lease)
        done, window = replace(made, steps=outcome.done), self._policy.config.repeat_window
        memory = remember(self._recollection.memory, node, done, self._clock.time(), max(window, DAY))
        self._recollection.take(memory)

    def _imagine(self, error: NoCluster) -> float:
        """Without an API server: plan for a Node of which nothing is known but that it is this machine."""
        view = self._views.view
        if view is None:
            return self._troubled(error)
        node = NodeObject(name=self._place.node, uid="unknown", resource_version="0", host=view.snapshot.host)
        made = self._plan(node, PlanReads())
        message = f"{error.what}: the Node, its pods, the budget and other controllers are not known"
        made = replace(made, blocked=(*made.blocked, Blocked(reason=BlockReason.API, message=message)))
        self._report.observed(made, node)
        return self._settled(made)

    def _ended(self, made: Plan, error: GpuwatchError | None) -> float:
        return self._settled(made) if error is None else self._troubled(error, made)

    def _settled(self, made: Plan) -> float:
        """Nothing went wrong; when to look again."""
        self._backoff.succeeded()
        self._know()
        self._report.settled(made)
        patience = self._pace.went_well(tuple(step_summary(step, made) for step in made.steps))
        wait = REST_SECONDS if made.look_again is None else max(patience, min(REST_SECONDS, made.look_again))
        if self._actuator is None:
            wait = max(wait, OBSERVE_SECONDS)
        return wait * self._chance.uniform(1.0, 1.1)  # never earlier: what ends with a hold would not be over yet

    def _troubled(self, error: GpuwatchError, made: Plan | None = None) -> float:
        """Something went wrong; when to try again. The plan stays as it was: it is made anew from the next look."""
        if isinstance(error, KubeError) and made is None:  # a step's own is counted with it
            self._report.refused(error)
        self._know()
        self._report.troubled(error, made)
        self._pace.failed(error.retry_after if isinstance(error, KubeError) else None)
        if isinstance(error, Forbidden | Invalid | NotFound) or not isinstance(error, KubeError):
            return PATIENCE_SECONDS * self._chance.uniform(0.5, 1.0)
        return self._backoff.failed(error.retry_after)

    def _know(self) -> None:
        slots, view = self._slots.last if self._slots else None, self._views.view
        most = slot_limit(self._policy.config.budget, slots.nodes) if slots else None
        self._report.knows(slots, most, view.snapshot.at if view else None)


def checked(config: Config) -> Config:
    """The configuration, if its policy makes sense. Raises UsageError."""
    Policy.compile(config.remediation, CHECKS, config.checks.xids)
    return config
