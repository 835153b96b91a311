"""Harms to a fleet: everything sick at once, budgets forgotten or unreadable, over HTTP with one remediator a node."""

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gpuwatch.config import BudgetConfig
from gpuwatch.kube.objects import TAINT
from gpuwatch.kube.reader import OwnNode
from gpuwatch.kube.transport import Transport
from gpuwatch.model.clock import rfc3339
from gpuwatch.remediation.model import BlockReason
from gpuwatch.remediation.service.remediator import Remediator
from gpuwatch.sim.kubeapi.access import AccessRule
from gpuwatch.sim.kubeapi.messages import Object
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from gpuwatch.sim.kubeapi.store import CommittedWrite
from tests.harms.conftest import Start
from tests.remediation.model.remediating import INTERVAL, NAMESPACE, FakeClock, Ledger, Views, fatal, settings

SELECTOR = "nvidia.com/gpu.present"


def is_tainted(node: Object) -> bool:
    return any(taint["key"] == TAINT for taint in node["spec"].get("taints") or ())


class Member:
    """One node of the fleet, and its remediator. `restart` leaves nothing of its memory."""

    def __init__(self, name: str, connect: Callable[[], Transport], clock: FakeClock, budget: BudgetConfig) -> None:
        self.name, self._connect, self._clock, self._budget = name, connect, clock, budget
        self.views = Views(clock, boot_id=f"boot-of-{name}")
        self.alive = True
        self.poll()
        self.restart()

    def restart(self) -> None:
        self.remediator = Remediator(
            settings(budget=self._budget),
            OwnNode(node=self.name, namespace=NAMESPACE),
            self.views,
            self._connect,
            clock=self._clock,
            ledger=Ledger(),
            chance=random.Random(self.name),
        )

    def poll(self) -> None:
        view = self.views.poll()
        host = replace(view.snapshot.host, machine_id=f"machine-of-{self.name}")
        self.views.view = replace(view, snapshot=replace(view.snapshot, node=self.name, host=host))

    def sick(self, *, sick: bool = True) -> None:
        self.views.findings = (fatal(self._clock.time()),) if sick else ()
        self.poll()


class Fleet:
    """Nodes before one API server, and how many of them were tainted at the worst moment."""

    def __init__(self, server: SimulatedApiServer, clock: FakeClock, size: int, limit: int | str) -> None:
        self.cluster, self.clock, self.most = server.cluster, clock, 0
        budget = BudgetConfig(max_unavailable=limit, slot_seconds=900.0)
        kubeconfig = str(server.kubeconfig())
        names = [f"gpu-{number}" for number in range(size)]
        for name in names:
            self.cluster.add_node(name, labels={SELECTOR: "true"})
        self.members = [Member(name, lambda: Transport(kubeconfig), clock, budget) for name in names]
        self.cluster.observers.append(self._watch)

    def _watch(self, write: CommittedWrite) -> None:
        if write.key.resource == "nodes":
            self.most = max(self.most, len(self.tainted))

    @property
    def tainted(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.cluster.nodes() if is_tainted(node)]

    def run(self, seconds: float, pace: float = 10 * INTERVAL) -> None:
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            for member in self.members:
                if member.alive:
                    member.poll()
                    member.remediator.step()
            self.clock.go(pace)


Make = Callable[[int, int | str], Fleet]


@pytest.fixture
def fleet(server: SimulatedApiServer, clock: FakeClock) -> Make:
    return lambda size, limit: Fleet(server, clock, size, limit)


@pytest.mark.parametrize(("limit", "most"), [(2, 2), ("40%", 2), ("1%", 1), (0, 0), ("0%", 0)])
def test_a_bad_driver_on_every_node_taints_no_more_than_the_budget(fleet: Make, limit: int | str, most: int) -> None:
    nodes = fleet(5, limit)
    for member in nodes.members:
        member.sick()
    nodes.run(600)
    assert nodes.most == most
    assert len(nodes.tainted) == most


