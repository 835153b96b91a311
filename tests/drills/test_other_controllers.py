"""Two controllers edit the same Node's taints a hundred times a second: none of theirs is lost or resurrected."""

import contextlib
import threading
import time

import msgspec
import pytest

from gpuwatch.kube.errors import ApiCall, Conflict
from gpuwatch.kube.objects import TAINT
from gpuwatch.kube.transport import MERGE_PATCH, Transport
from gpuwatch.sim.kubeapi.access import AccessRule
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from gpuwatch.sim.kubeapi.store import CommittedWrite
from tests.remediation.model.remediating import NAMESPACE, NODE, Bench, FakeClock, fatal, settings
from tests.waiting import BOUND_SECONDS

PACE = 0.01
PATH = f"/api/v1/nodes/{NODE}"


class Controller(threading.Thread):
    """Adds and removes a taint of its own as controllers do: read, change the list, write it back with its version."""

    def __init__(self, kubeconfig, name, stop):
        super().__init__(daemon=True)
        self.key, self._stop_it = f"{name}.example.com/taint", stop
        self._transport, self.edits, self.there = Transport(str(kubeconfig)), 0, False

    def run(self):
        while not self._stop_it.is_set():
            began = time.monotonic()
            with contextlib.suppress(Conflict):
                self._edit()
            self._stop_it.wait(max(0.0, PACE - (time.monotonic() - began)))

    def _edit(self):
        node = msgspec.json.decode(self._transport.request(ApiCall("get", "nodes", NODE), PATH))
        taints = [each for each in node["spec"].get("taints") or [] if each["key"] != self.key]
        if not self.there:
            taints.append({"key": self.key, "value": str(self.edits), "effect": "PreferNoSchedule"})
        body = {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}, "spec": {"taints": taints}}
        self._transport.request(ApiCall("patch", "nodes", NODE), PATH, body=body, content_type=MERGE_PATCH)
        self.there, self.edits = not self.there, self.edits + 1


def foreign(value):
    return [taint for taint in (value or {}).get("spec", {}).get("taints") or [] if taint["key"] != TAINT]


@pytest.fixture
def server():
    cluster = SimulatedCluster()
    cluster.add_node(NODE)
    cluster.add_namespace(NAMESPACE)
    with SimulatedApiServer(cluster) as running:
        yield running


@pytest.mark.parametrize(("rounds", "edits"), [(3, 40), pytest.param(12, 300, marks=pytest.mark.slow)])
def test_no_foreign_taint_is_lost_or_resurrected(server, rounds, edits):
    """For so many quarantines of ours and edits of each of the others; more of both in `make test-slow`."""
    wrong, ours = [], []

    def watch(write: CommittedWrite) -> None:
        if write.key.resource == "nodes" and write.user == "gpuwatch":
            ours.append(write)
            if foreign(write.previous) != foreign(write.object):
                wrong.append(write)

    server.cluster.add_user("gpuwatch", [AccessRule(verbs=["*"], resources=["*"])])
    server.cluster.observers.append(watch)
    stop = threading.Event()
    others = [Controller(server.kubeconfig(), name, stop) for name in ("a", "b")]
    patient = settings(recovery_hold=5.0, repeats=1000, max_quarantines_per_day=1000)
    bench = Bench(server.cluster, server.kubeconfig("gpuwatch"), FakeClock(), patient)
    for each in others:
        each.start()
    done, end = 0, time.monotonic() + BOUND_SECONDS
    while time.monotonic() < end and (done < rounds or min(each.edits for each in others) < edits):
        bench.finds(fatal(bench.clock.time()))
        bench.run(20)
        assert bench.ours, bench.remediator.state
        bench.finds()
        bench.run(20)
        assert not bench.ours, bench.remediator.state
        done += 1
        stop.wait(0.05)  # the processor is theirs, too
    stop.set()
    for each in others:
        each.join(10)
    made = [each.edits for each in others]
    print(f"{done} rounds and {len(ours)} writes of ours among {made} edits")
    assert wrong == []
    assert done >= rounds
    assert min(made) >= edits
    keys = {taint["key"] for taint in bench.taints}
    assert keys == {each.key for each in others if each.there}
