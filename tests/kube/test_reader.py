"""The Kubernetes client over HTTP: what it reads, what it sends and nothing else, and what a refusal becomes."""

import base64
import json
import os
import select
import socket
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
import urllib3
from msgspec.structs import replace

from gpuwatch.http.server import HttpServer, text
from gpuwatch.kube import credentials
from gpuwatch.kube.credentials import NoCluster, access
from gpuwatch.kube.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    TooMany,
    Unauthorized,
    Unavailable,
)
from gpuwatch.kube.objects import CONDITION, DOMAIN, TAINT, Condition, PodObject, Taint
from gpuwatch.kube.reader import NodeReader
from gpuwatch.kube.transport import USER_AGENT, Transport
from gpuwatch.model.errors import UsageError
from gpuwatch.remediation.model import OWNER, CreateEvent, PatchNode
from gpuwatch.remediation.service.node_writer import NodeWriter, NotOurs, node_patch
from gpuwatch.sim.kubeapi.access import AccessRule
from gpuwatch.sim.kubeapi.faults import ApiFaults
from tests.kube.kube_server import NAMESPACE, NODE, served
from tests.waiting import BOUND_SECONDS, until

LOCAL = "127.0.0.1:0"
AT = 1_790_000_000.0
OTHER = Taint(key="example.com/other", value="x")
OURS = Taint(key=TAINT, value="gpu_lost")
SICK = Condition(type=CONDITION, status="False", reason="GPULost", message="m", last_transition="2026-01-01T00:00:00Z")


@pytest.fixture
def api():
    with served() as given:
        yield given


def put_taints(api, *taints):
    node = api.cluster.get("nodes", "", NODE)
    wire = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in taints]
    api.cluster.put("nodes", {**node, "spec": {**node["spec"], "taints": wire}})


def test_a_node_is_read_with_all_that_is_asked_of_it(api):
    put_taints(api, OTHER)
    node = api.writer.node()
    assert (node.name, node.taints, node.unschedulable, node.deleting) == (NODE, (OTHER,), False, False)
    assert node.host.boot_id == f"boot-of-{NODE}"
    assert node.host.machine_id == f"machine-of-{NODE}"
    assert any(condition.type == "Ready" for condition in node.conditions)
    assert node.uid
    assert node.resource_version


def test_a_node_that_is_not_there_is_distinguished_from_one_that_cannot_be_read(api):
    with pytest.raises(NotFound, match="cannot get nodes nobody"):
        api.writer.other_node("nobody")


def test_own_pods_come_with_their_gpus_and_owner(api):
    api.cluster.add_node("n2")
    api.cluster.add_pod("ml", "elsewhere-0", node="n2")
    api.cluster.add_pod("kube-system", "plugin-0", node=NODE, gpus=0, owner_kind="DaemonSet")
    found = {pod.path: (pod.gpus, pod.controller) for pod in api.writer.pods()}
    assert found == {"ml/train-0": (1, "ReplicaSet"), "kube-system/plugin-0": (0, "DaemonSet")}


def test_nodes_are_counted_over_all_pages(api):
    for number in range(7):
        api.cluster.add_node(f"gpu-{number}", labels={"nvidia.com/gpu.present": "true"})
    api.cluster.add_node("without")
    before = api.transport.requests
    assert api.writer.count_nodes("nvidia.com/gpu.present=true", page=3) == 8
    assert api.transport.requests - before == 3


def test_a_patch_sends_what_the_step_names_and_nothing_else(api):
    node = api.writer.node()
    version = {"resourceVersion": node.resource_version}
    assert node_patch(node, PatchNode(step="claim", annotations={OWNER: "{}"})) == {
        "metadata": {**version, "annotations": {OWNER: "{}"}}
    }
    assert node_patch(node, PatchNode(step="taint", taints=(OURS,), unschedulable=True)) == {
        "metadata": version,
        "spec": {"taints": [{"key": TAINT, "value": "gpu_lost", "effect": "NoSchedule"}], "unschedulable": True},
    }
    assert node_patch(node, PatchNode(step="untaint", taints=(), unschedulable=False)) == {
        "metadata": version,
        "spec": {"taints": None, "unschedulable": None},
    }


