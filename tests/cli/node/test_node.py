"""The node commands against a simulated API server: what they say, what they write, and what they never write."""

import json
import os
import pty
import select
import threading
import time

import pytest
import yaml
from msgspec.structs import replace

from gpuwatch.agent.roles import REMEDIATOR_STATE
from gpuwatch.kube.objects import TAINT
from gpuwatch.model.finding import Finding, Remedy, Severity
from gpuwatch.model.snapshot import Host
from gpuwatch.remediation.model import OPT_OUT
from gpuwatch.remediation.service.status import FRESH_SECONDS, RemediatorStatusFile, RunningRemediator
from gpuwatch.sim.kubeapi.access import AccessRule
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from tests.cli.commands import run, serving
from tests.cli.processes import started
from tests.model import views
from tests.waiting import BOUND_SECONDS, until

NODE = "gpu-node-07"  # as the Views call it
BOOT = f"boot-of-{NODE}"
READS = {"get", "list"}
FOREIGN = {"key": "team", "value": "a", "effect": "NoSchedule"}


class Place:
    """A cluster with three GPU nodes, and command lines about one of them."""

    def __init__(self, server, folder):
        self.cluster, self._server, self._folder = server.cluster, server, folder

    def node(self, *args, user="admin", config=None, agent="none"):
        before = ["--config", self.config(config)] if config else []
        kubeconfig = str(self._server.kubeconfig(user))
        return run(*before, "node", *args, "--node", NODE, "--kubeconfig", kubeconfig, "--agent", str(agent))

    @property
    def kubeconfig(self):
        return str(self._server.kubeconfig("admin"))

    def item(self, *args, **options):
        return json.loads(self.node(*args, "-o", "json", **options).stdout)["items"][0]

    def config(self, remediation):
        path = self._folder / "gpuwatch.yaml"
        path.write_text(yaml.safe_dump({"remediation": remediation, "state_dir": str(self._folder / "state")}))
        return str(path)

    @property
    def live(self):
        return self.cluster.get("nodes", "", NODE)

    @property
    def state(self):
        """All that is not the server's own count of changes."""
        metadata = {key: value for key, value in self.live["metadata"].items() if key != "resourceVersion"}
        conditions = [c for c in self.live["status"]["conditions"] if c["type"] == "GPUHealthy"]
        return metadata, self.live["spec"], conditions

    def verbs(self, user="admin"):
        return {verb for (who, verb, _), count in self.cluster.requests.items() if who == user and count}

    @property
    def holders(self):
        return {lease["spec"].get("holderIdentity") for lease in self.cluster.objects("leases", "gpuwatch")} - {None}


@pytest.fixture
def place(tmp_path):
    cluster = SimulatedCluster()
    cluster.add_namespace("gpuwatch")
    for name in (NODE, "gpu-node-08", "gpu-node-09"):
        cluster.add_node(name, labels={"nvidia.com/gpu.present": "true"})
    node = cluster.get("nodes", "", NODE)
    cluster.put("nodes", {**node, "spec": {"taints": [FOREIGN]}})
    with SimulatedApiServer(cluster, folder=tmp_path) as server:
        yield Place(server, tmp_path)


def seen(view, boot=BOOT, name=NODE):
    """The View as an agent of this very machine has it now."""
    return replace(view, snapshot=replace(view.snapshot, at=time.time(), node=name, host=Host(boot_id=boot)))


LOST = Finding(
    check="gpu_lost",
    severity=Severity.CRITICAL,
    message="the GPU has fallen off the bus",
    gpu=views.uuid(2),
    xid=79,
    since=views.AT,
    last=views.AT,
    remedy=Remedy.REBOOT_NODE,
)


def sick(**of):
    view = views.failing()
    return seen(replace(view, judgement=replace(view.judgement, findings=(LOST,))), **of)


