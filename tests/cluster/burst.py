"""Many nodes sick in one instant on a real API server: `python -m tests.cluster.burst [--nodes 1000] [--budget 10%]`.

Each node has a remediator of its own, in a thread: the product's code with its own connection, its own pod's token, the
committed rights and admission policies, and real time. Only the agent is simulated. When all rest, every node gets the
same fault at once, and the watch of Nodes says when each taint appears.

The agents of a fleet have their nodes' CPUs, so here they have judged the fault before it is seen.

Threads and API server share the machine, so its own time is beside it, from the same run: how long the bare requests of
as many quarantines as the budget allows take, each in a thread, when nobody contends for slots. And what the machine
did for others is left out of the CPU until the last taint: half of it is what two cores of their own would have needed.
"""

import argparse
import contextlib
import http.client
import json
import logging
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import psutil

from gpuwatch.config import BudgetConfig, RemediationConfig
from gpuwatch.kube.objects import TAINT, Condition, Taint
from gpuwatch.kube.reader import OwnNode
from gpuwatch.kube.transport import Transport
from gpuwatch.model.clock import SystemClock, rfc3339
from gpuwatch.model.snapshot import Host
from gpuwatch.model.view import View
from gpuwatch.remediation.model import FAULTS, OWNER, QUARANTINED, CreateEvent, Ownership, PatchNode
from gpuwatch.remediation.planning.ownership import encode
from gpuwatch.remediation.service.node_writer import NodeWriter
from gpuwatch.remediation.service.process import LONGEST_POLL
from gpuwatch.remediation.service.remediator import Remediator
from gpuwatch.sim.fleet.agent import FAULTS as FLEET_FAULTS
from gpuwatch.sim.fleet.agent import SimulatedAgent
from gpuwatch.sim.fleet.node import NodeLedger, NodeTransport
from tests.cluster.api import NODES, Api, credentials
from tests.cluster.binaries import get
from tests.cluster.controlplane import ControlPlane
from tests.cluster.manifests import ACCOUNT, apply, manifests
from tests.cluster.remediating import BUDGETS, foreign, make_node, remove
from tests.cluster.story import OWN_PODS, pod_on
from tests.e2e.processes import ROOT
from tests.remediation.model.remediating import NAMESPACE
from tests.waiting import until

SELECTOR = "example.com/a=1"
"""The label that `make_node` gives every Node."""

PROCESSES = 2
CPU_SECONDS = 0.1
"""Between two looks at the CPU that was used."""

AT_REST = 10.0
"""Seconds: a remediator that will not act for so long has done what there was to do."""

REST_SECONDS = 300.0
"""Within them all have."""

FAULT = FLEET_FAULTS["driver-rollout"].symptom
FLOOR_SLOTS = 900_000
"""Numbers of slots of the bare writes begin here: no remediator comes so far."""


class Member(NamedTuple):
    """A node of the burst: its name, and the kubeconfig of the remediator's pod there."""

    name: str
    kubeconfig: str


class Counts(NamedTuple):
    """What the remediators of one process have asked for so far."""

    all: Counter[str]
    calls: Counter[str]


class NodeAgent:
    """The source of the Views of a node that is well until `falls_sick`, and of what was judged before from then on."""

    def __init__(self, name: str, clock: SystemClock) -> None:
        self._name, self._clock = name, clock
        self._now = self._agent()
        self._sick = self._agent()

    def prepare(self) -> None:
        """Judge the fault."""
        self._sick.set_symptoms({0: FAULT})
        assert self._sick.view is not None

    def falls_sick(self) -> None:
        """Now."""
        self._now = self._sick

    @property
    def view(self) -> View | None:
        return self._now.view

    @property
    def age(self) -> float:
        return self._now.age

    @property
    def trouble(self) -> str | None:
        return self._now.trouble

    def _agent(self) -> SimulatedAgent:
        host = Host(boot_id=f"boot-of-{self._name}", machine_id=f"machine-of-{self._name}")
        return SimulatedAgent(self._name, host, self._clock, gpus=1, seed=1)