def test_taint_and_untaint_leave_others_alone(api):
    put_taints(api, OTHER)
    node = api.writer.node()
    step = PatchNode(step="taint", taints=(OTHER, OURS), annotations={OWNER: "{}"}, labels={f"{DOMAIN}/x": "1"})
    node = api.writer.patch_node(node, step)
    assert (node.taints, node.annotations, node.labels[f"{DOMAIN}/x"]) == ((OTHER, OURS), {OWNER: "{}"}, "1")
    undo = PatchNode(step="untaint", taints=(OTHER,), annotations={OWNER: None}, labels={f"{DOMAIN}/x": None})
    node = api.writer.patch_node(node, undo)
    assert (node.taints, node.annotations) == ((OTHER,), {})
    assert f"{DOMAIN}/x" not in node.labels


def test_a_node_that_changed_meanwhile_is_not_patched(api):
    node = api.writer.node()
    put_taints(api, OTHER)
    with pytest.raises(Conflict):
        api.writer.patch_node(node, PatchNode(step="taint", taints=(OURS,)))
    assert api.writer.node().taints == (OTHER,)


@pytest.mark.parametrize(
    "step",
    [
        PatchNode(step="taint", taints=(OURS,)),
        PatchNode(step="taint", taints=(OTHER, replace(OTHER, key="more"))),
        PatchNode(step="taint", taints=(replace(OTHER, value="y"),)),
        PatchNode(step="taint", annotations={"example.com/a": "1"}),
        PatchNode(step="taint", labels={f"{DOMAIN}.example.com/a": None}),
    ],
)
def test_what_is_not_ours_never_leaves_this_process(api, step):
    put_taints(api, OTHER)
    node = api.writer.node()
    before = api.transport.requests
    with pytest.raises(NotOurs):
        api.writer.patch_node(node, step)
    assert api.transport.requests == before


def test_an_annotation_outside_our_domain_needs_the_settings_word(api):
    writer = NodeWriter(api.transport, NODE, also=["example.com/reboot"])
    step = PatchNode(step="refresh", annotations={"example.com/reboot": "please"})
    assert writer.patch_node(writer.node(), step).annotations == {"example.com/reboot": "please"}


def test_the_condition_leaves_the_kubelets_alone(api):
    node = api.writer.set_condition(api.writer.node(), SICK)
    assert {condition.type for condition in node.conditions} >= {"Ready", CONDITION}
    assert node.condition == SICK
    node = api.writer.set_condition(node, None)
    assert node.condition is None
    assert any(condition.type == "Ready" for condition in node.conditions)


def test_the_condition_is_not_written_to_a_node_created_again(api):
    node = api.writer.node()
    api.cluster.delete("nodes", "", NODE)
    api.cluster.add_node(NODE)
    with pytest.raises(KubeError):
        api.writer.set_condition(node, SICK)
    assert api.writer.node().condition is None


def test_an_event_reported_twice_is_one(api):
    told = CreateEvent(name="gpuwatch-1", reason="GPURecovered", message="m", warning=False)
    node = api.writer.node()
    assert [api.writer.create_event(node, told, AT) for _ in range(2)] == [True, False]
    (event,) = api.cluster.objects("events")
    assert (event["reason"], event["type"], event["involvedObject"]["kind"]) == ("GPURecovered", "Normal", "Node")
    assert event["metadata"]["namespace"] == "default"


def test_an_event_about_a_pod_is_in_its_namespace(api):
    (pod,) = api.writer.pods()
    told = CreateEvent(name="gpuwatch-2", reason="GPUXid31", message="m", pod=(pod.namespace, pod.name, pod.uid))
    assert api.writer.create_event(api.writer.node(), told, AT)
    (event,) = api.cluster.objects("events", "ml")
    assert event["involvedObject"]["uid"] == pod.uid