def test_a_quarantine_and_a_release_leave_the_node_as_it_was(place):
    before = place.state
    assert place.node("quarantine", "--yes", "--cordon", "--reason", "new fan").exit_code == 0
    taints = {taint["key"]: taint for taint in place.live["spec"]["taints"]}
    assert taints["team"] == FOREIGN
    assert taints[TAINT]["value"] == "operator"
    assert place.live["spec"]["unschedulable"]
    assert place.holders == {NODE}
    assert place.node("release", "--yes").exit_code == 0
    assert place.state == before
    assert place.holders == set()
    assert {event["reason"] for event in place.cluster.objects("events")} == {"GPUQuarantined", "GPURecovered"}


def test_what_was_done_is_reported(place):
    told = place.node("quarantine", "--yes", "--reason", "new fan").stdout
    assert f"node/{NODE}: take the Node out of use; taint {TAINT}=operator:NoSchedule added" in told
    assert "lease/gpuwatch-slot-0" in told
    told = place.node("release", "--yes").stdout
    assert f"taint {TAINT}=operator:NoSchedule removed" in told
    again = place.node("release", "--yes")
    assert (again.stdout, again.exit_code) == ("", 0)
    assert f"nothing on node {NODE} is gpuwatch's" in again.stderr


@pytest.mark.parametrize("command", ["quarantine", "release"])
def test_nobody_is_trusted_without_a_terminal(place, command):
    result = place.node(command)
    assert result.exit_code == 2
    assert "give --yes" in result.stderr
    assert place.verbs() <= READS


