"""The commands under Check, tried on the scenario that fires the alert: each is answered, and the finding is shown."""

import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from gpuwatch.cli.look.recording import STARTED
from gpuwatch.config import Config
from gpuwatch.kube.objects import TAINT
from gpuwatch.model.finding import Finding
from gpuwatch.model.snapshot import Host
from gpuwatch.model.view import View
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.node.scenario import Scenario, load, parse
from gpuwatch.sim.playback import views
from gpuwatch.sim.surroundings.pcitree import PciTree
from gpuwatch.sim.world import SimHostTree
from tests.alerts.test_runbooks import PAGES, checks, needs_the_node, page, section_of, sections
from tests.cli.commands import run, serving
from tests.cli.test_documented_commands import commands, words
from tests.e2e.alert_cases import CASES, NODES

SCENARIO = {
    "GpuAllocatedIdle": "idle-allocated",
    "GpuClocksStuck": "silent-faults",
    "GpuFellOffBus": "fallen-off-bus",
    "GpuHardwareSlowdown": "power-brake",
    "GpuInforomCorrupt": "silent-faults",
    "GpuMemoryUnrepairable": "silent-faults",
    "GpuMigChangePending": "silent-faults",
    "GpuNotAllocatable": "plugin-withheld",
    "GpuNvlinkDown": "nvlink-down",
    "GpuNvswitchFatal": "nvlink-down",
    "GpuPcieLinkDegraded": "silent-faults",
    "GpuRecoveryActionRequired": "repaired",
    "GpuRepairPending": "row-remap",
    "GpuStraggler": "silent-faults",
    "GpuThermalHeadroomLow": "thermal",
    "GpuUnresponsive": "driver-hang",
    "GpuXidApplication": "app-xid",
    "GpuXidContained": "row-remap",
    "GpuXidCritical": "fallen-off-bus",
    "GpuXidUnconfirmed": "forged-xid",
    "GpuXidUnknown": "noisy-xid",
    "GpuZombieMemory": "silent-faults",
    "GpuwatchMonitoringDegraded": "driver-reload",
    "GpuwatchNvmlDown": "driver-hang",
    "GpuwatchReaderRestarting": "driver-hang",
}
"""Of those that come with gpuwatch. Other alerts about findings have the faults of their case in tests/e2e."""

FAULTS = {"GpuXidWarning": ({"do": "sxid", "sxid": 20034, "severity": "Non-fatal"},)}
"""Where the case needs events of the driver, which playback does not have."""

NOT_PLAYED = {"GpuDriverSlow": "the played driver answers at once: tests/drills/test_sick_driver.py"}
"""Findings that no played scenario has. The commands are run all the same."""

SIGN = {
    "GpuStraggler": "clocks_stuck",
    "GpuXidApplicationRepeated": "xid_application",
    "GpuwatchNvmlDown": "driver_wedged",
    "GpuwatchReaderRestarting": "driver_wedged",
}
"""Another finding that shows the fault, of alerts that are about none or about one that needs events of the driver."""

NOT_RUN = {
    "config": "reads a file: tests/cli/test_config.py",
    "policy": "reads a file: tests/cli/policy",
    "metrics": "asks a Prometheus: tests/cli/metrics",
    "JOB": "the scenarios' pods are not of Slurm: tests/cli/look/test_describe.py",
}
ANSWERED = {0, 3, 4}
"""Exit codes: well, degraded, failed. The others are no answer, wrong usage, no GPU stack, no permission."""

AT_ONCE = {"why": ("--seconds", "0")}
"""Options with which a command does not measure for some seconds."""

LONGEST = 240.0
"""Simulated seconds within which each fault is found."""


NODE = "node"
"""As playback calls it."""


class Story:
    """A node's Views on simulated time; each is made once, whoever asks for it."""

    def __init__(self, scenario: Scenario, config: Config) -> None:
        self.scenario = scenario
        self._made: list[View] = []
        self._more = views(scenario, config, STARTED, LONGEST)

    def __iter__(self) -> Iterator[View]:
        yield from self._made
        for view in self._more:
            self._made.append(view)
            yield view


class Moment(NamedTuple):
    """A node as the fault of an alert has just been found."""

    scenario: Scenario
    view: View
    finding: Finding | None

    @property
    def index(self) -> int:
        """Of the GPU that the finding is about."""
        gpu = self.finding.gpu if self.finding else None
        return next((s.identity.index for s in self.view.snapshot.statuses if s.identity.uuid == gpu), 0)

    @property
    def code(self) -> int:
        return (self.finding and self.finding.xid) or 79

    @property
    def now(self) -> View:
        """As an agent of the machine behind the Node of the cluster has it at this moment."""
        here = replace(self.view.snapshot, at=time.time(), host=Host(boot_id=f"boot-of-{NODE}"))
        return replace(self.view, snapshot=here)

    def show(self, root: Path) -> Path:
        """Its files, as `gpuwatch diagnose --root` reads them."""
        node = SimNode(self.scenario)
        node.advance(self.view.snapshot.at - STARTED)
        for tree in (PciTree(root), SimHostTree(root)):
            tree.show(node)
        (root / "gpuwatch").mkdir(exist_ok=True)
        (root / "gpuwatch/view.json").write_bytes(msgspec.json.encode(self.view))
        return root


@cache
def shipped(name: str) -> Story:
    return Story(load(name), Config())


