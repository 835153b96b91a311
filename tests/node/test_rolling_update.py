"""A rolling update on a node in use, as a new version is one: quarantine, knobs and events outlive it."""

import itertools
import json

import psutil
import pytest

from gpuwatch.model.consent import AUTOTUNE, PROGRESS, SLO
from tests.node.cluster import NODE, PRODUCT
from tests.node.work import POLICY, SECONDS, gpuwatch, holders, lose, overlay, pod, taints
from tests.waiting import until

DEFAULT, BUDGET = 700_000, 4_000_000
"""mW: a GPU's limit, and what the node may draw, where eight could draw 5.6 kW."""
TUNING = f"{POLICY}tuning: {{node_budget_watts: {BUDGET // 1000}}}\nmetrics: {{pod_labels: [team]}}\n"
SICK = 7


@pytest.fixture(scope="module")
def tuned(deployed, tmp_path_factory):
    """The node with a tuner that keeps a budget; the last test of it takes the tuner away."""
    _roll(
        deployed,
        "apply",
        "-k",
        overlay(tmp_path_factory.mktemp("tuned"), TUNING, "tuner", "consents", "progress", "tuner-enforce"),
    )
    until(lambda: sum(_limits(deployed)) <= BUDGET, "the budget is kept", SECONDS, step=0.5)
    yield deployed
    _roll(deployed, "apply", "-k", deployed.deployment)
    deployed.kubectl("delete", "clusterrole,clusterrolebinding", "gpuwatch-tuner-consents", "--ignore-not-found")


@pytest.fixture
def lost(deployed):
    """A GPU that fell off the bus, and its uuid; it is well again afterwards."""
    uuid = json.loads(gpuwatch(deployed, "get", "gpus", "-o", "json"))["items"][SICK]["uuid"]
    lose(deployed, SICK)
    until(
        lambda: "gpu_lost" in gpuwatch(deployed, "get", "findings", "-o", "json"), "its loss is found", SECONDS, step=1
    )
    until(
        lambda: deployed.get("node", NODE)["spec"].get("unschedulable"), "it is tainted and cordoned", SECONDS, step=0.3
    )
    yield uuid
    deployed.driver.restore(SICK)
    deployed.stop("device-plugin")  # it counts the GPU out until it is started anew
    deployed.start_plugin()
    until(lambda: "gpu_lost" not in gpuwatch(deployed, "get", "findings", "-o", "json"), "it answers", SECONDS, step=1)
    until(lambda: uuid in gpuwatch(deployed, "get", "gpus", "-o", "json"), "it is known", SECONDS, step=1)
    gpuwatch(deployed, "repaired", str(SICK))
    until(lambda: not taints(deployed), "the node is given back", SECONDS, step=1)


def test_a_rolling_update_keeps_quarantine_and_events(deployed, lost):
    tainted, told = _taints(deployed), _xids(deployed, lost)
    assert 79 in told
    _roll(deployed, "-n", "gpuwatch", "rollout", "restart", "daemonset/gpuwatch")
    until(lambda: "gpu_lost" in gpuwatch(deployed, "get", "findings", "-o", "json"), "it judges", SECONDS, step=1)
    assert _taints(deployed) == tainted, "the same, from the same time on"
    assert _xids(deployed, lost) == told, "none is lost, and none is there twice"


def test_a_rolling_update_gives_limits_back_and_sets_none_twice(tuned):
    held = _limits(tuned)
    tuned.driver.reset_calls()
    _roll(tuned, "-n", "gpuwatch", "rollout", "restart", "daemonset/gpuwatch")
    until(lambda: sum(_limits(tuned)) <= BUDGET, "the new tuner keeps the budget", SECONDS, step=0.5)
    for gpu, first in enumerate(held):
        values = [each.value for each in tuned.driver.sets() if (each.gpu, each.knob) == (gpu, "power_limit")]
        assert DEFAULT in (first, *values), "the old one gives back"
        assert all(one != other for one, other in itertools.pairwise((first, *values))), (gpu, first, values)