class SickNode:
    """A remediator in a thread. `rested`: when it had done what there was to do, None before."""

    def __init__(self, member: Member, config: RemediationConfig) -> None:
        self.clock, self.calls = SystemClock(), Counter[str]()
        self.rested: float | None = None
        self.name, self._news, self._sick, self._ending = member.name, threading.Event(), False, False
        self.shared = Transport(member.kubeconfig)
        self.transport = NodeTransport(self.shared, lambda: None)
        self.transport.gate = lambda call: self.calls.update((f"{call.verb} {call.resource}",))
        self.agent = NodeAgent(self.name, self.clock)
        self.remediator = Remediator(
            config,
            OwnNode(self.name, NAMESPACE),
            self.agent,
            lambda: self.transport,
            clock=self.clock,
            ledger=NodeLedger(lambda: None),
            chance=random.Random(self.name),
        )
        self._thread = threading.Thread(target=self._live, name=self.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def fall_sick(self) -> None:
        """Now."""
        self.agent.falls_sick()
        self._sick, self.rested = True, None
        self._news.set()

    def end(self) -> None:
        self._ending = True
        self._news.set()
        self._thread.join()
        self.shared.close()

    def _live(self) -> None:
        """As the product's process does it, which gets the View from a real agent."""
        while not self._ending:
            wait = self.remediator.step()
            if self.rested is None and self._rests():
                self.rested = time.monotonic()
            self._news.wait(min(wait, LONGEST_POLL))
            self._news.clear()

    def _rests(self) -> bool:
        state = self.remediator.state
        if state.plan is None or state.trouble is not None or (self._sick and not state.plan.faults):
            return False
        return state.plan.next_cycle is None or state.plan.next_cycle >= AT_REST


def worker(descriptor: int) -> None:
    """Runs the remediators of some nodes and does what the parent asks for, until it asks for nothing more."""
    pipe = Connection(descriptor)
    members, budget = pipe.recv()
    logging.disable()  # a thousand remediators have much to report
    os.nice(10)  # the API server of a fleet has a machine of its own
    sys.setswitchinterval(0.05)  # hundreds of threads would else spend their time on taking turns
    threading.stack_size(512 << 10)
    share = BudgetConfig(max_unavailable=budget, namespace=NAMESPACE, node_selector=SELECTOR)
    nodes = [SickNode(member, RemediationConfig(mode="enforce", budget=share)) for member in members]
    for node in nodes:
        node.start()
    while (asked := pipe.recv()) is not None:
        match asked:
            case "resting":
                pipe.send([node.rested for node in nodes])
            case "counts":
                asked_for = (node.transport.request_counts for node in nodes)
                calls = sum((node.calls for node in nodes), Counter[str]())
                pipe.send(Counts(sum(asked_for, Counter()), calls))
            case "prepare":
                for node in nodes:
                    node.agent.prepare()
                pipe.send(None)
            case "fault":
                for node in nodes:
                    node.fall_sick()
            case [*others]:
                pipe.send(bare_writes(others))
    for node in nodes:
        node.end()


def bare_writes(members: Sequence[Member]) -> float:
    """The requests of a quarantine for each, all at once; seconds until all Nodes are tainted."""
    writers = [NodeWriter(Transport(member.kubeconfig), member.name) for member in members]
    for writer in writers:
        writer.node()  # connected, as a remediator is
    ends: list[float] = []
    threads = [threading.Thread(target=_bare_quarantine, args=(writer, ends)) for writer in writers]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ends) == len(members)
    return max(ends, default=began) - began


