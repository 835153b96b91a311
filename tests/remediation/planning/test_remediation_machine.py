"""Whatever happens between two steps of a plan, whoever edits the Node: gpuwatch takes back its own, and no more."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from gpuwatch.config import BudgetConfig
from gpuwatch.kube.objects import DOMAIN, TAINT, Taint
from gpuwatch.model.finding import Response
from gpuwatch.model.snapshot import Host
from gpuwatch.remediation.model import OWNER, FreeSlot, PatchNode, RemediatorMemory, TakeSlot
from gpuwatch.remediation.planning.ownership import ClaimState, read_claim, recorded_faults
from gpuwatch.remediation.planning.plan import EvictionHistory
from tests.remediation.planning.remediating import GPUS, HOST, Story, finding
from tests.seeds import examples

TAINTING = ("gpu_lost", "xid_fatal", "row_remap_failure", "recovery_action")
HARMLESS = ("xid_application", "xid_unknown", "xid_application_repeated", "monitoring_degraded")
RESPONSES = (Response.TAINT, Response.CORDON)

FOREIGN_TAINTS = st.builds(
    Taint,
    key=st.sampled_from(("example.com/a", "node.kubernetes.io/unreachable", "nvidia.com/gpu")),
    value=st.sampled_from(("", "x")),
    effect=st.sampled_from(("NoSchedule", "NoExecute")),
)
FOREIGN_KEYS = st.sampled_from(("example.com/role", "team", "nvidia.com/gpu.present"))


class Life(RuleBasedStateMachine):
    """`world`: taints, labels, annotations and cordon as everybody else has made them."""

    @initialize(response=st.sampled_from(RESPONSES), sick=st.booleans())
    def begin(self, response: Response, sick: bool) -> None:
        self.story = Story(
            checks=dict.fromkeys(TAINTING, response),
            held_checks=(),
            repeats=10**6,
            max_quarantines_per_day=10**6,
            budget=BudgetConfig(max_unavailable=2),
        )
        self.taints: list[Taint] = []
        self.labels: dict[str, str] = {}
        self.annotations: dict[str, str] = {}
        self.cordoned = False
        self.faults: dict[str, float] = {}
        self.overruled: dict[str, float] = {}
        self.number = 0
        self.show()
        if sick:
            self.fault("xid_fatal")
            self._cycle(None)

    def show(self) -> None:
        findings = [finding(check, GPUS[0], at=at) for check, at in self.faults.items()]
        self.story.see(*findings)
        self.story.wait(0.0)

    # what happens to the GPUs and to time

    @rule(check=st.sampled_from(TAINTING + HARMLESS))
    def fault(self, check: str) -> None:
        self.story.now += 1.0
        self.faults[check] = self.story.now
        self.show()

    @rule()
    def cured(self) -> None:
        self.faults.clear()
        self.overruled.clear()
        self.show()

    @rule(seconds=st.sampled_from((1.0, 60.0, 400.0, 1000.0)))
    def time(self, seconds: float) -> None:
        self.story.wait(seconds)

    @rule(seconds=st.sampled_from((-86400.0, 30 * 86400.0)))
    def clock_jumps(self, seconds: float) -> None:
        self.story.now += seconds

    @rule()
    def stale(self) -> None:
        self.story.age, self.story.clean_for = 120.0, 0.0

    @rule()
    def silent(self) -> None:
        self.story.view, self.story.clean_for = None, 0.0

    @rule()
    def unknown(self) -> None:
        findings = [finding(check, GPUS[0], at=at) for check, at in self.faults.items()]
        self.story.see(*findings, unknown=GPUS)
        self.story.wait(0.0)

    @rule()
    def rebooted(self) -> None:
        self.number += 1
        host = Host(boot_id=f"boot-{self.number + 1}", machine_id=HOST.machine_id)
        self.story.cluster.edit(host=host)
        findings = [finding(check, GPUS[0], at=at) for check, at in self.faults.items()]
        self.story.see(*findings, host=host)
        self.story.wait(0.0)

    # what the remediator does, as far as it gets

    @rule(crash=st.integers(0, 6))
    def cycle(self, crash: int) -> None:
        self._cycle(crash)

    @rule()
    def whole_cycle(self) -> None:
        self._cycle(None)

    def _cycle(self, crash: int | None) -> None:
        before, story = self.story.node, self.story
        claim = read_claim(before).claim
        plan = story.plan()
        self._orders(plan.steps, claim)
        if story.age > 60 or story.view is None:
            patches = [step for step in plan.steps if isinstance(step, PatchNode)]
            assert all(patch.step == "forget" or _only_renews(patch) for patch in patches)
        for step in plan.steps:
            if isinstance(step, PatchNode) and step.step == "taint":
                assert set(self.faults) & set(TAINTING)
                fresh = [c for c, at in self.faults.items() if c in TAINTING and at > self._acknowledged(c)]
                assert fresh, "tainted again for what a person has overruled"
        if claim is ClaimState.OVERRULED and story.view is not None:
            self._overrule()
        story.cycle(crash)
        if crash is not None:
            story.evictions = EvictionHistory()

    def _acknowledged(self, check: str) -> float:
        return self.overruled.get(check, -1.0)

    def _overrule(self) -> None:
        """Whatever was there when the person undid it was overruled."""
        for check in self.undone:
            self.overruled[check] = max(self.undone[check], self.overruled.get(check, -1.0))

    undone: dict[str, float] = {}

    def _orders(self, steps: tuple[object, ...], claim: ClaimState) -> None:
        seen: list[str] = []
        for step in steps:
            if isinstance(step, TakeSlot):
                seen.append("slot")
            if isinstance(step, FreeSlot):
                seen.append("free")
            if isinstance(step, PatchNode):
                seen.append(step.step)
                foreign = [key for key in (*step.annotations, *step.labels) if not key.startswith(f"{DOMAIN}/")]
                assert not foreign
        if "taint" in seen:
            assert "claim" in seen[: seen.index("taint")] or claim is ClaimState.CLAIMED, "no claim before the taint"
            assert "slot" in seen[: seen.index("taint")], "no slot before the taint"
        if "free" in seen and "untaint" in seen:
            assert seen.index("untaint") < seen.index("free")

    @rule()
    def forgets(self) -> None:
        self.story.memory = RemediatorMemory()

    # what everybody else does

    @rule(taint=FOREIGN_TAINTS)
    def others_taint(self, taint: Taint) -> None:
        if not any((t.key, t.effect) == (taint.key, taint.effect) for t in self.taints):
            self.taints.append(taint)
            self.story.cluster.edit(taints=(*self.story.node.taints, taint))

    @precondition(lambda self: self.taints)
    @rule(data=st.data())
    def others_untaint(self, data: st.DataObject) -> None:
        taint = data.draw(st.sampled_from(self.taints))
        self.taints.remove(taint)
        self.story.cluster.edit(taints=tuple(t for t in self.story.node.taints if t != taint))

    @rule(key=FOREIGN_KEYS, value=st.sampled_from(("a", "b")))
    def others_mark(self, key: str, value: str) -> None:
        self.labels[key] = self.annotations[key] = value
        node = self.story.node
        self.story.cluster.edit(labels=node.labels | {key: value}, annotations=node.annotations | {key: value})

    @rule()
    def others_cordon(self) -> None:
        owner = read_claim(self.story.node).owner
        believed = owner is not None and owner.cordoned  # lifted and set again between two looks: nobody could tell
        if not self.story.node.unschedulable and not believed:
            self.cordoned = True
            self.story.cluster.edit(unschedulable=True)

    @rule()
    def others_uncordon(self) -> None:
        self.cordoned = False
        self.story.cluster.edit(unschedulable=False)

    @precondition(lambda self: read_claim(self.story.node).claim is ClaimState.APPLIED)
    @rule()
    def person_untaints(self) -> None:
        node = self.story.node
        written = {fault.check for fault in recorded_faults(node)}
        self.undone = {check: at for check, at in self.faults.items() if check in written}
        self.story.cluster.edit(taints=tuple(taint for taint in node.taints if taint.key != TAINT))

    @rule(number=st.integers(0, 1))
    def another_node_takes_a_slot(self, number: int) -> None:
        name = f"gpuwatch-slot-{number}"
        lease = self.story.cluster.leases.get(name)
        if lease is None or not lease.holder:
            self.story.cluster.hold(name, f"other-{number}", self.story.now)

    @rule()
    def other_nodes_give_back(self) -> None:
        for name, lease in self.story.cluster.leases.items():
            if lease.holder and lease.holder.startswith("other-"):
                self.story.cluster.leases[name] = replace(lease, holder=None)

    @rule(readable=st.booleans())
    def leases(self, readable: bool) -> None:
        self.story.readable = readable

    # what must hold

    @invariant()
    def others_are_untouched(self) -> None:
        if not hasattr(self, "story"):
            return
        node = self.story.node
        assert [t for t in node.taints if t.key != TAINT] == self.taints
        assert {k: v for k, v in node.labels.items() if not k.startswith(f"{DOMAIN}/")} == self.labels
        assert {k: v for k, v in node.annotations.items() if not k.startswith(f"{DOMAIN}/")} == self.annotations
        if self.cordoned:
            assert node.unschedulable

    def teardown(self) -> None:
        """In the end all is well, and the Node is as everybody else has left it."""
        if not hasattr(self, "story"):
            return
        story = self.story
        self.faults.clear()
        self.other_nodes_give_back()
        story.readable = True
        story.see(host=story.node.host)
        for _ in range(4):
            story.wait(1000.0)
            story.settle()
        node = story.node
        assert not [t for t in node.taints if t.key == TAINT]
        assert not [k for k in (*node.labels, *node.annotations) if k.startswith(f"{DOMAIN}/")]
        assert node.unschedulable == self.cordoned
        assert not [lease for lease in story.cluster.leases.values() if lease.holder == node.name]
        assert node.condition is not None
        assert node.condition.status == "True"


def _only_renews(step: PatchNode) -> bool:
    """Writing down which slot is held adds and takes nothing."""
    return step.step == "refresh" and set(step.annotations) == {OWNER} and step.unschedulable is None


TestLife = Life.TestCase
TestLife.settings = settings(
    max_examples=examples(150), stateful_step_count=30, suppress_health_check=list(HealthCheck)
)