@pytest.mark.parametrize(("word", "code", "taints"), [(b"y\n", 0, 2), (b"n\n", 1, 1)])
def test_a_person_at_a_terminal_is_asked(place, word, code, taints):
    ours, theirs = pty.openpty()
    kubeconfig = str(place._server.kubeconfig())
    command = ("node", "quarantine", "--node", NODE, "--kubeconfig", kubeconfig, "--agent", "none")
    with started(*command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = printed(ours, b"[y/N]")
        os.write(ours, word)
        shown += printed(ours, None)
        assert process.wait(BOUND_SECONDS) == code, shown
    os.close(ours)
    assert f"Take node {NODE} out of use?".encode() in shown
    assert len(place.live["spec"]["taints"]) == taints


def printed(terminal, wanted):
    """What is printed until `wanted` comes; None: until the other end is closed."""
    shown, deadline = b"", time.monotonic() + BOUND_SECONDS
    while wanted is None or wanted not in shown:
        assert select.select([terminal], [], [], deadline - time.monotonic())[0], shown
        try:
            shown += os.read(terminal, 1024)
        except OSError:  # how Linux says that a terminal is closed
            break
    return shown


def test_a_full_budget_is_kept_unless_it_is_ignored_aloud(place):
    for number in range(1):
        lease = {"metadata": {"name": f"gpuwatch-slot-{number}"}, "spec": {"holderIdentity": "gpu-node-08"}}
        lease["spec"] |= {"renewTime": "2999-01-01T00:00:00.000000Z", "leaseDurationSeconds": 900}
        place.cluster.create("leases", lease, namespace="gpuwatch")
    refused = place.node("quarantine", "--yes")
    assert refused.exit_code == 1
    assert "the budget has no slot" in refused.stderr
    assert place.live["spec"]["taints"] == [FOREIGN]
    forced = place.node("quarantine", "--yes", "--ignore-budget")
    assert forced.exit_code == 0
    assert "budget is ignored" in forced.stderr
    assert TAINT in {taint["key"] for taint in place.live["spec"]["taints"]}
    assert place.holders == {"gpu-node-08"}


def test_a_missing_right_is_named_and_nothing_is_half_done(place):
    rules = (AccessRule(verbs=("get", "list"), resources=("nodes", "leases", "pods")),)
    place.cluster.add_user("looker", rules)
    assert place.node("status", user="looker").exit_code == 1  # unknown, but it answers
    result = place.node("quarantine", "--yes", user="looker")
    assert result.exit_code == 6
    assert f"cannot patch nodes {NODE}" in result.stderr
    assert place.live["spec"]["taints"] == [FOREIGN]


def test_a_budget_that_may_not_be_read_is_reported_and_the_rest_shown(place):
    place.cluster.add_user("looker", (AccessRule(verbs=("get", "list"), resources=("nodes", "pods")),))
    result = place.node("status", user="looker")
    assert "list leases" in result.stderr
    assert "budget" not in result.stdout


def test_pods_that_may_not_be_read_are_reported_and_the_rest_shown(place):
    place.cluster.add_user("looker", (AccessRule(verbs=("get", "list"), resources=("nodes", "leases")),))
    config = {"mode": "enforce", "checks": {"gpu_lost": "drain"}}
    with serving(sick()) as agent:
        for command in ("status", "plan"):
            result = place.node(command, user="looker", agent=agent, config=config)
            assert "grant list on pods" in result.stderr
            assert "gpu_lost" in result.stdout


def test_a_budget_that_may_not_be_read_refuses_a_quarantine_and_names_the_right(place):
    place.cluster.add_user("looker", (AccessRule(verbs=("get", "patch"), resources=("nodes",)),))
    result = place.node("quarantine", "--yes", user="looker")
    assert result.exit_code == 6
    assert "grant list on leases" in result.stderr
    assert place.live["metadata"].get("annotations", {}) == {}


def test_the_budget_is_where_the_configuration_says(place):
    place.cluster.add_namespace("elsewhere")
    config = {"mode": "enforce", "budget": {"namespace": "elsewhere", "max_unavailable": 1}}
    assert place.node("quarantine", "--yes", config=config).exit_code == 0
    assert place.holders == set()
    assert "1 of 1 slots used, gpuwatch-slot-0 by this node" in place.node("status", config=config).stdout
    assert place.node("release", "--yes", config=config).exit_code == 0
    leases = place.cluster.objects("leases", "elsewhere")
    assert [lease["spec"].get("holderIdentity") for lease in leases] == [None]


def test_a_quarantine_that_fails_half_way_leaves_no_claim_behind(place):
    before = place.state
    rules = (
        AccessRule(verbs=("get", "list", "patch"), resources=("nodes",)),
        AccessRule(verbs=("get", "list"), resources=("leases",)),
    )
    place.cluster.add_user("half", rules)
    result = place.node("quarantine", "--yes", user="half")
    assert result.exit_code == 6
    assert "grant create on leases" in result.stderr
    assert ("patch", "nodes") in {(verb, resource) for (who, verb, resource) in place.cluster.requests if who == "half"}
    assert place.state == before


def test_a_node_nobody_has_is_reported(place):
    result = run("node", "status", "--node", "nowhere", "--kubeconfig", str(place._server.kubeconfig()))
    assert result.exit_code == 1
    assert "cannot get nodes nowhere" in result.stderr


def test_no_name_is_guessed():
    result = run("node", "status", env={"NODE_NAME": None})
    assert result.exit_code == 2
    assert "give --node or set NODE_NAME" in result.stderr


@pytest.mark.parametrize("command", [("quarantine", "--yes"), ("release", "--yes"), ("plan",), ("status",)])
def test_an_agent_of_another_machine_stops_everything(place, command):
    with serving(sick(boot="another-boot")) as agent:
        result = place.node(*command, agent=agent)
    assert result.exit_code == 1
    assert "boot id" in result.stderr
    assert "--agent none" in result.stderr
    assert place.verbs() <= READS


@pytest.mark.parametrize(
    ("view", "code", "stage"), [(views.healthy, 0, "HEALTHY"), (sick, 3, "SUSPECT"), (views.degraded, 3, "SUSPECT")]
)
def test_status_ends_with_the_state(place, view, code, stage):
    with serving(seen(view())) as agent:
        result = place.node("status", agent=agent)
    assert stage in result.stdout.splitlines()[0]
    assert result.exit_code == code


def test_status_of_a_quarantined_node_shows_who_why_and_what_next(place):
    place.node("quarantine", "--yes", "--reason", "new fan")
    result = place.node("status", "-o", "wide")
    assert result.exit_code == 4
    for words in ("a person, since", "only an operator releases it: new fan", "1 of 1 slots used", f"{TAINT}=operator"):
        assert words in result.stdout
    item = json.loads(place.node("status", "-o", "json").stdout)["items"][0]
    assert (item["stage"], item["owner"]["by"], item["claim"]) == ("quarantined", "operator", "applied")


def test_status_shows_what_helps_against_a_fault(place):
    with serving(sick()) as agent:
        told = place.node("status", agent=agent).stdout
    for words in ("gpu_lost  XID 79", "drain the node and reboot it", "gpuwatch xid explain 79"):
        assert words in told


@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_plan_shows_the_change_and_writes_nothing(place, mode):
    before = place.live
    with serving(sick()) as agent:
        result = place.node("plan", agent=agent, config={"mode": mode})
        items = json.loads(place.node("plan", "-o", "json", agent=agent, config={"mode": mode}).stdout)["items"]
    assert result.exit_code == 0
    assert f"+  - key: {TAINT}" in result.stdout
    assert "    value: gpu_lost" in result.stdout
    assert "no remediator runs here" in result.stdout
    assert ("with mode enforce: " in result.stdout) is (mode == "observe")
    removed = [line for line in result.stdout.splitlines() if line.startswith("-") and not line.startswith("---")]
    assert "team" not in "".join(removed)
    assert place.live == before
    assert place.verbs() <= READS
    taint = next(item for item in items if item["step"] == "taint")
    assert [entry["key"] for entry in taint["body"]["spec"]["taints"]] == ["team", TAINT]


def test_the_mode_is_that_of_the_remediator_that_runs(place, tmp_path):
    """A DaemonSet sets it by a variable that no other command reads; what a file says, no process need use."""
    configured = {"mode": "observe"}
    with serving(sick()) as agent:
        assert place.item("status", config=configured)["mode"] is None
        options = ("--kubeconfig", place.kubeconfig, "--agent", str(agent), "--listen", "127.0.0.1:0")
        variables = {"GPUWATCH_REMEDIATOR_MODE": "enforce", "NODE_NAME": NODE}
        with started("--config", place.config(configured), "remediator", *options, variables=variables):
            until(lambda: place.item("status", config=configured)["mode"] == "enforce", "its mode is read")
            for command in ("status", "plan"):
                result = place.node(command, config=configured, agent=agent)
                assert "mode enforce" in result.stdout.splitlines()[0]
                assert "with mode enforce: " not in result.stdout
        assert "no remediator runs here" in place.node("status", config=configured).stdout.splitlines()[0]


def test_the_state_folder_of_a_running_remediator_may_be_named(place, tmp_path):
    """In a pod GPUWATCH_STATE_DIR names it to every command."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    RemediatorStatusFile(str(folder)).write(RunningRemediator(node=NODE, mode="enforce", at=time.time()))
    assert place.item("status", "--state-dir", str(folder))["mode"] == "enforce"


def test_a_remediator_that_hangs_or_was_killed_is_none_that_runs(tmp_path):
    file = RemediatorStatusFile(str(tmp_path))
    file.write(RunningRemediator(node=NODE, mode="enforce", at=1000.0))
    assert file.read(1000.0 + FRESH_SECONDS) is not None
    assert file.read(1001.0 + FRESH_SECONDS) is None
    assert file.read(999.0 - FRESH_SECONDS) is None, "written by a clock that was set back since"
    (tmp_path / REMEDIATOR_STATE).write_text("{")
    assert file.read(1000.0) is None


def test_the_planned_patch_is_one_that_the_server_takes(place):
    with serving(sick()) as agent:
        items = json.loads(place.node("plan", "-o", "json", agent=agent, config={"mode": "enforce"}).stdout)["items"]
    claim = next(item for item in items if item["step"] == "claim")
    assert claim["body"]["metadata"]["resourceVersion"] == place.live["metadata"]["resourceVersion"]


def test_plan_says_why_nothing_would_be_done(place):
    metadata = place.live["metadata"]
    place.cluster.put("nodes", {**place.live, "metadata": {**metadata, "labels": {OPT_OUT: "true"}}})
    with serving(sick()) as agent:
        told = place.node("plan", agent=agent).stdout
    assert "blocked: opt_out" in told
    assert f"+  - key: {TAINT}" not in told


def test_plan_needs_a_reader_of_the_gpus(place):
    result = place.node("plan")
    assert result.exit_code == 1
    assert "give --agent URL" in result.stderr


def test_a_released_fault_leads_to_no_other_quarantine_until_it_happens_again(place):
    with serving(sick()) as agent:
        place.node("quarantine", "--yes", agent=agent)
        place.node("release", "--yes", agent=agent)
        told = place.node("plan", agent=agent).stdout
    assert "acknowledged" in told
    assert f"+  - key: {TAINT}" not in told
    again = replace(LOST, last=views.AT + 60)
    view = sick()
    with serving(replace(view, judgement=replace(view.judgement, findings=(again,)))) as agent:
        assert f"+  - key: {TAINT}" in place.node("plan", agent=agent).stdout


def test_forgetting_a_fault_that_lasts_warns_that_the_node_is_taken_again(place):
    with serving(sick()) as agent:
        place.node("quarantine", "--yes", agent=agent)
        told = place.node("release", "--forget", "--yes", agent=agent).stderr
        assert f"{LOST.key} is still there: a remediator in enforce takes the node again at once" in told
        assert f"+  - key: {TAINT}" in place.node("plan", agent=agent).stdout


def test_a_foreign_taint_with_our_key_stays_and_is_explained(place):
    theirs = {"key": TAINT, "value": "x", "effect": "NoSchedule"}
    place.cluster.put("nodes", {**place.live, "spec": {"taints": [FOREIGN, theirs]}})
    result = place.node("release", "--yes")
    assert result.exit_code == 0
    assert "gpuwatch leaves it" in result.stderr
    assert theirs in place.live["spec"]["taints"]


def test_a_drain_waits_for_the_disruption_budget_and_spares_what_is_no_gpu_work(place):
    place.cluster.add_pod("serving", "chat-0", NODE, {"app": "chat"})
    place.cluster.add_pod("serving", "web-0", NODE, gpus=0)
    place.cluster.add_pod("kube-system", "driver-0", NODE, owner_kind="DaemonSet")
    place.cluster.add_pdb("serving", "chat", {"app": "chat"}, min_available=1)
    config = {"drain": {"retry": 1}}
    late = place.node("quarantine", "--yes", "--drain", "--timeout", "0.5", config=config)
    assert late.exit_code == 1
    assert "serving/chat-0 did not leave" in late.stderr
    assert "disruption budget" in late.stderr
    lifting = threading.Timer(0.5, place.cluster.delete, ("poddisruptionbudgets", "serving", "chat"))
    lifting.start()
    gone = threading.Timer(1.0, place.cluster.delete, ("pods", "serving", "chat-0"), {"grace": 0})
    gone.start()
    done = place.node("quarantine", "--yes", "--drain", "--timeout", "20", config=config)
    assert done.exit_code == 0
    assert "every pod that has to leave has left" in done.stdout
    assert {pod["metadata"]["name"] for pod in place.cluster.pods_on(NODE)} == {"web-0", "driver-0"}


def test_an_api_server_that_is_away_is_reported_in_one_line(place):
    place.cluster.faults = type(place.cluster.faults)(gone=True)
    result = place.node("status")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert f"cannot get nodes {NODE}" in result.stderr


@pytest.mark.parametrize("command", ["status", "plan"])
def test_documents_have_a_schema(command):
    schema = json.loads(run("node", command, "-o", "schema").stdout)
    assert schema["properties"]["kind"] == {"const": f"Node{command.title()}"}