def test_a_slot_is_taken_renewed_and_released(api):
    lease = api.writer.create_lease(NAMESPACE, "gpuwatch-slot-0", AT, 900)
    assert (lease.holder, lease.renewed, lease.duration) == (NODE, AT, 900)
    with pytest.raises(AlreadyExists):
        api.writer.create_lease(NAMESPACE, "gpuwatch-slot-0", AT, 900)
    later = api.writer.hold_lease(NAMESPACE, lease, AT + 300, 900)
    assert (later.holder, later.renewed) == (NODE, AT + 300)
    with pytest.raises(Conflict):
        api.writer.free_lease(NAMESPACE, lease, AT)
    freed = api.writer.free_lease(NAMESPACE, later, AT + 400)
    assert freed.holder is None
    assert api.writer.leases(NAMESPACE) == (freed,) == (api.writer.lease(NAMESPACE, "gpuwatch-slot-0"),)


def test_an_eviction_means_this_very_pod(api):
    (pod,) = api.writer.pods()
    with pytest.raises(Conflict):
        api.writer.evict(replace(pod, uid="another"))
    assert not api.writer.pods()[0].deleting
    api.writer.evict(pod)
    assert all(each.deleting for each in api.writer.pods())
    with pytest.raises(NotFound):
        api.writer.evict(PodObject(namespace="ml", name="nobody", uid="u"))


def test_a_disruption_budget_is_distinguished_from_a_busy_server(api):
    api.cluster.add_pdb("ml", "train", {"app": "train"}, min_available=1)
    (pod,) = api.writer.pods()
    with pytest.raises(TooMany) as refused:
        api.writer.evict(pod)
    assert refused.value.disruption_budget
    api.cluster.faults = ApiFaults(throttle=1.0, retry_after=7)
    with pytest.raises(TooMany) as refused:
        api.writer.node()
    assert (refused.value.disruption_budget, refused.value.retry_after) == (False, 7)


@pytest.mark.parametrize(
    "faults",
    [
        ApiFaults(internal_error=1.0),
        ApiFaults(unavailable=1.0),
        ApiFaults(reset_before=1.0),
        ApiFaults(reset_after=1.0),
        ApiFaults(gone=True),
    ],
)
def test_no_answer_and_server_errors_are_unavailable_and_asked_once(api, faults):
    api.cluster.faults = faults
    before = api.transport.requests
    with pytest.raises(Unavailable) as failed:
        api.writer.node()
    assert failed.value.why
    assert api.transport.requests - before == 1
    api.cluster.faults = ApiFaults()
    assert api.writer.node().name == NODE


def test_a_server_that_never_answers_is_given_up(api):
    reader = NodeReader(Transport(str(api.server.kubeconfig()), read_seconds=0.2), NODE)
    api.cluster.faults = ApiFaults(hang=1.0)
    with pytest.raises(Unavailable, match="did not answer in time"):
        reader.node()


def test_a_missing_right_names_verb_and_resource(api):
    rules = [AccessRule(verbs=["get"], resources=["nodes"])]
    api.cluster.add_user("reader", rules)
    reader = NodeReader(Transport(str(api.server.kubeconfig("reader"))), NODE)
    assert reader.node().name == NODE
    with pytest.raises(Forbidden) as refused:
        reader.pods()
    assert refused.value.next_step == "grant list on pods"
    assert refused.value.exit_code == 6


def test_a_new_token_is_read_once_the_old_one_is_refused(api):
    kubeconfig = api.server.kubeconfig("mover")
    api.cluster.add_user("mover", [AccessRule(verbs=["*"], resources=["*"])], token="first")
    kubeconfig.write_text(kubeconfig.read_text().replace(api.cluster.access.token_of("mover"), "stale"))
    reader = NodeReader(Transport(str(kubeconfig)), NODE)
    with pytest.raises(Unauthorized):
        reader.node()
    kubeconfig.write_text(kubeconfig.read_text().replace("stale", "first"))
    assert reader.node().name == NODE


def test_who_asks_is_named(tmp_path):
    seen = []
    server = HttpServer({f"/api/v1/nodes/{NODE}": lambda asked: seen.append(asked) or text(404, "no")}, listen=LOCAL)
    server.start()
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    config = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {"token": "secret"}}]}
    (tmp_path / "config").write_text(json.dumps({**config, "current-context": "c"}))
    try:
        with pytest.raises(NotFound):
            NodeReader(Transport(str(tmp_path / "config")), NODE).node()
    finally:
        server.stop()
    assert seen[0].headers["user-agent"] == USER_AGENT
    assert seen[0].headers["authorization"] == "Bearer secret"