def _bare_quarantine(writer: NodeWriter, ends: list[float]) -> None:
    now, number = time.time(), int(writer.name.rpartition("-")[2])
    node = writer.node()
    slot = f"gpuwatch-slot-{FLOOR_SLOTS + number}"
    claim = Ownership(
        id=writer.name, state="claimed", since=now, node_uid=node.uid, boot_id=node.host.boot_id, gpus=1, slot=slot
    )
    marks = {OWNER: encode(claim), FAULTS: encode([FAULT])}
    writer.leases(NAMESPACE)
    node = writer.patch_node(node, PatchNode(step="claim", annotations=marks))
    writer.create_lease(NAMESPACE, slot, now, 900.0)
    taints = (*node.taints, Taint(key=TAINT, value="recovery_action", effect="NoSchedule"))
    node = writer.patch_node(
        node, PatchNode(step="taint", annotations=marks, labels={QUARANTINED: "true"}, taints=taints)
    )
    ends.append(time.monotonic())
    at = rfc3339(now)
    writer.set_condition(
        node,
        Condition(
            type="GPUHealthy",
            status="False",
            reason="GPUFault",
            message="as long as a message is" * 4,
            last_heartbeat=at,
            last_transition=at,
        ),
    )
    writer.create_event(node, CreateEvent(name=slot, reason="GPUQuarantined", message="as above" * 12), now)


class Seen(NamedTuple):
    """One event of the watch: when it came, and the Node."""

    at: float
    node: dict[str, Any]


class NodeWatch:
    """All changes of Nodes from now on. Nothing is decoded while they come: it would cost the others time."""

    def __init__(self, plane: ControlPlane) -> None:
        context, _ = credentials(plane.kubeconfig())
        place = urlsplit(plane.url)
        version = Api(plane).request("GET", f"{NODES}?limit=1").body["metadata"]["resourceVersion"]
        self._connection = http.client.HTTPSConnection(place.hostname or "", place.port, context=context)
        self._connection.request("GET", f"{NODES}?watch=true&resourceVersion={version}&timeoutSeconds=3600")
        self._lines: list[tuple[float, bytes]] = []
        self._answer = self._connection.getresponse()
        self._socket = self._connection.sock or self._answer.fp.raw._sock  # the answer has it where it closes it
        self._thread = threading.Thread(target=self._follow, name="watch", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._answer.close()
        self._connection.close()

    def _follow(self) -> None:
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):  # it ends with the watch
            while line := self._answer.readline():
                self._lines.append((time.monotonic(), line))

    def seen(self) -> Iterator[Seen]:
        """All so far."""
        for at, line in list(self._lines):
            event = json.loads(line)
            if event["type"] in ("ADDED", "MODIFIED"):
                yield Seen(at, event["object"])


class CpuWatch:
    """CPU seconds of each process, again and again."""

    def __init__(self) -> None:
        self._samples = [(time.monotonic(), _cpu())]
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="cpu")
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()

    def until(self, at: float) -> dict[str, float]:
        """Used by each from the first look to the first one after `at`."""
        first, last = self._samples[0][1], next((cpu for time, cpu in self._samples if time >= at), _cpu())
        return {name: last[name] - first.get(name, 0.0) for name in last}

    def _follow(self) -> None:
        while not self._ends.wait(CPU_SECONDS):
            self._samples.append((time.monotonic(), _cpu()))


