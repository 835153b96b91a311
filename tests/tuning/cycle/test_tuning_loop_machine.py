"""Whatever happens to a node, in whatever order: what the tuner's cycle may never do, checked each second."""

from functools import cache

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gpuwatch.model.consent import AUTOTUNE, CLASS
from gpuwatch.tuning.energy.model import Refusal
from gpuwatch.tuning.model.setting import KNOBS, OrderOutcome
from gpuwatch.tuning.model.status import ObstacleReason, TuningState
from tests.seeds import examples
from tests.tuning.cycle.tuning_world import TOP, UUIDS, Work, World

LIMIT = 6
FLOOR = 0.5 * TOP
OWN = {ObstacleReason(refusal.value) for refusal in Refusal}
"""Reasons that the energy tuner found itself; the others are gates."""

SAYS = st.tuples(st.sampled_from(("enforce", "observe", "off")), st.sampled_from(("batch", "serving")))
GPUS, BUSY = st.sampled_from(UUIDS), st.sampled_from(UUIDS[:3])


@cache
def begun(*, held: bool) -> World:
    """A world in which all that works is held at a cap, or one that has just begun."""
    world = World(max_actions_per_hour=LIMIT)
    if held:
        world.until(TuningState.HOLDING, 0)
        world.until(TuningState.HOLDING, 2)
    return world


class TunedNode(RuleBasedStateMachine):
    """`acts`: seconds at which each GPU was tried at another cap."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        self.acts: dict[str, list[float]] = {uuid: [] for uuid in UUIDS}
        self.pids = 1000

    @initialize(held=st.booleans())
    def begin(self, *, held: bool) -> None:
        self.world = begun(held=held).copy()

    @rule(seconds=st.sampled_from((1, 2, 7, 40, 90)))
    def time_goes_on(self, seconds: int) -> None:
        for _ in range(seconds):
            self.second()

    @rule(uuid=BUSY, pod=st.sampled_from(["", "a", "b", "c"]))
    def another_owner(self, uuid: str, pod: str) -> None:
        """Or other processes of the same one, or nobody."""
        self.pids += 1
        before, self.world.works[uuid] = self.world.works[uuid], Work(pod, (self.pids,)) if pod else None
        self.second()
        is_other = before is None or before.pod != pod
        enforces = self.world.config.mode == "enforce" and not self.world.frozen
        if is_other and enforces and self.fate(uuid) is OrderOutcome.DONE and self.world.readable:
            assert self.world.clocks[uuid] is None

    @rule(uuid=GPUS, fate=st.sampled_from(OrderOutcome))
    def the_hand_changes(self, uuid: str, fate: OrderOutcome) -> None:
        self.world.fate[uuid] = fate

    @rule(uuid=GPUS)
    def a_fault(self, uuid: str) -> None:
        self.world.sick ^= {uuid}

    @rule(uuid=GPUS)
    def another_program_restores(self, uuid: str) -> None:
        """A guard or a person."""
        for knob in KNOBS:
            self.world.record.pop((uuid, knob), None)
        self.world.clocks[uuid], self.world.limits[uuid] = None, 700.0

    @rule(uuid=BUSY, engine=st.sampled_from((0.0, 0.3, 1.0)), dram=st.sampled_from((0.01, 0.46, 0.9)))
    def other_work(self, uuid: str, engine: float, dram: float) -> None:
        if (work := self.world.works[uuid]) is not None:
            work.engine, work.dram = engine, dram

    @rule(what=st.sampled_from(("guarded", "readable", "frozen", "consented")))
    def something_comes_or_goes(self, what: str) -> None:
        setattr(self.world, what, not getattr(self.world, what))

    @rule(message=st.sampled_from(("", "a person")))
    def stop(self, message: str) -> None:
        self.world.stopped = message

    @rule(mode=st.sampled_from(("off", "observe", "enforce", "enforce")), slowdown=st.sampled_from((0.02, 0.05)))
    def reload(self, mode: str, slowdown: float) -> None:
        self.world.config = msgspec.structs.replace(self.world.config, mode=mode, max_slowdown=slowdown)

    @rule(pod=st.sampled_from("abc"), says=SAYS)
    def a_pod_declares(self, pod: str, says: tuple[str, str]) -> None:
        self.world.annotations[pod] = {AUTOTUNE: says[0], CLASS: says[1]}

    def fate(self, uuid: str) -> OrderOutcome:
        return self.world.fate.get(uuid, OrderOutcome.DONE)

    def second(self) -> None:
        """One cycle, and what may never come of one."""
        world = self.world
        before = set(world.record)
        step = world.tick()
        orders = {(order.uuid, order.knob): order for order in step.orders}
        assert len(orders) == len(step.orders)
        if world.config.mode != "enforce":
            assert not orders
            return
        values = [order.value for order in step.orders if order.value is not None]
        assert all(FLOOR <= value < TOP for value in values)
        recorded = before if world.readable else set()
        for gpu in step.gpus:
            closed = gpu.state is TuningState.IDLE or (
                gpu.state is TuningState.REFUSED and not {each.reason for each in gpu.obstacles} <= OWN
            )
            for key in ((gpu.uuid, knob) for knob in KNOBS):
                if closed and key in recorded:
                    assert (orders[key].value, orders[key].keep) == (None, False)
                assert not closed or key not in orders or orders[key].value is None
        self.count()

    def count(self) -> None:
        """At most LIMIT actions in any hour."""
        now = self.world.now
        for told in self.world.step.reports:
            if told.action == "tune" and told.after != told.before:
                self.acts[told.uuid].append(now)
        for acts in self.acts.values():
            assert sum(now - at < 3600 for at in acts) <= LIMIT

    @invariant()
    def gpus_of_one_pod_have_one_cap(self) -> None:
        world = getattr(self, "world", None)
        if world is None or any(self.fate(uuid) is not OrderOutcome.DONE for uuid in UUIDS) or world.results == ():
            return
        asked = {(work.pod, order.order.value) for order in world.results if (work := world.works[order.order.uuid])}
        told = world.config.mode == "enforce" and not world.frozen
        assert not told or len({pod for pod, _ in asked}) == len(asked)


TestTunedNode = TunedNode.TestCase
TestTunedNode.settings = settings(max_examples=examples(60), stateful_step_count=30)
