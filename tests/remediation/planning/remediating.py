"""A sick node made by hand, and an imaginary cluster in which plans are made and carried out step by step."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from gpuwatch.config import RemediationConfig
from gpuwatch.health.checks import CHECKS
from gpuwatch.kube.objects import DraState, GpuDevice, LeaseObject, NodeObject
from gpuwatch.model.finding import Finding, Health, Judgement, Response, Severity
from gpuwatch.model.snapshot import Gpu, GpuState, GpuStatus, Host, Identity, Snapshot
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.model.workload import Attribution, DeviceUse, Holder, Workload
from gpuwatch.remediation.model import Evict, Plan, RemediatorMemory, Step
from gpuwatch.remediation.planning.plan import EvictionHistory, Observation, PlanInputs, is_clean, plan, remember
from gpuwatch.remediation.planning.policy import Policy
from gpuwatch.remediation.planning.slots import Slots
from gpuwatch.sim.rehearsal import InMemoryCluster, StepRefused

START = 1_790_000_000.0
HOST = Host(boot_id="boot-1", machine_id="machine-1")
GPUS = ("GPU-0", "GPU-1")


def finding(check: str, gpu: str | None = "GPU-0", *, at: float = START, **more: Any) -> Finding:
    return Finding(
        check=check, severity=Severity.CRITICAL, message=f"{check} was seen", gpu=gpu, since=at, last=at, **more
    )


def view(
    *findings: Finding,
    at: float = START,
    gpus: Iterable[str] = GPUS,
    host: Host = HOST,
    unknown: Iterable[str] = (),
    lost: Iterable[str] = (),
    holders: dict[str, tuple[Workload, ...]] | None = None,
    expected: int | None = None,
    withheld: tuple[str, ...] | None = None,
) -> View:
    """A View of GPUs that are well but for `findings`. `unknown`: there, but their health cannot be told."""
    there = [Identity(index=i, uuid=uuid, pci_bus_id=f"0000:{i + 1:02x}:00.0") for i, uuid in enumerate(gpus)]
    gone = [Identity(index=9, uuid=uuid, pci_bus_id="0000:99:00.0") for uuid in lost]
    statuses = [GpuStatus(identity=identity, state=GpuState.FRESH) for identity in there]
    statuses += [GpuStatus(identity=identity, state=GpuState.LOST) for identity in gone]
    health = {identity.uuid: Health.HEALTHY for identity in there} | {uuid: Health.FAILED for uuid in lost}
    health |= {found.gpu: Health.FAILED for found in findings if found.gpu in health}
    health |= dict.fromkeys(unknown, Health.UNKNOWN)
    uses = tuple(
        DeviceUse(gpu=gpu, allocated=True, holders=tuple(Holder(workload=workload) for workload in workloads))
        for gpu, workloads in (holders or {}).items()
    )
    return View(
        snapshot=Snapshot(
            at=at,
            interval=2.0,
            gpus=tuple(Gpu(identity=identity, at=at) for identity in there),
            statuses=tuple(statuses),
            host=host,
            expected_gpus=expected,
        ),
        agent=AgentStatus(version="test", started=START),
        attribution=Attribution(devices=uses, withheld=withheld),
        judgement=Judgement(node=Health.HEALTHY, gpus=health, findings=findings),
    )


def policy(**settings: Any) -> Policy:
    """Compiled, with responses as words; mode enforce unless another is given, and no labels for schedulers."""
    responses = {key: {k: Response(v) for k, v in settings.get(key, {}).items()} for key in ("checks", "xids")}
    return Policy.compile(RemediationConfig(**({"mode": "enforce", "labels": ()} | settings | responses)), CHECKS)


class Story:
    """One node's life: what is seen, what is planned, what is done. `crash` stops after so many steps of a cycle."""

    def __init__(self, **settings: Any) -> None:
        self.policy = policy(**settings)
        self.cluster = InMemoryCluster("node-1", HOST, self.policy.config.budget.slot_seconds)
        self.memory = RemediatorMemory()
        self.evictions = EvictionHistory()
        self.now = START
        self.view: View | None = view()
        self.age = 0.0
        self.clean_for = 0.0
        self.nodes: int | None = 10
        self.readable = True
        self.done: list[Step] = []
        self.devices: tuple[GpuDevice, ...] = ()

    @property
    def node(self) -> NodeObject:
        return self.cluster.node

    @property
    def observation(self) -> Observation:
        return Observation(view=self.view, age=self.age, clean_for=self.clean_for)

    @property
    def slots(self) -> Slots:
        leases: tuple[LeaseObject, ...] | None = tuple(self.cluster.leases.values()) if self.readable else None
        return Slots(leases=leases, nodes=self.nodes)

    @property
    def dra(self) -> DraState | None:
        """None where no cluster state is made up."""
        rules = tuple(self.cluster.rules.values())
        return DraState(version="v1", devices=self.devices, rules=rules) if self.devices else None

    def plan(self, **other: Any) -> Plan:
        inputs: dict[str, Any] = {
            "observation": self.observation,
            "node": self.node,
            "policy": self.policy,
            "memory": self.memory,
            "slots": self.slots,
            "pods": tuple(self.cluster.pods.values()),
            "devices": self.dra,
            "now": self.now,
            "jitter": 0.5,
            "evictions": self.evictions,
        }
        return plan(PlanInputs(**(inputs | other)))

    def cycle(self, crash: int | None = None) -> Plan:
        """One look and what follows from it; False memory of it when it crashed."""
        made, node, done, pods = self.plan(), self.node, [], tuple(self.cluster.pods.values())
        for step in made.steps[:crash]:
            try:
                self.cluster.do(step, self.now)
            except StepRefused:
                break
            done.append(step)
            if isinstance(step, Evict):
                self.evictions = self.evictions.with_baseline(pods).with_attempt(step.pod, self.now)
        self.done += done
        if crash is None or crash >= len(made.steps):
            self.memory = remember(self.memory, node, replace(made, steps=tuple(done)), self.now)
        return made

    def settle(self, limit: int = 6) -> Plan:
        """Cycles until there is nothing more to do at this moment."""
        for _ in range(limit):
            made = self.cycle()
            if not made.steps:
                return made
        raise AssertionError(f"never at rest: {made.steps}")

    def see(self, *findings: Finding, **more: Any) -> None:
        """A new View."""
        self.view, self.age = view(*findings, at=self.now, **more), 0.0

    def wait(self, seconds: float) -> None:
        """Time passes; the View stays as it is and is published again and again."""
        self.now += seconds
        clean = is_clean(self.observation, self.node, self.policy)
        self.clean_for = self.clean_for + seconds if clean else 0.0

    def recover(self) -> Plan:
        """All is well for long enough."""
        self.see()
        self.clean_for = 0.0
        self.cycle()
        self.wait(self.policy.config.recovery_hold + self.policy.config.min_quarantine)
        return self.settle()