@dataclass(frozen=True, kw_only=True)
class Result:
    """`taints`: seconds from the fault to each taint, in order. `floor`: those of the bare writes. `broken`: invariants
    that did not hold, in words.
    """

    nodes: int
    allowed: int
    taints: tuple[float, ...]
    floor: float
    most: int
    requests: Counter[str]
    calls: Counter[str]
    until_rest: float
    cpu: dict[str, float]
    cpu_until_taints: dict[str, float]
    claims_left: int
    broken: tuple[str, ...] = field(default=())

    def table(self) -> str:
        """For people and docs/benchmarks.md."""
        asked = self.requests["reads"] + self.requests["writes"]
        rows = (
            ("nodes sick in one instant, and of them the budget allows", f"{self.nodes:,}, {self.allowed:,}"),
            ("fault to first taint", f"{self.taints[0]:.2f} s" if self.taints else "none"),
            ("fault to last taint that the budget allows", f"{self.taints[-1]:.2f} s" if self.taints else "none"),
            (
                "half of them, nine tenths",
                ", ".join(f"{self.taints[int(len(self.taints) * part)]:.2f} s" for part in (0.5, 0.9)),
            ),
            ("bare writes of as many quarantines, to the last taint", f"{self.floor:.2f} s"),
            ("most nodes tainted at once", f"{self.most:,}"),
            ("fault until every remediator rests", f"{self.until_rest:.1f} s"),
            ("requests until then", f"{asked:,}, {asked / self.until_rest:,.0f} a second"),
            (
                "of them answered with 409, with 429 or not at all",
                f"{self.requests['conflicts']:,}, {self.requests['failures']:,}",
            ),
            ("CPU until then", _seconds(self.cpu)),
            ("CPU until the last taint", _seconds(self.cpu_until_taints)),
            ("claims left on nodes without a slot", f"{self.claims_left:,}"),
        )
        kinds = (f"| {call} | {count:,} |" for call, count in self.calls.most_common())
        return "\n".join(("| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows), *kinds))


def _seconds(cpu: dict[str, float]) -> str:
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in cpu.items())


def burst(plane: ControlPlane, nodes: int, budget: int | str, processes: int = PROCESSES) -> Result:
    """Run one on a plane on which nothing is installed yet."""
    api = Api(plane)
    allowed = max(1, int(nodes * float(budget.rstrip("%")) / 100)) if isinstance(budget, str) else budget
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for manifest in manifests():
        apply(api, manifest)
    floor = _floor(plane, api, allowed, processes)
    members = [_member(plane, api, f"node-{number:04}") for number in range(nodes)]
    with ExitStack() as stack, _workers(members, budget, processes) as pipes:
        _rest(pipes)
        watch, before = stack.enter_context(NodeWatch(plane)), _nodes(api)
        _ask(pipes, "prepare")
        counted, used = _ask(pipes, "counts"), stack.enter_context(CpuWatch())
        since = time.monotonic()
        for pipe in pipes:
            pipe.send("fault")
        rested = _rest(pipes)
        cpu, counts = used.until(time.monotonic()), _ask(pipes, "counts")
        after, holders = _nodes(api), _holders(api)
        versions = {_version(node) for node in after.values()} - {_version(node) for node in before.values()}
        until(lambda: versions <= {_version(node) for _, node in watch.seen()}, "the watch has come so far", step=1.0)
        seen = list(watch.seen())
    taints, most = _tainted(seen)
    return Result(
        nodes=nodes,
        allowed=allowed,
        taints=tuple(sorted(at - since for at in taints.values())),
        floor=floor,
        most=most,
        requests=sum((each.all for each in counts), Counter()) - sum((each.all for each in counted), Counter()),
        calls=sum((each.calls for each in counts), Counter[str]())
        - sum((each.calls for each in counted), Counter[str]()),
        until_rest=rested - since,
        cpu=cpu,
        cpu_until_taints=used.until(max(taints.values(), default=since)),
        claims_left=sum(OWNER in node["metadata"]["annotations"] and not _is_tainted(node) for node in after.values()),
        broken=tuple(_broken(allowed, most, before, after, holders, seen)),
    )


def _floor(plane: ControlPlane, api: Api, allowed: int, processes: int) -> float:
    """The bare writes, on Nodes and with Leases that are gone afterwards."""
    members = [_member(plane, api, f"floor-{number}") for number in range(allowed)]
    with _workers([], 1, processes) as pipes:
        for index, pipe in enumerate(pipes):
            pipe.send(members[index::processes])
        found = max(pipe.recv() for pipe in pipes)
    for member in members:
        remove(api, f"{NODES}/{member.name}")
    for lease in api.request("GET", BUDGETS).body["items"]:
        remove(api, f"{BUDGETS}/{lease['metadata']['name']}")
    return found


def _member(plane: ControlPlane, api: Api, name: str) -> Member:
    make_node(api, name, f"boot-of-{name}", f"machine-of-{name}")
    pod = pod_on(api, OWN_PODS, f"gpuwatch-{name}", name, serviceAccountName=ACCOUNT)
    token = plane.service_account_token(NAMESPACE, ACCOUNT, pod)
    return Member(name, str(plane.token_kubeconfig(token)))


@contextmanager
def _workers(members: Sequence[Member], budget: int | str, processes: int) -> Iterator[list[Connection]]:
    with ExitStack() as stack:
        pipes = []
        for index in range(processes):
            ours, theirs = Pipe()
            command = [sys.executable, "-c", f"from tests.cluster.burst import worker; worker({theirs.fileno()})"]
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=ROOT)
            theirs.close()
            stack.callback(ours.close)
            stack.callback(process.wait)
            stack.callback(ours.send, None)
            ours.send((members[index::processes], budget))
            pipes.append(ours)
        yield pipes


