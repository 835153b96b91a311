"""`gpuwatch remediator` as people start it: beside an agent, reloaded, told to stop, and asked to give all back."""

import base64
import json
import os
import signal
import subprocess
import sys

import bcrypt
import psutil
import pytest
import yaml

from gpuwatch.kube.credentials import PLUGIN_SECONDS
from gpuwatch.kube.objects import TAINT
from gpuwatch.remediation.service.remediator import CROWDED_SECONDS
from gpuwatch.sim.directory import inject
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.faults import ApiFaults
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from tests.e2e.processes import agent, fetch, running, series
from tests.ports import free_port
from tests.waiting import BOUND_SECONDS, until

NODE = "gpu-1"
NAMESPACE = "gpuwatch"
CLUSTER = ("NODE_NAME", "KUBECONFIG", "KUBERNETES_SERVICE_HOST")
"""Where the tests run in a pod, these are of another cluster."""

POLICY = {
    "mode": "enforce",
    "node_name": NODE,
    "recovery_hold": 1.0,
    "min_quarantine": 0.0,
    "budget": {"max_unavailable": 1, "namespace": NAMESPACE},
}


@pytest.fixture
def server(tmp_path):
    cluster = SimulatedCluster()
    cluster.add_namespace(NAMESPACE)
    with SimulatedApiServer(cluster, folder=tmp_path) as made:
        yield made


@pytest.fixture
def node(server, tmp_path):
    """A simulated node with an agent, and its Node."""
    config = {"agent": {"interval": 0.5}, "checks": {"xid_clear_after": 1}}
    with agent(tmp_path / "agent", source=("--source", "sim:healthy"), config=config, env={"NODE_NAME": NODE}) as found:
        found.settle()
        host = json.loads(fetch(f"{found.url}/api/v1/view"))["snapshot"]["host"]
        server.cluster.add_node(NODE, boot_id=host["boot_id"], machine_id=host["machine_id"])
        yield found


class Command:
    """The command line of one remediator, and its configuration file."""

    def __init__(self, server, folder):
        self.port, self.file, self.log = free_port(), folder / "policy.yaml", folder / "remediator.log"
        self.url = f"http://127.0.0.1:{self.port}"
        self.policy(POLICY)
        self.words = [sys.executable, "-m", "gpuwatch", "--config", str(self.file), "remediator"]
        self.words += ["--listen", f"127.0.0.1:{self.port}", "--state-dir", str(folder / "state")]
        self.words += ["--kubeconfig", str(server.kubeconfig()), "--agent", str(folder / "agent" / "agent.sock")]

    def policy(self, policy):
        self.file.write_text(yaml.safe_dump({"remediation": policy}))

    def once(self, *more):
        env = {name: value for name, value in os.environ.items() if name not in CLUSTER}
        return subprocess.run(
            [*self.words, *more], capture_output=True, text=True, timeout=BOUND_SECONDS, env=env, check=False
        )

    def value(self, name, **labels):
        page = fetch(f"{self.url}/metrics")
        if page is None:
            return None
        wanted = frozenset(labels.items())
        return next(
            (value for each, value in series(page).items() if each.name == name and wanted <= each.labels), None
        )


@pytest.fixture
def command(server, tmp_path):
    return Command(server, tmp_path)


def tainted(server):
    taints = server.cluster.get("nodes", "", NODE)["spec"].get("taints", [])
    return any(taint["key"] == TAINT for taint in taints)


def test_a_line_that_only_the_kernel_log_has_writes_nothing_until_the_driver_confirms_it(server, node, command):
    """A real kernel log reader, agent and remediator in enforce: a forged XID on a GPU that is well."""
    forged = {"do": "xid", "gpu": 5, "xid": 79, "event": False}
    with running(command.words, command.log):
        until(lambda: command.value("gpuwatch_remediator_quarantined") == 0, "it has made a plan")
        before = server.cluster.get("nodes", "", NODE)["spec"]
        inject(node.directory, forged)
        until(lambda: command.value("gpuwatch_remediator_blocked", reason="unconfirmed") == 1, "it knows of the line")
        made = command.value("gpuwatch_remediator_plan_timestamp_seconds")
        inject(node.directory, forged)
        until(lambda: command.value("gpuwatch_remediator_plan_timestamp_seconds") > made, "it has planned again")
        assert server.cluster.get("nodes", "", NODE)["spec"] == before
        assert command.value("gpuwatch_remediator_actions_total", action="taint", result="done") == 0
        inject(node.directory, {"do": "recovery_action", "gpu": 5, "action": 2})
        until(lambda: tainted(server), "the driver asks for a reboot, and the taint is there")