def test_a_restart_of_all_forgets_no_tainted_node(fleet: Make) -> None:
    """The count is that of live objects: neither memory nor a slot that nobody renewed makes room."""
    nodes = fleet(3, 1)
    first, *others = nodes.members
    first.sick()
    nodes.run(60)
    assert nodes.tainted == [first.name]
    first.alive = False  # its remediator is gone for good, its slot runs out
    nodes.clock.go(3600.0)
    for member in others:
        member.restart()
        member.sick()
    nodes.run(1200)
    assert nodes.tainted == [first.name]
    assert nodes.most == 1


def test_a_slot_of_a_node_that_is_not_tainted_any_more_is_free_again(fleet: Make) -> None:
    """So that the one before says something."""
    nodes = fleet(2, 1)
    first, second = nodes.members
    first.sick()
    nodes.run(60)
    first.alive = False
    node = nodes.cluster.get("nodes", "", first.name)
    assert node is not None
    metadata = {**node["metadata"], "annotations": {}}
    nodes.cluster.put("nodes", {**node, "metadata": metadata, "spec": {}}, user="a person")
    second.sick()
    nodes.run(1200)
    assert nodes.tainted == [second.name]


@pytest.mark.parametrize("restarted", [False, True])
def test_who_deletes_the_leases_makes_no_room(fleet: Make, restarted: bool) -> None:
    """As somebody does who installs everything anew while nodes are sick."""
    nodes = fleet(10, "30%")
    for member in nodes.members:
        member.sick()
    nodes.run(200)
    assert len(nodes.tainted) == nodes.most == 3
    for member in nodes.members:
        member.alive = member.name not in nodes.tainted or restarted
        if restarted:
            member.restart()
    for lease in nodes.cluster.objects("leases", NAMESPACE):
        nodes.cluster.delete("leases", NAMESPACE, lease["metadata"]["name"])
    nodes.members.sort(key=lambda member: member.name in nodes.tainted)  # those that wait come first
    nodes.run(400)
    assert len(nodes.tainted) == nodes.most == 3


@pytest.mark.parametrize("wrong", [-7200.0, 7200.0], ids=["behind", "ahead"])
def test_a_wrong_clock_makes_no_room_in_the_budget(start: Start, server: SimulatedApiServer, wrong: float) -> None:
    """The slot and the claim of a node whose clock is hours off are as good as anybody's: it may be about to taint."""
    bench = start("admin")
    server.cluster.add_node("skewed")
    renewed = rfc3339(bench.clock.time() + wrong, micro=True)
    spec = {"holderIdentity": "skewed", "leaseDurationSeconds": 900, "renewTime": renewed}
    lease = {"metadata": {"name": "gpuwatch-slot-0", "namespace": NAMESPACE}, "spec": spec}
    server.cluster.create("leases", lease, namespace=NAMESPACE)
    bench.restarted(settings(budget=BudgetConfig(max_unavailable=1)))
    bench.finds(fatal())
    bench.run(800)
    assert bench.ours == []
    assert bench.holders == ["skewed"]


ALL_BUT_LEASES = (
    AccessRule(verbs=("*",), resources=("nodes", "nodes/status", "pods", "events")),
    AccessRule(verbs=("create", "update", "patch"), resources=("leases",)),
)


def test_a_budget_that_cannot_be_read_allows_nothing(start: Start, server: SimulatedApiServer) -> None:
    server.cluster.add_user("no-leases", ALL_BUT_LEASES)
    bench = start("no-leases")
    bench.finds(fatal())
    bench.run(300)
    assert bench.ours == []
    plan = bench.remediator.state.plan
    assert plan is not None
    assert BlockReason.BUDGET_UNREADABLE in {obstacle.reason for obstacle in plan.blocked}


@pytest.mark.parametrize("trouble", ["unreadable", "exhausted"])
def test_a_budget_never_keeps_a_node_from_being_released(
    start: Start, server: SimulatedApiServer, trouble: str
) -> None:
    bench = start("admin")
    bench.finds(fatal())
    bench.run(60)
    assert len(bench.ours) == 1
    if trouble == "unreadable":
        server.cluster.add_user("no-leases", ALL_BUT_LEASES)
        bench.kubeconfig = str(server.kubeconfig("no-leases"))
    bench.restarted(settings(budget=BudgetConfig(max_unavailable=2 if trouble == "unreadable" else 0)))
    bench.finds()
    bench.run(300)
    assert bench.ours == []