def _ask(pipes: Sequence[Connection], question: str) -> list[Any]:
    for pipe in pipes:
        pipe.send(question)
    return [pipe.recv() for pipe in pipes]


def _rest(pipes: Sequence[Connection]) -> float:
    """Wait until every remediator has done what there is to do; when the last one had."""

    def rested() -> list[float]:
        found = [at for each in _ask(pipes, "resting") for at in each]
        return [] if None in found else [at for at in found if at is not None]

    return max(until(rested, "all remediators rest", seconds=REST_SECONDS, step=0.5))


def _nodes(api: Api) -> dict[str, dict[str, Any]]:
    return {node["metadata"]["name"]: node for node in api.request("GET", NODES).body["items"]}


def _holders(api: Api) -> list[str]:
    leases = api.request("GET", BUDGETS).body["items"]
    return [holder for lease in leases if (holder := lease["spec"].get("holderIdentity"))]


def _version(node: dict[str, Any]) -> str:
    return str(node["metadata"]["resourceVersion"])


def _is_tainted(node: dict[str, Any]) -> bool:
    return any(taint["key"] == TAINT for taint in node["spec"].get("taints", ()))


def _tainted(seen: Sequence[Seen]) -> tuple[dict[str, float], int]:
    """When each Node was first tainted, and how many were at most."""
    first: dict[str, float] = {}
    now: set[str] = set()
    most = 0
    for at, node in seen:
        name = node["metadata"]["name"]
        if _is_tainted(node):
            first.setdefault(name, at)
            now.add(name)
        else:
            now.discard(name)
        most = max(most, len(now))
    return first, most


def _broken(
    allowed: int,
    most: int,
    before: dict[str, dict[str, Any]],
    after: dict[str, dict[str, Any]],
    holders: Sequence[str],
    seen: Sequence[Seen],
) -> Iterator[str]:
    tainted = {name for name, node in after.items() if _is_tainted(node)}
    if most > allowed:
        yield f"{most} nodes were tainted at once, {allowed} may be"
    if len(tainted) != min(allowed, len(before)):
        yield f"{len(tainted)} nodes are tainted in the end, not {min(allowed, len(before))}"
    if sorted(holders) != sorted(tainted):
        yield f"slots are held by {sorted(holders)}, tainted are {sorted(tainted)}"
    for _, node in (*seen, *((0.0, node) for node in after.values())):
        name = node["metadata"]["name"]
        if foreign(node) != foreign(before[name]):
            yield f"{name}: what is not ours became {foreign(node)}, was {foreign(before[name])}"
    for name in after.keys() - tainted:
        if after[name]["spec"] != before[name]["spec"] or QUARANTINED in after[name]["metadata"]["labels"]:
            yield f"{name} has no slot and is not as it was: {after[name]['spec']}"


def _cpu() -> dict[str, float]:
    """CPU seconds so far of the API server, its store and the remediators."""
    found: Counter[str] = Counter()
    for process in psutil.Process().children(recursive=True):
        with process.oneshot():
            name = process.name()
            times = process.cpu_times()
        found[name if name in ("kube-apiserver", "etcd") else "remediators"] += times.user + times.system
    return dict(found)


def main() -> None:
    """Run one and print its table; exit status 1 where an invariant did not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--budget", default="10%", help="nodes or a percentage")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="among which the remediators are divided")
    given = parser.parse_args()
    budget = given.budget if given.budget.endswith("%") else int(given.budget)
    with tempfile.TemporaryDirectory(prefix="burst-") as place, ControlPlane(Path(place), get()) as plane:
        result = burst(plane, given.nodes, budget, given.processes)
    print(result.table())
    print(*result.broken[:20], sep="\n")
    sys.exit(bool(result.broken))


if __name__ == "__main__":
    from tests.cluster.burst import main as run  # what goes to the workers has the module's own name

    run()