def test_a_reader_cannot_write():
    writes = {name for name in vars(NodeWriter) if not name.startswith("_")}
    assert writes
    assert not writes & set(dir(NodeReader))


def test_no_cluster_is_reported_plainly(monkeypatch, tmp_path):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(NoCluster, match="no Kubernetes API server is known"):
        NodeReader(Transport(str(tmp_path / "nothing")), NODE).node()


@pytest.mark.parametrize("path", ["~nobody-of-that-name/config", "a" * 300, "\0"])
def test_a_path_that_can_lead_nowhere_is_no_cluster(path):
    with pytest.raises(NoCluster, match="is not to be found"):
        NodeReader(Transport(path), NODE).node()


def test_a_kubeconfig_that_is_none_is_refused(tmp_path):
    for number, content in enumerate(("", "[]", "{", "apiVersion: v1", "current-context: a\ncontexts: []")):
        path = tmp_path / str(number)
        path.write_text(content)
        with pytest.raises(UsageError, match=r"cannot (use|read)"):
            NodeReader(Transport(str(path)), NODE).node()


def kubeconfig(folder, server="https://127.0.0.1:1", cluster=None, user=None):
    """Of a server that nobody has to reach."""
    document = {
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user or {}}],
        "current-context": "c",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(document))
    return path


def plugin(*command):
    api = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": api, "command": command[0], "args": command[1:], "interactiveMode": "Never"}}


PLUGIN_SAYS = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}
NO_PEM = {"certificate-authority-data": "bm8gY2VydGlmaWNhdGU="}
BROKEN_CREDENTIALS = {
    "an authority that is not there": ({"certificate-authority": "/nowhere/ca.crt"}, {}, "/nowhere/ca.crt"),
    "an authority that is none": (NO_PEM, {}, "its certificate-authority is no certificate"),
    "a certificate that is not there": (
        {},
        {"client-certificate": "/nowhere/c.crt", "client-key": "/nowhere/c.key"},
        "/nowhere/c.crt",
    ),
    "a certificate that is none": (
        {},
        {"client-certificate-data": NO_PEM["certificate-authority-data"], "client-key-data": "eA=="},
        "its client-certificate and client-key are no",
    ),
    "a plugin that is not there": (
        {},
        plugin("no-such-plugin"),
        "gives no ExecCredential: no-such-plugin cannot be started: .*(No such file|Permission denied)",
    ),
    "a plugin that fails": ({}, plugin("sh", "-c", "echo expired >&2; exit 3"), "returned 3. expired"),
    "a plugin that says nothing": ({}, plugin("true"), "true gives no ExecCredential: Input data was truncated"),
    "a plugin that prints too much": (
        {},
        plugin("head", "-c", "3000000", "/dev/zero"),
        "head gives no ExecCredential: JSON is malformed",
    ),
    "a plugin that gives nothing": (
        {},
        plugin("echo", json.dumps({**PLUGIN_SAYS, "status": {}})),
        "gives neither a token nor a certificate and key",
    ),
    "a plugin without its name": ({}, {"exec": {"apiVersion": "v1"}}, "has another type than expected"),
    "a program of a provider that kubectl has no more": (
        {},
        {"auth-provider": {"name": "gcp", "config": {"cmd-path": "gcloud"}}},
        "its auth-provider has no token: renew it with kubectl",
    ),
    "a token that would be two headers": ({}, {"token": "t\nX-Remote-User: admin"}, "is not one line of ASCII"),
    "a token that is no ASCII": ({}, {"token": "\u2603"}, "is not one line of ASCII"),
    "a server that is a list": ({"server": ["https://127.0.0.1:1"]}, {}, "has another type than expected"),
    "a server without a name": ({"server": "https://"}, {}, "No host"),
    "a port that is none": ({"server": "https://127.0.0.1:99999"}, {}, "parse"),
    "a scheme that is none of ours": ({"server": "ftp://127.0.0.1"}, {}, "scheme ftp"),
}


