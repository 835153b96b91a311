"""The process with the token: what it writes, how often it asks, and that a bad answer loses nothing."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.consents.file import ConsentsFile
from gpuwatch.consents.kube import ConsentsReader
from gpuwatch.consents.service import CYCLE_SECONDS, NAMESPACE_CYCLES, SPREAD, Consenting
from gpuwatch.kube.errors import LONGEST_SECONDS
from gpuwatch.kube.objects import TAINT
from gpuwatch.kube.transport import Transport
from gpuwatch.model.consent import AUTOTUNE, CLASS
from gpuwatch.sim.kubeapi.access import AccessRule
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from tests.remediation.model.remediating import NODE, START, FakeClock
from tests.waiting import BOUND_SECONDS, until

SOONEST, LATEST = CYCLE_SECONDS * (1 - SPREAD), CYCLE_SECONDS * (1 + SPREAD)


class Bench:
    """A node with one GPU pod, its API server, and who asks that."""

    def __init__(self, server: SimulatedApiServer, folder: Path) -> None:
        self.server, self.cluster, self.clock = server, server.cluster, FakeClock()
        self.cluster.add_node(NODE)
        self.cluster.add_pod("ml", "train-0", node=NODE)
        self.transport = Transport(str(server.kubeconfig()))
        self.file = ConsentsFile(folder)
        self.consenting = self.another()

    def another(self, boot_id: str = f"boot-of-{NODE}") -> Consenting:
        reader = ConsentsReader(self.transport, NODE)
        return Consenting(reader, self.file, self.clock, boot_id=boot_id, chance=random.Random(1))

    def with_rights(self, *rules: AccessRule) -> Consenting:
        self.cluster.add_user("poor", rules)
        self.transport.close()
        self.transport = Transport(str(self.server.kubeconfig("poor")))
        return self.another()

    def annotate(self, resource: str, name: str, annotations: dict[str, str], namespace: str = "") -> None:
        found = self.cluster.get(resource, namespace, name)
        self.cluster.put(resource, {**found, "metadata": {**found["metadata"], "annotations": annotations}})

    def taint(self, *taints: dict[str, str]) -> None:
        found = self.cluster.get("nodes", "", NODE)
        self.cluster.put("nodes", {**found, "spec": {**found["spec"], "taints": list(taints)}})

    def cycle(self) -> float:
        wait = self.consenting.step()
        self.clock.go(wait)
        return wait


@pytest.fixture
def bench(tmp_path):
    with SimulatedApiServer(SimulatedCluster()) as server:
        made = Bench(server, tmp_path)
        yield made
        made.transport.close()


def test_node_pods_and_namespaces_are_in_the_file(bench):
    bench.annotate("nodes", NODE, {AUTOTUNE: "off", "other": "planted"})
    bench.annotate("namespaces", "ml", {CLASS: "batch"})
    bench.annotate("pods", "train-0", {AUTOTUNE: "enforce"}, "ml")
    assert SOONEST <= bench.cycle() <= LATEST
    found = bench.file.read()
    assert (found.at, found.node, found.quarantined) == (START, {AUTOTUNE: "off"}, False)
    assert found.namespaces == {"ml": {CLASS: "batch"}}
    assert [(each.name, each.annotations) for each in found.pods] == [("train-0", {AUTOTUNE: "enforce"})]


def test_only_our_own_taint_counts(bench):
    bench.taint({"key": "example.com/other", "effect": "NoSchedule"})
    bench.cycle()
    assert bench.file.read().quarantined is False
    bench.taint({"key": TAINT, "effect": "NoSchedule"})
    bench.cycle()
    assert bench.file.read().quarantined is True


def test_a_changed_consent_is_in_the_file_at_the_next_cycle(bench):
    bench.cycle()
    bench.annotate("pods", "train-0", {AUTOTUNE: "off"}, "ml")
    bench.annotate("nodes", NODE, {AUTOTUNE: "off"})
    bench.cycle()
    found = bench.file.read()
    assert [each.annotations for each in found.pods] == [{AUTOTUNE: "off"}]
    assert found.node == {AUTOTUNE: "off"}


def test_a_namespace_is_asked_for_once_a_minute(bench):
    bench.cycle()
    bench.annotate("namespaces", "ml", {AUTOTUNE: "off"})
    heard = []
    for _ in range(2 * NAMESPACE_CYCLES):
        bench.cycle()
        heard.append(bench.file.read().namespaces["ml"] != {})
    assert heard == [False] * (NAMESPACE_CYCLES - 1) + [True] * (NAMESPACE_CYCLES + 1)
    cycles = 1 + 2 * NAMESPACE_CYCLES
    assert bench.transport.requests == 2 * cycles + 3


def test_a_new_namespace_is_asked_for_at_once_and_an_old_one_forgotten(bench):
    bench.cycle()
    bench.cluster.delete("pods", "ml", "train-0", grace=0)
    bench.cluster.add_pod("other", "train-1", node=NODE)
    bench.annotate("namespaces", "other", {CLASS: "serving"})
    bench.cycle()
    assert bench.file.read().namespaces == {"other": {CLASS: "serving"}}


def test_it_only_asks_for_what_the_role_grants(bench):
    bench.cycle()
    asked = {(verb, resource) for _, verb, resource in bench.cluster.requests}
    assert asked == {("get", "nodes"), ("list", "pods"), ("get", "namespaces")}


def test_a_bad_answer_loses_nothing_and_is_reported_once(bench, caplog):
    bench.cycle()
    before = bench.file.read()
    bench.server.stop()
    waits = [bench.cycle() for _ in range(12)]
    assert bench.file.read() == before
    assert waits[0] < 1 < LONGEST_SECONDS / 2 <= waits[-1] <= LONGEST_SECONDS
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len([words for words in told if words.endswith("stays as it is")]) == len(set(told))
    assert "cannot get nodes" in told[0]


def test_a_missing_right_is_named(bench, caplog):
    bench.with_rights().step()
    assert bench.file.read() is None
    assert "cannot get nodes n1" in caplog.text
    assert "grant get on nodes" in caplog.text


def test_half_of_what_is_reported_is_not_written(bench, caplog):
    """The namespace might forbid what the pod asks for."""
    bench.with_rights(
        AccessRule(verbs=["get"], resources=["nodes"]), AccessRule(verbs=["list"], resources=["pods"])
    ).step()
    assert bench.file.read() is None
    assert "cannot get namespaces ml" in caplog.text


def test_another_machines_node_is_not_trusted(bench, caplog):
    stranger = bench.another(boot_id="boot-of-another")
    stranger.step()
    assert bench.file.read() is None
    assert "node n1 is not this machine" in caplog.text
    assert "check NODE_NAME" in caplog.text


def test_a_machine_that_does_not_know_its_boot_trusts_the_name(bench):
    bench.another(boot_id="").step()
    assert bench.file.read() is not None


def test_a_file_that_cannot_be_written_is_reported_and_tried_again(bench, caplog):
    bench.file.path.parent.write_text("in the way")
    assert bench.cycle() < SOONEST
    assert "cannot write" in caplog.text
    bench.file.path.parent.unlink()
    bench.cycle()
    assert bench.file.read() is not None


def test_it_runs_until_it_is_stopped(bench):
    waits = []

    def ended(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) == 3

    bench.consenting.run(ended)
    assert len(waits) == 3
    assert all(SOONEST <= wait <= LATEST for wait in waits)


COMMAND = (sys.executable, "-m", "gpuwatch", "tuner", "--consents")


@pytest.fixture
def process(bench, tmp_path):
    """The command, on a machine whose boot is the Node's."""
    boot = tmp_path / "proc/sys/kernel/random"
    boot.mkdir(parents=True)
    (boot / "boot_id").write_text(f"boot-of-{NODE}\n")
    settings = tmp_path / "gpuwatch.yaml"
    settings.write_text(f"sources: {{proc: {tmp_path}/proc}}\n")
    kubeconfig = str(bench.server.kubeconfig())
    options = ("--kubeconfig", kubeconfig, "--node-name", NODE, "--state-dir", str(tmp_path))
    command = [sys.executable, "-m", "gpuwatch", "--config", str(settings), *COMMAND[3:], *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        yield running
        running.kill()


@pytest.mark.slow  # a look; test_labels.py holds what is exported
def test_the_command_takes_over_which_labels_are_exported(bench, process, tmp_path):
    found = bench.cluster.get("pods", "ml", "train-0")
    bench.cluster.put("pods", {**found, "metadata": {**found["metadata"], "labels": {"team": "vision"}}})
    until(lambda: bench.file.path.exists(), "the file is there")
    settings = tmp_path / "gpuwatch.yaml"
    settings.write_text(f"{settings.read_text()}metrics: {{pod_labels: [team]}}\n")
    until(lambda: bench.file.read().pods[0].labels == {"label_team": "vision"}, "the label is in the file")


def test_the_command_writes_the_file_and_ends_when_asked(bench, process):
    until(lambda: bench.file.path.exists(), "the file is there")
    assert [each.name for each in bench.file.read().pods] == ["train-0"]
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=BOUND_SECONDS)
    assert process.returncode == 0, said
    assert f"what the pods of node {NODE} consent to is in" in said


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--guard",), "two processes"),
        (("--kubeconfig", "/none"), "no Kubernetes API server is known"),
        (("--state-dir", ""), "tuning needs a state directory"),
    ],
)
def test_what_can_never_work_is_reported_at_once(more, words):
    command = (*COMMAND, "--node-name", NODE, *more)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BOUND_SECONDS)
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr


def test_without_a_node_name_it_does_not_begin(tmp_path):
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=False, timeout=BOUND_SECONDS, env=environment)
    assert done.returncode == 2
    assert "no node name is known" in done.stderr
