"""A site with a job of its own, without `cluster` and `node`: alerts and `gpuwatch metrics check` work."""

import contextlib
import json
import subprocess
import sys

import pytest

from gpuwatch.sim.directory import inject
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from tests.e2e.alert_stage import CONFIG, NAMESPACE, remediator
from tests.e2e.alerting import hurried
from tests.e2e.alertmanager import alertmanager
from tests.e2e.processes import agent, prometheus
from tests.waiting import until

pytestmark = (
    pytest.mark.slow
)  # quick: tests/alerts by promtool, tests/dashboards/test_scrape_check.py, test_alerts.py with labels

JOB, NODE = "infra-gpu-nodes", "n1"


def checked(database):
    """(exit code, check -> result) of `gpuwatch metrics check`."""
    command = [sys.executable, "-m", "gpuwatch", "metrics", "check", "--prometheus", database.url, "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, {each["check"]: each["result"] for each in json.loads(done.stdout)["items"]}


@contextlib.contextmanager
def site(place):
    """(agent, file of its targets, Prometheus, Alertmanager)"""
    targets, rules = place / "targets.json", place / "rules.json"
    rules.write_text(json.dumps(hurried()))
    started = agent(place / "agent", source=("--source", "sim"), config=CONFIG, env={"NODE_NAME": NODE})
    with started as node:
        node.settle()
        targets.write_text(json.dumps([{"targets": [node.url.removeprefix("http://")]}]))
        job = {"job_name": JOB, "honor_labels": True, "file_sd_configs": [{"files": [str(targets)]}]}
        with alertmanager(place / "alertmanager") as manager:
            to = {"alertmanagers": [{"static_configs": [{"targets": [manager.url.removeprefix("http://")]}]}]}
            with prometheus(place / "prometheus", [job], rule_files=[str(rules)], alerting=to) as database:
                until(lambda: database.query("cluster:gpuwatch_nodes:count"), "the rules have its series")
                yield node, targets, database, manager


def names(found):
    return {alert.name for alert in found}


@pytest.mark.parametrize("gone", ["target", "agent"])
def test_a_fault_is_reported_and_so_is_that_nobody_watches_any_more(tmp_path, gone):
    with site(tmp_path) as (node, targets, database, manager):
        code, results = checked(database)
        assert (code, results["agent"], results["label cluster"]) == (3, "ok", "note")
        assert {check for check, result in results.items() if result == "missing"} == {"label node"}

        inject(node.directory, {"do": "lose", "gpu": 4})
        until(lambda: "GpuFellOffBus" in names(manager.notified()), "the fault is told")
        until(lambda: "GpuXidCritical" in names(manager.held_back), "its consequence is held back")
        assert "GpuXidCritical" not in names(manager.notified())

        if gone == "target":
            targets.write_text("[]")
        else:
            node.process.terminate()
        until(lambda: "GpuwatchAbsent" in names(manager.notified()), "nothing is scraped")
        assert database.query("prometheus_rule_evaluation_failures_total > 0") == []
        code, results = checked(database)
        assert (code, results) == (4, {"agent": "missing"})


def test_a_quarantine_holds_warnings_back_though_the_remediator_has_an_address_of_its_own(tmp_path):
    """Agent and remediator are two targets without a common label; the boot of their machine joins them."""
    cluster = SimulatedCluster()
    cluster.add_namespace(NAMESPACE)
    with (
        SimulatedApiServer(cluster, folder=tmp_path) as server,
        site(tmp_path) as (node, targets, database, manager),
        remediator(tmp_path / "agent", node, server, NODE, "enforce") as url,
    ):
        hosts = [each.removeprefix("http://") for each in (node.url, url)]
        targets.write_text(json.dumps([{"targets": hosts}]))
        until(lambda: database.query("gpuwatch_remediator_quarantined == 0"), "the remediator is scraped")
        inject(node.directory, {"do": "xid", "gpu": 0, "xid": 119})
        until(lambda: "GpuNodeQuarantined" in names(manager.notified()), "the node is quarantined")
        inject(node.directory, {"do": "power_brake", "gpu": 1})
        until(lambda: "GpuHardwareSlowdown" in names(manager.held_back), "a warning is held back")
        assert "GpuHardwareSlowdown" not in names(manager.notified())
        assert manager.held_back[next(a for a in manager.held_back if a.name == "GpuHardwareSlowdown")] == {
            "GpuNodeQuarantined"
        }