@pytest.mark.parametrize(("cluster", "user", "says"), BROKEN_CREDENTIALS.values(), ids=BROKEN_CREDENTIALS)
def test_broken_credentials_are_refused_in_words_before_any_request(tmp_path, cluster, user, says, caplog):
    transport = Transport(str(kubeconfig(tmp_path, cluster=cluster, user=user)))
    with pytest.raises(UsageError, match=says) as refused:
        NodeReader(transport, NODE).node()
    assert "cannot use" in refused.value.what
    assert (transport.requests, caplog.records) == (0, [])


@pytest.mark.parametrize("of", ["cluster", "user", "text"])
def test_certificates_that_would_take_openssl_minutes_are_refused(tmp_path, of):
    """It looks through all it has for each that it adds: 100,000 take longer than a minute."""
    many = trustme.CA().cert_pem.bytes() * 2500
    (tmp_path / "many.pem").write_bytes(many)
    wrong = {
        "cluster": {"cluster": {"certificate-authority": "many.pem"}},
        "user": {"user": {"client-certificate": "many.pem", "client-key": "many.pem"}},
        "text": {"cluster": {"certificate-authority-data": base64.b64encode(many).decode()}},
    }
    with pytest.raises(UsageError, match=r"cannot read the certificate or key .*; it is larger than 1024 KiB"):
        access(str(kubeconfig(tmp_path, **wrong[of])), 1)


@pytest.mark.parametrize(
    ("script", "ends"),
    [
        ("echo waiting >&2; echo s3cret; sleep 600 & wait", "sh has not ended within 3 s;"),
        ("echo waiting >&2; yes s3cret", "(sh has not ended within 3 s;|it returned (141|-13).)"),  # of SIGPIPE
    ],
)
def test_a_plugin_that_does_not_end_is_ended(tmp_path, monkeypatch, script, ends):
    """With what it started, and however much it prints meanwhile."""
    monkeypatch.setattr(credentials, "PLUGIN_SECONDS", 3.0)
    with pytest.raises(UsageError, match=f"sh gives no ExecCredential: {ends} waiting") as refused:
        access(str(kubeconfig(tmp_path, user=plugin("sh", "-c", script))), 1)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [{f'*a{n}, ' * 10}]\n" for n in range(6)), "640000 values"),
        ("users: " + "[" * 100, "nested deeper"),
        ("a: 1\na: 2", "stands there twice"),
    ],
    ids=["aliases", "depth", "twice"],
)
def test_a_kubeconfig_is_read_as_any_yaml_of_others(tmp_path, more, says):
    path = tmp_path / "config"
    path.write_text(f"current-context: c\nclusters: []\n{more}")
    with pytest.raises(UsageError, match=says):
        NodeReader(Transport(str(path)), NODE).node()


def test_an_error_quotes_no_secret(tmp_path):
    path = kubeconfig(tmp_path)
    path.write_text(path.read_text().replace('"user": {}', '"token": "s3cret"'))
    with pytest.raises(UsageError, match="Expected key user") as refused:
        NodeReader(Transport(str(path)), NODE).node()
    assert "s3cret" not in str(refused.value)


def test_of_two_kubeconfigs_the_first_counts(tmp_path):
    paths = []
    for number in (1, 2):
        (folder := tmp_path / str(number)).mkdir()
        paths.append(kubeconfig(folder, f"http://127.0.0.{number}:1"))
    assert Transport(os.pathsep.join(map(str, [tmp_path / "none", *paths]))).server == "http://127.0.0.1:1"


def test_paths_in_a_kubeconfig_begin_at_its_folder(tmp_path, monkeypatch):
    """As kubectl has it; minikube and others write such."""
    monkeypatch.chdir("/")
    trustme.CA().cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "plugin").write_text(f"#!/bin/sh\necho '{json.dumps(PLUGIN_SAYS)}'\n")
    (tmp_path / "plugin").chmod(0o755)
    path = kubeconfig(tmp_path, cluster={"certificate-authority": "ca.pem"}, user=plugin("./plugin"))
    found = access(str(path), 1)
    assert (found.host, found.token()) == ("https://127.0.0.1:1", "Bearer t")
    assert found.pool.connection_pool_kw["ca_certs"] == str(tmp_path / "ca.pem")


