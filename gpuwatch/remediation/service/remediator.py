"""The remediator of one node: the agent's View and the live Node in, a Plan, and in mode `enforce` its steps out.

`step` does one cycle and never sleeps; its caller (`service.process`, a simulated fleet, a test) decides how time
passes. Between cycles nothing is asked of the API server: a new finding, a View that has become old, or the time the
last plan named begins the next one, and each begins with the Node as it is then.
"""

import logging
import random
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from gpuwatch.agent.client import ViewSource
from gpuwatch.config import Config, RemediationConfig
from gpuwatch.health.checks import CHECKS
from gpuwatch.kube.credentials import NoCluster
from gpuwatch.kube.errors import AlreadyExists, Backoff, Conflict, Forbidden, Invalid, KubeError, NotFound
from gpuwatch.kube.objects import NodeObject
from gpuwatch.kube.reader import NodeReader, OwnNode
from gpuwatch.kube.transport import Transport
from gpuwatch.model.clock import Clock
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.finding import XidClass
from gpuwatch.remediation.model import (
    OWNER,
    Blocked,
    BlockReason,
    Evict,
    NodeStage,
    PatchNode,
    Plan,
    RemediatorState,
    TakeSlot,
)
from gpuwatch.remediation.planning.evidence import Observation, seconds_fresh
from gpuwatch.remediation.planning.node_events import DAY
from gpuwatch.remediation.planning.ownership import ClaimState, read_claim
from gpuwatch.remediation.planning.plan import EvictionHistory, PlanInputs, plan, remember
from gpuwatch.remediation.planning.policy import Policy
from gpuwatch.remediation.planning.slots import slot_limit
from gpuwatch.remediation.service.executor import PlanExecutor, PlanOutcome, step_summary
from gpuwatch.remediation.service.memory import SavedMemory
from gpuwatch.remediation.service.node_writer import NodeWriter
from gpuwatch.remediation.service.observation import CycleSchedule, ObservationTracker, ViewFingerprint, fingerprint
from gpuwatch.remediation.service.plan_reads import DeviceReader, OwnPod, PlanReads
from gpuwatch.remediation.service.slots import SlotReader, SlotWriter
from gpuwatch.remediation.service.status import StatusReporter
from gpuwatch.storage.audit import ActionStore, Audit

log = logging.getLogger(__name__)

REST_SECONDS = 300.0
"""The Node is read at least this often, even if nothing happens; a plan may ask for shorter waits."""

OBSERVE_SECONDS = 30.0
"""Least wait in mode observe, where no step waits for the result of another; news still begins a cycle at once."""

RETRY_SECONDS = 60.0
"""Seconds until the next try after an error that a person has to correct."""

CROWDED_SECONDS, REPORT_SECONDS = 0.25, 3.0
"""Where a cycle needs longer for its taint, the API server is far away or many nodes fell sick with this one: condition
and Event of a quarantine that lets pods stay are written so much later, so that the others get their taints first.
"""

TRIES = 10
"""Reads of the Node in one cycle while others write to it faster than we do."""