def test_a_killed_tuner_is_started_again_and_keeps_the_budget(tuned):
    (killed,) = _tuners()
    killed.kill()
    until(lambda: any(each != killed for each in _tuners()), "the kubelet starts it again", SECONDS, step=0.2)
    until(lambda: _is_enforcing(tuned), "it enforces", SECONDS, step=1)
    assert sum(_limits(tuned)) <= BUDGET


def test_a_drain_takes_the_work_and_leaves_the_budget(tuned):
    tuned.apply(pod("worker", 2))
    until(lambda: "worker" in holders(tuned), "it is known", SECONDS, step=1)
    options = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={SECONDS:.0f}s")
    tuned.kubectl("drain", NODE, *options)
    until(lambda: not holders(tuned), "it holds nothing", SECONDS, step=1)
    assert _is_enforcing(tuned)
    assert sum(_limits(tuned)) <= BUDGET, "a budget is the node's, not that of its pods"
    assert tuned.get("node", NODE)["spec"]["unschedulable"], "the cordon of others stays"
    tuned.kubectl("uncordon", NODE)


COUNTER = "while :; do gpuwatch progress 5; sleep 0.5; done"
SOCKET = "/run/gpuwatch-progress"


def counting(name, gpus, **annotations):
    """A pod of another user than root, that counts its work at the socket of its node."""
    container = {"name": "c", "image": PRODUCT, "command": ["sh", "-c", COUNTER]}
    container |= {"securityContext": {"runAsUser": 4711}, "volumeMounts": [{"name": "progress", "mountPath": SOCKET}]}
    container |= {"resources": {"limits": {"nvidia.com/gpu": gpus}}}
    volumes = [{"name": "progress", "hostPath": {"path": SOCKET, "type": "Directory"}}]
    made = pod(name, containers=[container], volumes=volumes)
    metadata = {**made["metadata"], "annotations": annotations, "labels": {"team": f"team-of-{name}"}}
    return {**made, "metadata": metadata}


LATENCY = "vllm:e2e_request_latency_seconds"
PAGE = f"""
import http.server, time
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        done = int(time.time() * 10) % 1_000_000
        self.send_response(200)
        self.end_headers()
        lines = [f'vllm:generation_tokens_total{{{{model_name="m"}}}} {{7 * done}}']
        lines += [f'{LATENCY}_bucket{{{{model_name="m",le="{{bound}}"}}}} {{done}}' for bound in ("1.0", "+Inf")]
        self.wfile.write(("\\n".join(lines) + "\\n").encode())
http.server.HTTPServer(("", 8000), Page).serve_forever()
"""


def serving(name, gpus):
    """A pod with the page of a vLLM server, at an address of its own."""
    container = {"name": "c", "image": PRODUCT, "command": ["python3", "-c", PAGE]}
    container |= {"resources": {"limits": {"nvidia.com/gpu": gpus}}}
    said = {AUTOTUNE: "enforce", PROGRESS: "vllm", SLO: f"{LATENCY} p95 <= 2s"}
    made = pod(name, containers=[container])
    return {**made, "metadata": {**made["metadata"], "annotations": said}}


@pytest.fixture
def at_work(tuned):
    """A pod that opted in and counts its work, one that only does the latter, and one that opted in and has a page."""
    tuned.apply(
        counting("counts", 1, **{AUTOTUNE: "enforce", PROGRESS: "socket"}),
        counting("does-not", 0),
        serving("serves", 1),
    )
    tuned.kubectl("-n", "ml", "wait", "--for=condition=Ready", "pod", "--all", f"--timeout={SECONDS:.0f}s")
    yield tuned
    tuned.kubectl("-n", "ml", "delete", "pod", "counts", "does-not", "serves", "--wait=true")