@pytest.mark.parametrize(
    "user", [plugin("echo", json.dumps(PLUGIN_SAYS)), {"tokenFile": "token"}], ids=["exec", "file"]
)
def test_a_token_of_a_plugin_or_a_file_is_sent(tmp_path, user):
    (tmp_path / "token").write_text("t\n")
    server = HttpServer(
        {f"/api/v1/nodes/{NODE}": lambda asked: text(404, asked.headers["authorization"])}, listen=LOCAL
    )
    server.start()
    try:
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}", user=user)
        with pytest.raises(NotFound, match=r"Bearer t(?![\w\\])"):
            NodeReader(Transport(str(path)), NODE).node()
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("server", "proxy", "asks"),
    [
        ("http://{here}", None, "GET /api/v1/nodes/{NODE} HTTP/1.1"),
        ("http://{here}/k8s/c-1/", None, "GET /k8s/c-1/api/v1/nodes/{NODE} HTTP/1.1"),
        ("http://api.example/k8s", "http://{here}", "GET http://api.example/k8s/api/v1/nodes/{NODE} HTTP/1.1"),
        ("https://api.example/k8s", "http://{here}", "CONNECT api.example:443 HTTP/1."),  # 1.0 before Python 3.12
    ],
    ids=["server", "below a path", "behind a proxy", "with TLS behind a proxy"],
)
def test_servers_are_asked_where_they_are(tmp_path, server, proxy, asks):
    """Rancher's are below a path."""
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor() as threads:
        listening.settimeout(BOUND_SECONDS)
        here = f"127.0.0.1:{listening.getsockname()[1]}"
        cluster = {"proxy-url": proxy.format(here=here)} if proxy else {}
        path = kubeconfig(tmp_path, server.format(here=here), cluster)
        answer = threads.submit(NodeReader(Transport(str(path)), NODE).node)
        connection, _ = listening.accept()
        with connection, connection.makefile("rb") as sent:
            line = sent.readline().decode().strip()
            connection.sendall(b"HTTP/1.1 503 Not Now\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        with pytest.raises(Unavailable):
            answer.result(timeout=20)
    assert line.startswith(asks.format(NODE=NODE))


def test_a_plugin_is_asked_again_when_its_credential_ends_and_not_before(tmp_path):
    """Also where it gives a certificate beside the token."""
    authority = trustme.CA()
    own = authority.issue_cert("client.example.com")
    pair = {
        "clientCertificateData": own.cert_chain_pems[0].bytes().decode(),
        "clientKeyData": own.private_key_pem.bytes().decode(),
    }
    for number, ends in ((1, "2020-01-01T00:00:00Z"), (2, "2999-01-01T00:00:00Z"), (3, None)):
        status = {"token": f"t{number}", "expirationTimestamp": ends, **pair}
        (tmp_path / f"{number}.json").write_text(json.dumps({**PLUGIN_SAYS, "status": status}))
    script = 'echo x >> asked; cat "$(grep -c x asked).json"'
    found = access(str(kubeconfig(tmp_path, user=plugin("sh", "-c", script))), 1)
    assert [found.token() for _ in range(3)] == ["Bearer t2"] * 3
    assert (tmp_path / "asked").read_text() == "x\n" * 2
    with open(found.pool.connection_pool_kw["cert_file"]) as file:
        assert file.read() == pair["clientCertificateData"]


def test_no_issuer_is_asked_for_another_token(tmp_path):
    """The client would ask it without a deadline and keep the new refresh token from kubectl; here it never answers."""
    ended = base64.urlsafe_b64encode(b'{"exp": 1}').decode().rstrip("=")
    with socket.create_server(("127.0.0.1", 0)) as issuer:
        config = {"id-token": f"a.{ended}.c", "refresh-token": "r", "client-id": "c", "client-secret": "s"}
        config["idp-issuer-url"] = f"http://127.0.0.1:{issuer.getsockname()[1]}"
        user = {"auth-provider": {"name": "oidc", "config": config}}
        found: list[str] = []
        path = str(kubeconfig(tmp_path, user=user))
        asking = threading.Thread(target=lambda: found.append(access(path, 1).token()), daemon=True)
        asking.start()
        until(lambda: found or select.select([issuer], [], [], 0.0)[0], "there is a token, or the issuer is asked")
        assert found == [f"Bearer a.{ended}.c"]


def test_a_plugin_may_give_a_certificate_alone(tmp_path):
    own = trustme.CA().issue_cert("client.example.com")
    certificate, key = own.cert_chain_pems[0].bytes().decode(), own.private_key_pem.bytes().decode()
    status = {"clientCertificateData": certificate, "clientKeyData": key}
    (tmp_path / "says.json").write_text(json.dumps({**PLUGIN_SAYS, "status": status}))
    user = plugin("cat", "says.json")
    found = access(str(kubeconfig(tmp_path, user=user)), 1)
    assert found.token() == ""
    assert Path(found.pool.connection_pool_kw["cert_file"]).read_text() == certificate
    assert Path(found.pool.connection_pool_kw["key_file"]).read_text() == key


def test_a_plugin_that_fails_costs_no_token_that_is_still_good(tmp_path, monkeypatch, caplog):
    """As client-go has it: it is asked again a minute before the end, and the old token serves until then."""
    now = datetime.now(UTC)
    status = {"token": "t1", "expirationTimestamp": (now + timedelta(seconds=50)).isoformat()}
    (tmp_path / "1.json").write_text(json.dumps({**PLUGIN_SAYS, "status": status}))
    script = 'echo x >> asked; cat "$(grep -c x asked).json"'
    found = access(str(kubeconfig(tmp_path, user=plugin("sh", "-c", script))), 1)
    assert [found.token() for _ in range(3)] == ["Bearer t1"] * 3
    assert (tmp_path / "asked").read_text() == "x\n" * 2, "a plugin that fails is asked every ten seconds"
    assert "the credential is not renewed" in caplog.text
    monkeypatch.setattr(credentials.time, "time", lambda: now.timestamp() + 51)
    with pytest.raises(UsageError, match="gives no ExecCredential: it returned 1"):
        found.token()


def test_a_plugin_gets_what_kubectl_gives_it(tmp_path):
    """Its variables, and the cluster where it asks for it (client-go credential plugins, `provideClusterInfo`)."""
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
    asked = plugin("sh", "-c", f"echo \"$KUBERNETES_EXEC_INFO\" > $PLACE; echo '{json.dumps(PLUGIN_SAYS)}'")
    asked["exec"] |= {"env": [{"name": "PLACE", "value": "info"}], "provideClusterInfo": True}
    assert access(str(kubeconfig(tmp_path, cluster={"extensions": [extension]}, user=asked)), 1).token() == "Bearer t"
    info = json.loads((tmp_path / "info").read_text())
    assert (info["kind"], info["spec"]["interactive"]) == ("ExecCredential", False)
    assert (info["spec"]["cluster"]["server"], info["spec"]["cluster"]["config"]) == (
        "https://127.0.0.1:1",
        {"audience": "a"},
    )


CODE = """
import sys
import threading
import warnings
{}
sys.exit(int(any(name.split(".")[0] in ("kubernetes", "urllib3") for name in sys.modules)))
"""


@pytest.mark.parametrize(
    ("what", "loaded"),
    [
        ("import gpuwatch.cli.main", 0),
        ("import gpuwatch.agent.agent, gpuwatch.cli.agent", 0),
        ("import gpuwatch.remediation.service.remediator, gpuwatch.cli.remediator", 0),
        ("from gpuwatch.kube.transport import Transport; Transport('nowhere')", 0),
        ("import kubernetes", 1),
    ],
)
def test_nobody_pays_for_the_client_but_who_asks_an_api_server(what, loaded):
    assert subprocess.run([sys.executable, "-c", CODE.format(what)], check=False).returncode == loaded


def test_who_asked_for_no_verification_is_not_warned_of_it_on_a_screen(tmp_path):
    file = tmp_path / "config"
    file.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "users: [{name: u, user: {token: t}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:9', insecure-skip-tls-verify: true}}]\n"
    )
    assert Transport(str(file)).server == "https://127.0.0.1:9"
    warnings.warn("of urllib3, at each request", urllib3.exceptions.InsecureRequestWarning, stacklevel=1)