def story(alert) -> Story:
    """What happens to the node; nothing, where the alert is not about a finding."""
    case = next((c for c in CASES if alert in {name.partition("@")[0] for name in c.notified + c.held_back}), None)
    if alert in SCENARIO or case is None or not checks(alert):
        return shipped(SCENARIO.get(alert, "healthy"))
    place = NODES[case.node]
    actions = [each for each in FAULTS.get(alert, case.faults) if isinstance(each, dict)]
    document = {
        "description": case.story,
        "node": place["node"],
        "workloads": [{"name": f"team/{n}", "gpus": g, "load": "training"} for n, g in place.get("workloads", ())],
        "timeline": [{"at": 10, **action} for action in actions],
    }
    return Story(parse(document, case.story), msgspec.convert(place.get("config", {}), Config))


@cache
def fault(alert) -> Moment:
    played = story(alert)
    wanted = {SIGN[alert]} if alert in SIGN else {check.name for check in checks(alert)}
    if alert in NOT_PLAYED:
        wanted = set()
    for view in played:
        found = next((each for each in view.judgement.findings if each.check in wanted), None)
        if found is not None or not wanted:
            return Moment(played.scenario, view, found)
    raise AssertionError(f"{played.scenario.description}: none of {wanted}")


def to_run(alert, section: str) -> Iterator[list[str]]:
    """Its command lines with the alert's own names in them; none of NOT_RUN."""
    moment = fault(alert)
    names = {"INDEX": str(moment.index), "CODE": str(moment.code), "NODE": NODE}
    for line in commands(sections(alert)[section]):
        args = [names.get(word, word) for word in words(line)]
        if args[0] == "--source":
            args = args[2:]
        if not NOT_RUN.keys() & set(args):
            yield args


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """One node, and the way to it: (cluster, kubeconfig)."""
    simulated = SimulatedCluster()
    simulated.add_namespace("gpuwatch")
    simulated.add_node(NODE, labels={"nvidia.com/gpu.present": "true"})
    with SimulatedApiServer(simulated, folder=tmp_path_factory.mktemp("api")) as server:
        yield simulated, str(server.kubeconfig("admin"))


@pytest.mark.parametrize("alert", PAGES)
def test_each_command_of_its_check_is_answered_and_the_finding_is_shown(alert, tmp_path, cluster):
    moment, env = fault(alert), {"GPUWATCH_STATE_DIR": str(tmp_path)}
    with serving(moment.now if " node " in sections(alert)["Check"] else moment.view) as agent:
        for args in to_run(alert, "Check"):
            if args[0] == "diagnose":
                result = run(*args, "--root", str(moment.show(tmp_path / "host")))
            elif args[0] == "node":
                result = run(*args, "--kubeconfig", cluster[1], "--agent", str(agent), env=env)
            else:
                args += AT_ONCE.get(args[0], ())
                result = run("--source", f"agent:{agent}", *args, env=env)
            assert result.exit_code in ANSWERED, (args, result.output)
            if args[:2] == ["get", "findings"] and moment.finding:
                assert moment.finding.check in result.stdout


@pytest.mark.parametrize("alert", [alert for alert in PAGES if "gpuwatch get findings" in sections(alert)["Verify"]])
def test_what_verify_waits_for_is_not_so_while_the_fault_lasts(alert):
    moment = fault(alert)
    asked = [args for args in to_run(alert, "Verify") if args[:2] == ["get", "findings"]]
    with serving(moment.view) as agent:
        for args in asked if moment.finding else ():
            assert moment.finding.check in run("--source", f"agent:{agent}", *args).stdout


@pytest.mark.parametrize("alert", [alert for alert in PAGES if needs_the_node(alert)])
def test_what_takes_a_node_out_and_what_releases_it_do_so(alert, cluster):
    def taints():
        return [taint["key"] for taint in cluster[0].get("nodes", "", NODE)["spec"].get("taints", ())]

    reach = ("--kubeconfig", cluster[1], "--agent", "none", "--yes")
    (out,) = (args for args in to_run(alert, "Mitigate") if args[:2] == ["node", "quarantine"])
    assert run(*out, *reach).exit_code == 0
    assert taints() == [TAINT]
    release = next(commands(section_of(page("README"), "Release the node")))
    assert run(*(NODE if word == "NODE" else word for word in words(release)), *reach).exit_code == 0
    assert taints() == []


def test_without_a_fault_they_print_what_the_pages_say(tmp_path, cluster):
    well = Moment(shipped("healthy").scenario, next(iter(shipped("healthy"))), None)
    with serving(well.now) as agent:
        shown = run("--source", f"agent:{agent}", "get", "findings", "--gpu", "0")
        reach = ("--kubeconfig", cluster[1], "--agent", str(agent))
        node = run("node", "status", "--node", NODE, *reach, env={"GPUWATCH_STATE_DIR": str(tmp_path)})
    assert (shown.exit_code, shown.stdout, shown.stderr.strip()) == (0, "", "No findings found.")
    assert (node.exit_code, node.stdout.split()[:3]) == (0, ["NODE", NODE, "HEALTHY"])
    assert ["taint", "none"] in [line.split() for line in node.stdout.splitlines()]


@pytest.mark.parametrize("alert", [alert for alert in PAGES if checks(alert) and alert not in NOT_PLAYED])
def test_its_fault_is_played(alert):
    assert fault(alert).finding is not None


def test_each_row_is_of_an_alert():
    assert set(SCENARIO) | set(FAULTS) | set(NOT_PLAYED) | set(SIGN) <= set(PAGES)