def test_a_day_in_the_life(server, node, command):
    with running(command.words, command.log) as process:
        until(lambda: fetch(f"{command.url}/-/ready"), "it is ready")
        assert command.value("gpuwatch_remediator_quarantined") == 0
        assert command.value("gpuwatch_remediator_actions_total", action="taint", result="done") == 0
        assert command.value("gpuwatch_remediator_mode", mode="enforce") == 1
        inject(node.directory, {"do": "xid", "gpu": 0, "xid": 119})
        until(lambda: tainted(server), "the taint is there")
        until(lambda: command.value("gpuwatch_remediator_quarantined") == 1, "the metric says so")
        assert command.value("gpuwatch_remediator_budget_slots", state="total") == 1
        assert b"quarantined" in fetch(f"{command.url}/")
        until(lambda: not tainted(server), "the taint is gone")
        until(lambda: command.value("gpuwatch_remediator_quarantined") == 0, "the metric says so")

        command.policy({**POLICY, "checks": {"gpu_lots": "taint"}})
        ok = "gpuwatch_remediator_config_last_reload_successful"
        until(lambda: command.value(ok) == 0, "the bad policy is refused")
        until(lambda: "gpu_lost" in command.log.read_text(), "the nearest name is in the log")
        command.policy({**POLICY, "mode": "observe"})
        process.send_signal(signal.SIGHUP)
        until(lambda: command.value("gpuwatch_remediator_mode", mode="observe") == 1, "the new mode is in force")
        until(lambda: command.value(ok) == 1, "it was read without a complaint")
        inject(node.directory, {"do": "xid", "gpu": 1, "xid": 119})
        until(lambda: command.value("gpuwatch_remediator_actions_total", action="taint", result="observed"), "observed")
        assert not tainted(server)
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_SECONDS) == 0
    lines = [json.loads(line) for line in command.log.read_text().splitlines() if line.startswith("{")]
    assert {"claim", "taint", "untaint", "free_slot"} <= {line["action"] for line in lines}


@pytest.mark.parametrize(
    ("command_words", "is_changed"),
    [(["remediator"], False), (["remediator"], True), (["tuner", "--consents"], False)],
    ids=["remediator", "remediator, changed", "consents"],
)
def test_a_stop_waits_for_no_credential_plugin(tmp_path, command_words, is_changed):
    """Nor does a change that waits for the step that waits for it."""
    script = "echo $$ > pid.new; mv pid.new pid; exec sleep 600"
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script]}
    kubeconfig, file, log, begun = (tmp_path / name for name in ("kubeconfig", "config.yaml", "log", "pid"))
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {"exec": plugin}}],
            }
        )
    )
    place = {"node_name": NODE, "kubeconfig": str(kubeconfig)}
    config = {"remediation": {**place, "listen": f"127.0.0.1:{free_port()}"}, "tuning": place}
    config |= {"state_dir": str(tmp_path / "state"), "agent": {"socket": str(tmp_path / "agent.sock")}}
    file.write_text(yaml.safe_dump(config))
    with running([sys.executable, "-m", "gpuwatch", "--config", str(file), *command_words], log) as process:
        until(begun.exists, "the plugin runs")
        if is_changed:
            config["remediation"]["recovery_hold"] = 7.0
            file.write_text(yaml.safe_dump(config))
            process.send_signal(signal.SIGHUP)
            until(lambda: "configuration reloaded" in log.read_text(), "it has read the change")
        process.send_signal(signal.SIGTERM)
        process.wait(PLUGIN_SECONDS / 2)
        until(lambda: not psutil.pid_exists(int(begun.read_text())), "the plugin has ended")