def test_what_a_pod_says_reaches_tuner_and_agent(at_work):
    """Its annotations at the API server, its label, what it counts at the socket of its node, and its page."""
    uid, page = (at_work.get("pod", "-n", "ml", name)["metadata"]["uid"] for name in ("counts", "serves"))

    def counters():
        target = ("-n", "gpuwatch", "exec", "daemonset/gpuwatch", "-c", "consents", "--")
        text = at_work.kubectl(*target, "cat", "/var/lib/gpuwatch/consents/progress.json", check=False)
        return json.loads(text)["content"].get("owners", {}) if text else {}

    def obstacles(name):
        items = json.loads(gpuwatch(at_work, "tune", "status", "-o", "json", container="tuner"))["items"]
        (gpu,) = (each for each in items if any(name in user for user in each["users"]))
        return {each["reason"] for each in gpu["obstacles"]}

    for each, amount, what in ((uid, 5, "socket"), (page, 7, "page")):
        until(lambda each=each: len(counters().get(each, {}).get("samples", ())) > 5, what, SECONDS, step=1)
        totals = [total for _, total in counters()[each]["samples"]]
        assert all(total % amount == 0 for total in totals)
        assert totals == sorted(totals)
        assert totals[-1] > totals[0]  # on a busy machine the pod may add nothing between two looks
    assert counters().keys() == {uid, page}, "not of the pod that does not say so"
    waited = counters()[page]["histograms"][LATENCY]
    assert waited["bounds"] == [1.0]
    assert len(waited["samples"]) > 5
    assert obstacles("counts") == {"no_class"}
    assert "no_slo" not in obstacles("serves")
    until(
        lambda: 'label_team="team-of-counts"' in gpuwatch(at_work, "metrics"), "its label is exported", SECONDS, step=1
    )
    shown = gpuwatch(at_work, "config", "show").splitlines()
    assert next(line.split(None, 1)[1] for line in shown if line.startswith("metrics.pod_labels ")).split() == [
        '["team"]',
        "file",
        "/etc/gpuwatch/gpuwatch.yaml",
    ], "those of the agent beside it"
    refusal = f"neither it nor its namespace says {PROGRESS}"
    until(
        lambda: refusal in at_work.kubectl("-n", "ml", "logs", "does-not"), "the other has the reason", SECONDS, step=1
    )


def test_without_the_tuner_the_knobs_are_as_they_were(tuned):
    _roll(tuned, "apply", "-k", tuned.deployment)
    until(lambda: set(_limits(tuned)) == {DEFAULT}, "all limits are given back", SECONDS, step=0.5)


def _xids(node, uuid):
    """Those of a GPU, whatever an earlier test did to it."""
    told = json.loads(gpuwatch(node, "events", "--kind", "xid", "-o", "json"))["items"]
    return [each["xid"] for each in told if each["uuid"] == uuid]


def _tuners():
    """Those in containers; what else runs on the machine is seen here, too."""
    found = (each for each in psutil.process_iter(["cmdline"]) if "tuner" in (each.info["cmdline"] or ()))
    tuners = (each for each in found if not {"--guard", "--consents"} & set(each.info["cmdline"]))
    return [each for each in tuners if (parent := each.parent()) and parent.name().startswith("containerd-shim")]


def _is_enforcing(node):
    said = gpuwatch(node, "tune", "status", "-o", "json", container="tuner", check=False)
    return bool(said) and json.loads(said)["mode"] == "enforce" and sum(_limits(node)) <= BUDGET


def _taints(node):
    return [each for each in node.get("node", NODE)["spec"]["taints"] if each["key"].startswith("gpuwatch.io/")]


def _limits(node):
    return [node.driver.get(gpu, "power_limit_mw") for gpu in range(8)]


def _roll(node, *command):
    """Run it, and wait until the DaemonSet's pod is the new one."""
    node.kubectl(*command)
    node.kubectl("-n", "gpuwatch", "rollout", "status", "daemonset/gpuwatch", f"--timeout={SECONDS:.0f}s")