class Remediator:
    """Runs the cycles of one node. `connect` is called when an API server is first needed, never in mode `off`.
    `single`: only one cycle is run, so it waits for no turn and puts off no report.

    Raises:
        UsageError: the policy is invalid.
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
        single: bool = False,
    ) -> None:
        self._place, self._views, self._connect, self._clock = place, views, connect, clock
        self._single = single
        self._checkpoint, self._chance = checkpoint, chance or random.Random()  # noqa: S311 no secret
        self._audit = Audit(ledger, clock)
        self._backoff = Backoff(self._chance)
        self._tracker = ObservationTracker(views, clock)
        self._memory = SavedMemory(ledger)
        self._evictions = EvictionHistory()
        self._node: NodeObject | None = None
        self._fingerprint = ViewFingerprint()
        self._schedule = CycleSchedule(clock, self._chance)
        self._status = StatusReporter(place.node, self._audit, clock)
        self.config_error: str | None = None
        """Why the configuration in the file is not in force; the condition's message holds it."""
        self.reconfigure(config, classes)

    def reconfigure(self, config: RemediationConfig, classes: Mapping[int, XidClass] | None = None) -> None:
        """Apply another policy; what was built for the old one is built again when needed. `classes`: `checks.xids`.

        Raises:
            UsageError: it is invalid; the old one stays in force.
        """
        self._policy = Policy.compile(config, CHECKS, classes)
        self._reader: NodeReader | None = None
        self._slots: SlotReader | None = None
        self._devices: DeviceReader | None = None
        self._executor: PlanExecutor | None = None
        self._own_pod = OwnPod(self._place.pod, config.effect)
        self._schedule.wait(0.0)
        self._status.mode_changed(config.mode)
        if config.mode != "enforce" and self.quarantined:
            name = self._place.node
            log.warning("mode is %s: %s stays quarantined; `gpuwatch node release %s`", config.mode, name, name)

    @property
    def state(self) -> RemediatorState:
        """The source of its metrics and pages."""
        return self._status.state

    @property
    def quarantined(self) -> bool:
        """Whether the Node, as it was last read or written, has our taint."""
        return self._node is not None and read_claim(self._node).claim is ClaimState.APPLIED

    def step(self) -> float:
        """Do what is due; seconds until the next call is due. A new View is a reason for an earlier call."""
        mode = self._policy.config.mode
        if mode == "off":
            return REST_SECONDS
        observation = self._observe()
        if (latest := fingerprint(observation)) != self._fingerprint:
            self._schedule.changed(again=latest.content == self._fingerprint.content)
            self._fingerprint = latest
        if self._schedule.left <= 0:
            try:
                wait = self._cycle()
            except NoCluster as error:
                wait = self._failed(error) if mode == "enforce" else self._plan_offline(error)
            except GpuwatchError as error:
                wait = self._failed(error)
            self._schedule.wait(wait)
        fresh = seconds_fresh(observation)
        return min(self._schedule.left, fresh + 0.01 if fresh > 0 else REST_SECONDS)

    def check(self) -> None:
        """Refuse a taint that would end this very pod. Raises UsageError; KubeError where that cannot be read."""
        self._own_pod.check(self._connected)

    def _observe(self) -> Observation:
        refused = (f"configuration: {self.config_error}",) if self.config_error else ()
        return self._tracker.observe(self._node, self._policy, (*self._own_pod.remarks, *refused))

    def _cycle(self) -> float:
        """Read, plan, execute; again while other writers are faster. Seconds to wait after it."""
        reader, reads, began = self._connected(), PlanReads(), self._clock.monotonic()
        self._prepare(reader)
        conflict: Conflict | AlreadyExists | None = None
        ours: NodeObject | None = None
        for tries in range(TRIES):
            asked = self._clock.monotonic()
            node = self._node = ours or self._read_node(reader, again=tries > 0)
            took, made = self._clock.monotonic() - asked, self._plan(node, reads)
            if ours is None and (turn := self._turn(node, made, took)):
                return turn
            node, made = self._completed(node, made, reader, reads)
            if self._executor is None:
                self._status.observed(made, node)
                return self._ended(made, reads.error)
            if any(isinstance(step, PatchNode) and step.step == "taint" for step in made.steps):
                self.check()
            outcome = self._executor.execute(made, node, lambda: self._is_crowded(began))
            self._record(made, node, outcome, reads)
            conflict = outcome.stopped if isinstance(outcome.stopped, Conflict | AlreadyExists) else None
            if conflict is None:
                if made.stage is NodeStage.HEALTHY:
                    self._refresh()
                if outcome.put_off:
                    made = replace(made, next_cycle=REPORT_SECONDS)
                return self._ended(made, outcome.stopped or outcome.refused or reads.error)
            ours, last = None, outcome.steps[-1].step
            if isinstance(last, TakeSlot):
                ours = outcome.node  # as our claim left it
                reads.lost_slot(last.name, conflict)
            elif self._slots is not None:
                reads.slots = self._slots.last
        return self._ended(made, conflict)

    def _read_node(self, reader: NodeReader, *, again: bool) -> NodeObject:
        """The Node; from the API server's cache while nothing of ours is on it. A plan for such a Node begins with a
        patch that names its version: made for an old Node, it changes nothing, and the plan is made `again`.
        """
        if not again and self._node is not None and OWNER not in self._node.annotations:
            node = reader.node(cached=True)
            if OWNER not in node.annotations:
                return node
        return reader.node()

    def _turn(self, node: NodeObject, made: Plan, took: float) -> float:
        """Seconds to wait before a quarantine that would begin, where the Node was read in `took` seconds."""
        begins = "slots" in made.needs and read_claim(node).claim is ClaimState.NONE
        if not begins:
            self._schedule.answered(took)
        has_turns = begins and self._executor is not None and not self._single
        return self._schedule.turn(took) if has_turns else 0.0

    def _is_crowded(self, began: float) -> bool:
        return not self._single and self._clock.monotonic() - began > CROWDED_SECONDS

    def _completed(self, node: NodeObject, made: Plan, reader: NodeReader, reads: PlanReads) -> tuple[NodeObject, Plan]:
        """The Node, and the plan for it with all that it asks for."""
        while (missing := reads.unread & set(made.needs)) and self._slots is not None and self._devices is not None:
            reads.read(missing, reader, self._slots, self._devices, self._place.pod)
            if reads.error is not None:
                self._status.refused(reads.error)
            if "pods" in missing:  # an eviction carries no version of the Node, so the Node must be read right before
                node = self._node = reader.node()
            made = self._plan(node, reads)
        return node, made

    def _refresh(self) -> None:
        """Read at rest what a quarantine will need and what seldom changes."""
        if self._slots is not None and self._devices is not None:
            self._slots.refresh()
            self._devices.refresh()

    def _prepare(self, reader: NodeReader) -> None:
        """Once: check our own pod and find our slot. Mode observe has no slot, and no right to read pods."""
        if self._executor is not None and self._slots is not None:
            self._own_pod.check_return(reader)
            try:
                self._memory.recover_slot(self._slots)
            except KubeError as error:
                self._status.refused(error)  # the next cycle asks again

    def _connected(self) -> NodeReader:
        """The reader, in mode `enforce` a writer: the only place where one is made."""
        if self._reader is None:
            config, place = self._policy.config, self._place
            transport, namespace = self._connect(), config.budget.namespace or place.namespace
            reader = NodeReader(transport, place.node)
            if config.mode == "enforce":
                also = [config.handover.annotation] if config.handover.annotation else []
                reader = writer = NodeWriter(transport, place.node, also=also)
                slots = SlotWriter(writer, self._clock, config.budget.slot_seconds, namespace)
                self._executor = PlanExecutor(writer, slots, self._audit, self._clock, checkpoint=self._checkpoint)
            self._slots = SlotReader(reader, self._clock, config.budget, namespace)
            self._devices = DeviceReader(reader, self._clock)
            self._reader = reader
        return self._reader

    def _plan(self, node: NodeObject, reads: PlanReads) -> Plan:
        observation = self._observe()
        self._audit.boot_id = observation.view.snapshot.host.boot_id if observation.view else None
        return plan(
            PlanInputs(
                observation=observation,
                node=node,
                policy=self._policy,
                memory=self._memory.memory,
                slots=reads.slots,
                pods=reads.pods,
                devices=reads.devices,
                unread=reads.unread,
                now=self._clock.time(),
                jitter=self._chance.random(),
                evictions=self._evictions,
            )
        )

    def _record(self, made: Plan, node: NodeObject, outcome: PlanOutcome, reads: PlanReads) -> None:
        """Keep what the executed steps have changed."""
        if any(isinstance(step, Evict) for step in outcome.done):
            self._evictions = self._evictions.with_baseline(reads.pods or ())
        self._node = outcome.node
        self._status.acted(outcome)
        if outcome.lease is not None or outcome.node is not node:  # there is progress, so failures are not in a row
            self._backoff.succeeded()
        for each in outcome.steps:
            if isinstance(each.step, Evict) and not isinstance(each.error, Conflict | NotFound):
                refused = each.error.why if each.error else ""
                self._evictions = self._evictions.with_attempt(each.step.pod, self._clock.time(), refused)
        if read_claim(outcome.node).claim is not ClaimState.APPLIED:
            self._evictions = EvictionHistory()
        if outcome.lease is not None and self._slots is not None:
            self._slots.update(outcome.lease)
        done, window = replace(made, steps=outcome.done), self._policy.config.repeat_window
        self._memory.save(remember(self._memory.memory, node, done, self._clock.time(), max(window, DAY)))

    def _plan_offline(self, error: NoCluster) -> float:
        """Without an API server: plan for a Node of which nothing is known but that it is this machine."""
        view = self._views.view
        if view is None:
            return self._failed(error)
        node = NodeObject(name=self._place.node, uid="unknown", resource_version="0", host=view.snapshot.host)
        made = self._plan(node, PlanReads(frozenset()))
        message = f"{error.what}: the Node, its pods, the budget and other controllers are not known"
        made = replace(made, blocked=(*made.blocked, Blocked(reason=BlockReason.API, message=message)))
        self._status.observed(made, node)
        return self._ended(made, None)

    def _ended(self, made: Plan, error: GpuwatchError | None) -> float:
        """Seconds until the next cycle after one that made a plan."""
        if error is not None:
            return self._failed(error, made)
        self._backoff.succeeded()
        self._report_reads()
        self._status.settled(made)
        backoff = self._schedule.succeeded(tuple(step_summary(step, made) for step in made.steps))
        wait = REST_SECONDS if made.next_cycle is None else max(backoff, min(REST_SECONDS, made.next_cycle))
        if self._executor is None:
            wait = max(wait, OBSERVE_SECONDS)
        return wait * self._chance.uniform(1.0, 1.1)  # never earlier: a hold would not be over yet

    def _failed(self, error: GpuwatchError, made: Plan | None = None) -> float:
        """Seconds until the next try, which makes a new plan from the Node as it is then. `made`: the failed plan."""
        retry_after = error.retry_after if isinstance(error, KubeError) else None
        if isinstance(error, KubeError) and made is None:  # an error of a step is counted with the step
            self._status.refused(error)
        self._report_reads()
        self._status.failed(error, made)
        self._schedule.failed(retry_after)
        if isinstance(error, Forbidden | Invalid | NotFound) or not isinstance(error, KubeError):
            return RETRY_SECONDS * self._chance.uniform(0.5, 1.0)
        return self._backoff.failed(retry_after)

    def _report_reads(self) -> None:
        slots, view = self._slots.last if self._slots else None, self._views.view
        limit = slot_limit(self._policy.config.budget, slots.nodes) if slots else None
        self._status.read(slots, limit, view.snapshot if view else None)


def checked(config: Config) -> Config:
    """The configuration, if its policy is valid. Raises UsageError."""
    Policy.compile(config.remediation, CHECKS, config.checks.xids)
    return config