@pytest.mark.slow  # quick: an old View in tests/remediation/planning
def test_an_agent_that_goes_is_reported_and_changes_nothing(server, node, command):
    with running(command.words, command.log):
        until(lambda: fetch(f"{command.url}/-/ready"), "it is ready")
        node.process.send_signal(signal.SIGTERM)
        node.process.wait(BOUND_SECONDS)
        until(lambda: command.value("gpuwatch_remediator_blocked", reason="stale") == 1, "the View is stale")
        until(lambda: "cannot reach the agent" in command.log.read_text(), "the log says why")
    assert not tainted(server)


@pytest.mark.slow  # quick: a day in the life gives back, too; one look without a cluster has --once
def test_once_prints_the_plan_and_release_restores_everything(server, node, command):
    said = command.once("--once", "--mode", "observe")
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith(f"{NODE}: healthy; no fault\n")
    inject(node.directory, {"do": "lose", "gpu": 0})
    until(lambda: "gpu_lost" in (fetch(f"{node.url}/api/v1/view") or b"").decode(), "the agent has found it")
    said = command.once("--once", "--mode", "observe")
    assert "mode is observe: nothing is written" in said.stdout, said.stderr
    assert not tainted(server)
    server.cluster.faults = ApiFaults(slow=1.0, delay=2 * CROWDED_SECONDS, verbs=["get"], resources=["nodes"])
    assert command.once("--once").returncode == 0
    assert tainted(server)
    assert [each["reason"] for each in server.cluster.objects("events", "default")] == ["GPUQuarantined"]
    server.cluster.faults = ApiFaults()
    said = command.once("--release")
    assert said.returncode == 0, said.stderr
    assert "untaint" in said.stdout
    live = server.cluster.get("nodes", "", NODE)
    assert not tainted(server)
    marks = {**live["metadata"].get("labels", {}), **live["metadata"].get("annotations", {})}
    assert not any(key.startswith("gpuwatch.io/") for key in marks)
    assert all(each["type"] != "GPUHealthy" for each in live["status"]["conditions"])
    assert not any(lease["spec"].get("holderIdentity") for lease in server.cluster.objects("leases", NAMESPACE))
    again = command.once("--release")
    assert (again.returncode, again.stdout) == (0, "")
    assert "nothing on node" in again.stderr


def test_one_sample_without_a_cluster_and_one_at_the_wrong_node_say_what_is_wrong(server, node, command, tmp_path):
    words = ["--once", "--mode", "observe", "--kubeconfig", str(tmp_path / "nothing")]
    said = command.once(*words)
    assert said.returncode == 0, said.stderr
    assert "the budget and other controllers are not known" in said.stdout

    server.cluster.add_node("gpu-2", boot_id="another boot")
    command.policy({**POLICY, "node_name": "gpu-2"})
    said = command.once("--once")
    assert said.returncode == 1
    assert "check NODE_NAME" in said.stdout
    assert "not known to be this machine" in said.stderr
    assert server.cluster.get("nodes", "", "gpu-2")["spec"].get("taints", []) == []


def test_its_pages_can_be_for_known_users_only(command, tmp_path):
    users = {"anna": bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()}
    file = tmp_path / "web.yaml"
    file.write_text(yaml.safe_dump({"basic_auth_users": users}))
    anna = {"Authorization": "Basic " + base64.b64encode(b"anna:secret").decode()}
    with running([*command.words, "--web-config", str(file)], command.log):
        until(lambda: fetch(f"{command.url}/metrics", anna), "who is known gets the page")
        assert fetch(f"{command.url}/metrics") is None


@pytest.mark.parametrize(
    ("policy", "more", "code", "words"),
    [
        ({"node_name": ""}, (), 2, "no node name is known"),
        ({"mode": "enforce"}, ("--kubeconfig", "/nowhere"), 2, "no Kubernetes API server is known"),
        ({"checks": {"gpu_lots": "taint"}}, (), 2, "gpu_lost"),
        ({"mode": "enforced"}, (), 2, "enforce"),
        ({}, ("--once", "--agent", "/nowhere/agent.sock"), 1, "cannot reach the agent"),
    ],
)
def test_what_can_never_work_is_reported_at_once(command, policy, more, code, words):
    command.policy({**POLICY, **policy})
    said = command.once(*more)
    assert said.returncode == code
    assert words in said.stderr
    assert "Traceback" not in said.stderr
