"""Harms to the API server and to what others write there: lost updates, floods, rights too wide; over HTTP."""

import re
from itertools import pairwise
from pathlib import Path

from msgspec.structs import replace

import gpuwatch
from gpuwatch.config import BudgetConfig
from gpuwatch.model.finding import Response
from gpuwatch.remediation.planning.labels import LABEL_SECONDS
from gpuwatch.sim.kubeapi.access import AccessRule
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from tests.harms.conftest import Start
from tests.remediation.model.remediating import FOREIGN, NAMESPACE, NODE, Bench, fatal

PACKAGE = Path(gpuwatch.__file__).parent
WRITES = ("create", "update", "patch", "delete")
FLAP_SECONDS = 20
MINUTES = 5
"""At rest, one write of a node in so many."""


def writes(server: SimulatedApiServer) -> int:
    return sum(count for (_, verb, _), count in server.cluster.requests.items() if verb in WRITES)


def test_a_taint_that_another_sets_in_the_same_moment_is_not_lost(start: Start) -> None:
    """Between our look at the Node and our write: the write is refused, and made anew from what is there then."""
    bench = start()
    others = [{**FOREIGN, "value": f"v{number}"} for number in range(3)]

    def meddle(name: str) -> None:
        if name in ("taint.intended", "untaint.intended") and others:
            bench.edit(taints=[*(each for each in bench.taints if each["key"] != FOREIGN["key"]), others.pop()])

    bench.restarted(checkpoint=meddle)
    bench.finds(fatal())
    bench.run(60)
    assert [taint["value"] for taint in bench.taints] == ["v0", "gpu_lost"]
    others.append({**FOREIGN, "value": "last"})
    bench.finds()
    bench.run(300)
    assert bench.taints == [{**FOREIGN, "value": "last"}]


def test_at_rest_next_to_nothing_is_written(start: Start, server: SimulatedApiServer) -> None:
    """Well, degraded or quarantined, with figures that change at every look."""
    bench = start()
    for findings in ((), (fatal(check="hw_power_brake"),), (fatal(),)):
        bench.finds(*findings)
        bench.run(60)
        before = writes(server)
        for number in range(60):
            bench.finds(*(replace(each, message=f"{number} errors") for each in findings))
            bench.run(60)
        written = writes(server) - before
        assert 1 <= written <= 60 // MINUTES + 1


def test_a_storm_of_findings_is_no_storm_of_requests(start: Start, server: SimulatedApiServer) -> None:
    """Every look another XID of every GPU, for ten minutes."""
    bench = start(checks={"xid_warning": Response.OBSERVE})
    bench.run(60)
    before = sum(server.cluster.requests.values())
    for number in range(300):
        bench.finds(*(fatal(gpu=gpu, check="xid_warning", xid=number % 90 + 1) for gpu in range(4)))
        bench.run(2)
    assert sum(server.cluster.requests.values()) - before <= 2 * 300


def test_a_gpu_that_comes_and_goes_is_no_storm_of_label_changes(start: Start) -> None:
    """Every other look it is sick, for three hours, across restarts; schedulers hear of it every five minutes."""
    bench = start(checks={"gpu_lost": Response.CONDITION})
    changes: list[tuple[float, dict[str, str]]] = []
    for number in range(3 * 3600 // FLAP_SECONDS):
        bench.finds(*([fatal(bench.clock.time())] if number % 2 else []))
        bench.run(FLAP_SECONDS)
        if number % 50 == 0:
            bench.restarted()
        if not changes or changes[-1][1] != bench.labels:
            changes.append((bench.clock.time(), bench.labels))
    assert len(changes) > 6
    assert min(later[0] - earlier[0] for earlier, later in pairwise(changes)) >= LABEL_SECONDS - FLAP_SECONDS


def test_the_documented_rights_are_enough_and_no_more_is_asked_for(start: Start, server: SimulatedApiServer) -> None:
    """A whole life without drain, with a token that may touch its own Node only and no pod at all."""
    rules = (
        AccessRule(verbs=("get", "patch"), resources=("nodes",), names=(NODE,)),
        AccessRule(verbs=("patch",), resources=("nodes/status",), names=(NODE,)),
        AccessRule(verbs=("create",), resources=("events",)),
        AccessRule(verbs=("get", "list", "create", "patch"), resources=("leases",), namespaces=(NAMESPACE,)),
    )
    server.cluster.add_user("narrow", rules)
    bench = start("narrow", budget=BudgetConfig(max_unavailable=1))
    live_and_recover(bench)
    asked = {(verb, resource) for user, verb, resource in server.cluster.requests if user == "narrow"}
    assert all(any(verb in rule.verbs and resource in rule.resources for rule in rules) for verb, resource in asked)
    assert bench.remediator.state.errors == {}
    assert bench.is_clean()


def live_and_recover(bench: Bench) -> None:
    bench.finds(fatal())
    bench.run(120)
    assert len(bench.ours) == 1
    bench.finds()
    bench.run(300)


SETTERS = re.compile(r"nvml(?!EventSet)\w*(?:Set|Reset|Clear|Freeze|Create|Destroy|RemoveGpu)(?=[A-Z_])\w*")
"""Calls of NVML that change something; an event set is only listened to."""
KNOBS = {"nvmlDeviceSetPowerManagementLimit", "nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks"}


def test_nothing_in_the_package_can_reset_a_gpu() -> None:
    """A reset of one GPU can break its NVLink peers. Whatever else changes a GPU is called in one file."""
    files = [path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "sim"]
    found = {str(path.relative_to(PACKAGE)): set(SETTERS.findall(path.read_text())) for path in files}
    assert len(found) > 50
    assert {name: names for name, names in found.items() if names} == {"tuning/actuation/driver.py": KNOBS}
