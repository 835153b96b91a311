"""No text of others reaches a terminal as it is: every command, every form of output, with a terminal and without.

The node is an attacker's: names of processes, pods, nodes and GPUs, kernel text, files of a tree, labels and answers of
servers all carry HOSTILE. Whatever a command prints, and wherever it ends, no control character but line ends is in it.
"""

import contextlib
import io
import json
import logging
import os
import pty
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from gpuwatch.cli.console.commands import COMMANDS
from gpuwatch.cli.console.lazy import LazyGroup
from gpuwatch.cli.console.session import Session
from gpuwatch.cli.main import cli
from gpuwatch.consents.file import ConsentsFile
from gpuwatch.http.server import HttpServer, Response
from gpuwatch.model.finding import Finding, Remedy, Severity
from gpuwatch.model.snapshot import Host as HostIdentity
from gpuwatch.model.text import visible
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.service.state_dir import StopRequest, TunerStatus, TunerStopFile
from tests import fast_yaml
from tests.cli.commands import run, serving
from tests.cli.look.test_top import read_until
from tests.cli.processes import OURS, started
from tests.cli.recommend import advice
from tests.cli.tune import tuner_states
from tests.diagnose.hosts import Host
from tests.model import views
from tests.model.hostile import HOSTILE, MARK, hostile, unsafe
from tests.seeds import a_third
from tests.tuning.service.tuning import limit
from tests.waiting import BOUND_SECONDS

NODE = "gpu-node-07"
LINE = f"NVRM: Xid (PCI:0000:1b:00): 79, pid={HOSTILE}, name={HOSTILE}".replace("\n", "\x1e")
TAKEN = re.sub("[^\t\r\x20-\x7e\x85\xa0-\U0010ffff]", "", HOSTILE)
"""What YAML takes of it, also in a key: the other control characters are refused before any text is shown."""
ASK = ("--source", "agent:{socket}")
KUBE = ("--node", NODE, "--kubeconfig", "{kubeconfig}", "--agent", "{socket}")
BROKEN = ("--node", NODE, "--kubeconfig", "{broken}", "--agent", "none")
STATE = ("--state-dir", "{state}")
TREE = ("diagnose", "--root", "{tree}", "--budget", "60s")


def forms(*args: str, outputs: tuple[str, ...] = ("table", "wide", "json", "yaml", "name")) -> list[tuple[str, ...]]:
    return [(*args, "-o", output) for output in outputs]


DOCUMENTS = ("table", "json", "yaml")
ROWS: dict[str, list[tuple[str, ...]]] = {
    "status": [*forms(*ASK, "status"), (*ASK, "status", "--nagios"), (*ASK, "status", "--npd")],
    "top": [(*ASK, "top", "--once")],
    "get": [
        row
        for resource in ("gpus", "processes", "pods", "mig", "nvlinks", "findings", "xids")
        for row in forms(*ASK, "get", resource)
    ],
    "describe": [
        *forms(*ASK, "describe", "gpu", "0", outputs=DOCUMENTS),
        *forms(*ASK, "describe", "pod", HOSTILE, outputs=DOCUMENTS),
    ],
    "why": forms(*ASK, "why", "--seconds", "0", outputs=DOCUMENTS),
    "diagnose": [
        *forms(*TREE),
        (*TREE, "--expect", "{nothing}"),
        ("diagnose", "--root", HOSTILE.replace("\0", "")),
    ],
    "xid explain": [("xid", "explain", LINE), ("xid", "explain", HOSTILE), ("xid", "explain", LINE, "-o", "yaml")],
    "xid list": [("xid", "list", "--category", HOSTILE)],
    "xid parse": [("xid", "parse", "{kernel_log}"), ("xid", "parse", f"{{nothing}}{HOSTILE[:20]}")],
    "xid watch": [(*ASK, "xid", "watch"), (*ASK, "xid", "watch", "-o", "json")],
    "events": [
        *forms(*ASK, "events", outputs=("table", "wide", "json", "yaml")),
        *forms(*ASK, "events", "--watch", outputs=DOCUMENTS),
    ],
    "node status": [*forms("node", "status", *KUBE), ("node", "status", *BROKEN)],
    "node plan": [*forms("node", "plan", *KUBE, outputs=DOCUMENTS), ("node", "plan", *BROKEN)],
    "node quarantine": [("node", "quarantine", "--yes", "--reason", HOSTILE, *KUBE)],
    "node validate": [("node", "validate", HOSTILE, *STATE), (*ASK, "node", "validate", HOSTILE, *STATE)],
    "node release": [("node", "release", "--yes", "--reason", HOSTILE, *KUBE), ("node", "release", "--yes", *BROKEN)],
    "tune status": forms(*ASK, "tune", "status", *STATE),
    "tune plan": forms(*ASK, "tune", "plan", *STATE),
    "tune stop": [
        ("tune", "stop", *STATE, "--wait", "0"),
        ("tune", "stop", "--reason", HOSTILE, *STATE, "--wait", "0"),
    ],
    "tune resume": [("tune", "resume", *STATE)],
    "tune restore": [("--nvml-library", f"/nowhere/{HOSTILE[:20]}", "tune", "restore", *STATE)],
    "recommend": [
        *forms(*ASK, "recommend", outputs=("table", "wide", "json", "yaml", "csv", "name", "apply")),
        ("recommend", "--from-prometheus", "{prometheus}"),
        (*ASK, "recommend", "-n", HOSTILE),
    ],
    "repaired": [("--source", f"agent:{HOSTILE[:30]}", "repaired", "0"), ("repaired", HOSTILE)],
    "progress": [("progress", "5", "--socket", HOSTILE), ("progress", HOSTILE)],
    "agent": [("--config", "{config}", "agent"), ("agent", "--listen", HOSTILE)],
    "remediator": [
        ("remediator", "--once", "--node-name", NODE, "--kubeconfig", "{kubeconfig}", "--agent", "{path}", *STATE),
        ("remediator", "--release", "--node-name", NODE, "--kubeconfig", "{broken}", *STATE),
    ],
    "repairer": [
        ("repairer", "--once", "--mode", HOSTILE, *STATE),
        ("repairer", "--once", "--mode", "observe", "--agent", "{path}", *STATE),
    ],
    "serve": [("--source", "capture:{kernel_log}", "serve"), ("--source", f"capture:{HOSTILE[:20]}", "serve")],
    "tuner": [("--config", "{config}", "tuner"), ("--config", "{taken}", "tuner")],
    "demo": [("demo", "--listen", HOSTILE)],
    "metrics": [(*ASK, "metrics"), (*ASK, "metrics", "--openmetrics")],
    "metrics check": [
        ("metrics", "check", "--prometheus", "{prometheus}"),
        ("metrics", "check", "--prometheus", HOSTILE),
        ("metrics", "check", "--prometheus", "http://127.0.0.1:1", "--header", HOSTILE),
    ],
    "metrics list": [("metrics", "list", "-o", HOSTILE)],
    "capture": [("--source", f"sim:{HOSTILE[:20]}", "capture", "{nothing}")],
    "sim list": [("sim", "list", "-o", HOSTILE)],
    "sim run": [("sim", "run", HOSTILE)],
    "sim inject": [
        ("sim", "inject", HOSTILE, text, "--dir", "{nothing}") for text in (f"gpu={HOSTILE}", f"{HOSTILE}=[")
    ],
    "sim fleet": [("sim", "fleet", "--budget", HOSTILE)],
    "policy check": [("policy", "check", "{config}"), ("policy", "check", "{taken}")],
    "policy test": [
        *forms("policy", "test", "{views}", outputs=DOCUMENTS),
        ("policy", "test", f"sim:{HOSTILE[:20]}"),
        ("policy", "test", "{kernel_log}"),
    ],
    "config show": [("--config", "{config}", "config", "show"), ("--config", "{taken}", "config", "show")],
    "config check": [
        ("--config", "{config}", "config", "check"),
        ("config", "check", "{config}"),
        ("config", "check", "{taken}"),
        ("config", "check", "{notyaml}"),
    ],
    "config schema": [("config", "schema", HOSTILE)],
    "version": [(*ASK, "version")],
    "completion": [("completion", HOSTILE)],
}
"""Command -> command lines about the hostile node. `{name}` is a member of Attacker."""

SAYS_NOTHING_OF_OTHERS = {"node validate"}  # it refuses the view of another boot before it names anything in it


def commands(group: Any = cli, before: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command of the tables that does something."""
    for name in group.entries:
        command = group.get_command(None, name)
        if isinstance(command, LazyGroup):
            yield from commands(command, (*before, name))
        if not isinstance(command, LazyGroup) or command.invoke_without_command:
            yield " ".join((*before, name))


def test_every_command_is_walked():
    assert set(ROWS) == set(commands())
    assert {row.split()[0] for row in ROWS} == {entry.name for entry in COMMANDS}


class Attacker(NamedTuple):
    """What the command lines name."""

    socket: Path
    path: Path
    kubeconfig: Path
    broken: Path
    state: Path
    tree: Path
    nothing: Path
    kernel_log: Path
    config: Path
    taken: Path
    notyaml: Path
    views: Path
    prometheus: str


def sick():
    """A node whose every text is hostile; the names that tie it to its Node are as they were."""
    view = views.healthy()
    lost = Finding(
        check="gpu_lost", severity=Severity.CRITICAL, message="fell off the bus", gpu=views.uuid(2), xid=79,
        since=views.AT, last=views.AT, remedy=Remedy.REBOOT_NODE, evidence={"a": "b"},
        pods=views.failing().judgement.findings[0].pods,
    )  # fmt: skip
    at, host = time.time(), HostIdentity(boot_id=f"boot-of-{NODE}")
    snapshot = replace(view.snapshot, at=at, node=NODE, host=host)
    whole = replace(view, snapshot=snapshot, judgement=replace(view.judgement, findings=(lost,)))
    return hostile(whole, spare={"gpu_lost"})


def tree(folder: Path) -> Path:
    """A recorded tree whose files and their names are hostile."""
    host = Host(folder)
    gpuwatch = host.root / "gpuwatch"
    (gpuwatch / "view.json").write_bytes(msgspec.json.encode(hostile(host.view)))
    if host.cluster is not None:
        (gpuwatch / "cluster.json").write_bytes(msgspec.json.encode(hostile(host.cluster)))
    with (gpuwatch / "kernel.log").open("a", newline="") as log:
        log.write(f"[ 2000.000001] {LINE}\n[ 2000.000002] nvidia: {HOSTILE}\n")
    for path in ("etc/os-release", "etc/containerd/config.toml", "proc/driver/nvidia/version", "proc/modules"):
        with (host.root / path).open("a", newline="") as file:
            file.write(HOSTILE)
    name = HOSTILE.replace("\0", "").replace("/", "").encode() + b"\xff"
    for folder_of in ("etc/modprobe.d", "etc/cdi"):
        place = os.fsencode(host.root / folder_of)
        os.makedirs(place, exist_ok=True)
        Path(os.fsdecode(place + b"/" + name + b".conf")).write_text(
            f"blacklist {HOSTILE}\noptions nvidia x={HOSTILE}\n"
        )
    return host.root


def cluster() -> SimulatedCluster:
    """One whose Node carries what anybody may write."""
    made = SimulatedCluster()
    made.add_namespace("gpuwatch")
    made.add_node(NODE, labels={"nvidia.com/gpu.present": "true"})
    node = made.get("nodes", "", NODE)
    assert node is not None
    node["metadata"]["annotations"] = {f"a/{HOSTILE}": HOSTILE, "gpuwatch.io/owner": HOSTILE}
    taints = [{"key": "gpuwatch.io/gpu-fault", "value": HOSTILE, "effect": f"NoSchedule{HOSTILE}"}]
    condition = {"type": "GPUHealthy", "status": "False", "reason": HOSTILE, "message": HOSTILE}
    conditions = [*node["status"].get("conditions", ()), condition]
    made.put("nodes", {**node, "spec": {"taints": taints}, "status": {**node["status"], "conditions": conditions}})
    return made


@pytest.fixture
def attacker(surrounded: Attacker) -> Attacker:
    """With the stop of somebody else in force, which `tune resume` takes away."""
    TunerStopFile(surrounded.state).put(StopRequest(by=HOSTILE, at=time.time(), why=HOSTILE))
    return surrounded


@pytest.fixture(scope="module")
def surrounded(tmp_path_factory) -> Iterator[Attacker]:
    place = tmp_path_factory.mktemp("hostile")
    view, events = sick(), hostile(views.some_events())
    state = place / "state"
    state.mkdir()
    TunerStatus(state).write(replace(hostile(tuner_states.enforcing()), at=time.time()))
    ConsentsFile(state).write(hostile(tuner_states.consents()))
    SettingsRecord(state).add(limit(views.uuid(0)))
    files = {name: place / name for name in ("kernel_log", "config", "taken", "notyaml", "views")}
    files["kernel_log"].write_text(f"[ 1.0] {LINE}\n[ 2.0] {HOSTILE}\n", newline="")
    files["config"].write_text(json.dumps({"agent": {HOSTILE: HOSTILE}}))
    files["taken"].write_text(json.dumps({"agent": {TAKEN: TAKEN}}))
    files["notyaml"].write_text(f"a: [{HOSTILE}")
    files["views"].write_bytes(msgspec.json.encode(view) + b"\n")
    error = json.dumps({"status": "error", "errorType": HOSTILE, "error": HOSTILE, "message": HOSTILE}).encode()
    refusing = HttpServer({path: lambda _: Response(status=500, body=error) for path in PATHS}, listen="127.0.0.1:0")
    refusing.start()
    url = f"http://127.0.0.1:{refusing.port}"
    broken = place / "broken"
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [context]}
    config |= {"clusters": [{"name": "c", "cluster": {"server": url}}], "users": [{"name": "u", "user": {}}]}
    broken.write_text(json.dumps(config))
    try:
        with (
            serving(view, events, f'm{{a="{HOSTILE}"}} 1\n'.encode(), hostile(advice.everything())) as socket,
            SimulatedApiServer(cluster(), folder=place) as server,
        ):
            kubeconfig = server.kubeconfig("admin")
            named = {"socket": socket, "path": socket, "kubeconfig": kubeconfig, "broken": broken, "state": state}
            yield Attacker(**named, **files, tree=tree(place / "tree"), nothing=place / "nothing", prometheus=url)
    finally:
        refusing.stop()


PATHS = (
    "/api/v1/query", "/api/v1/query_range", "/api/v1/status/buildinfo", f"/api/v1/nodes/{NODE}",
    "/apis/coordination.k8s.io/v1/namespaces/gpuwatch/leases", "/api/v1/label/__name__/values", "/api/v1/series",
)  # fmt: skip


@pytest.fixture(autouse=True)
def calm(monkeypatch):
    """Logs of one command line do not go to the streams of another."""
    for name in [name for name in os.environ if name.startswith(OURS)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    before = list(logging.getLogger().handlers)
    yield
    logging.getLogger().handlers[:] = before


def ends_at_a_pause(command: str, monkeypatch) -> None:
    """What watches ends at its first pause, as Ctrl-C ends it."""

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    if command in ("events", "xid watch"):
        monkeypatch.setattr("gpuwatch.cli.look.events.time.sleep", interrupt)


def filled(args: tuple[str, ...], attacker: Attacker) -> list[str]:
    members = attacker._asdict()
    return [next((arg.replace(f"{{{n}}}", str(members[n])) for n in members if f"{{{n}}}" in arg), arg) for arg in args]


@pytest.mark.parametrize("command", ROWS)
def test_nothing_foreign_reaches_a_pipe_as_it_is(command, attacker, monkeypatch):
    ends_at_a_pause(command, monkeypatch)
    shown = ""
    for args in ROWS[command]:
        ended = run("-v", *filled(args, attacker))
        assert unsafe(ended.stdout) == set(), args
        assert unsafe(ended.stderr) == set(), args
        assert "something went wrong inside gpuwatch" not in ended.stderr, args
        assert not any(line.lstrip().startswith("ROW") for line in ended.output.splitlines()), args
        shown += ended.stdout + ended.stderr
    assert MARK in shown or command in SAYS_NOTHING_OF_OTHERS


def on_terminal(args: list[str]) -> str:
    """What a terminal gets of one command line in this process."""
    ours, theirs = pty.openpty()
    parts: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # the other end was closed
            while data := os.read(ours, 1 << 16):
                parts.append(data)

    reader = threading.Thread(target=read)
    reader.start()
    with (
        io.TextIOWrapper(os.fdopen(theirs, "wb", 0), encoding="utf-8", write_through=True) as screen,
        contextlib.redirect_stdout(screen),
        contextlib.redirect_stderr(screen),
        contextlib.suppress(SystemExit),
    ):
        cli.main(args, "gpuwatch")
    reader.join()
    os.close(ours)
    return b"".join(parts).decode()


@pytest.mark.parametrize("command", a_third(ROWS))
def test_nothing_foreign_reaches_a_terminal_as_it_is(command, attacker, monkeypatch):
    ends_at_a_pause(command, monkeypatch)
    for args in ROWS[command]:
        shown = on_terminal(["--color", "always", *filled(args, attacker)])
        assert unsafe(shown, tty=True) == set(), args


def test_a_live_screen_draws_nothing_foreign_as_it_is(attacker):
    ours, theirs = pty.openpty()
    ends = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True}
    variables = {"TERM": "xterm", "LINES": "20"}
    with started("--source", f"agent:{attacker.socket}", "top", variables=variables, **ends) as process:
        drawn = read_until(ours, b"q quit")
        os.write(ours, b"q")
        drawn += read_until(ours, b"\x1b[?1049l")
        assert process.wait(BOUND_SECONDS) == 0
    os.close(ours)
    os.close(theirs)
    screen = re.sub(r"\x1b\[(?:\?1049[hl]|\?25[hl]|H)", "", drawn.decode())
    assert MARK in screen
    assert unsafe(screen, tty=True) == set()


@pytest.mark.parametrize("resource", ["gpus", "processes", "pods", "findings"])
def test_a_line_break_in_a_name_breaks_no_row(resource, attacker):
    rows = run("--source", f"agent:{attacker.socket}", "get", resource, "-o", "wide").stdout.splitlines()
    items = json.loads(run("--source", f"agent:{attacker.socket}", "get", resource, "-o", "json").stdout)["items"]
    assert len(rows) == len(items) + 1


def test_documents_keep_the_text_as_it_was(attacker):
    args = ("--source", f"agent:{attacker.socket}", "get", "processes", "-o")
    names = [item["name"] for item in json.loads(run(*args, "json").stdout)["items"]]
    assert any(name and name.endswith(HOSTILE) for name in names)
    assert [item["name"] for item in fast_yaml.load(run(*args, "yaml").stdout)["items"]] == names


def test_a_log_line_stays_one_line_and_a_traceback_is_indented(capsys):
    Session().start_logging()
    logging.getLogger("x").warning("pod %s", HOSTILE)
    try:
        raise ValueError("\n2026-01-01 00:00:00,000 ERROR forged")
    except ValueError:
        logging.getLogger("x").exception("it failed")
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.endswith(f"WARNING x: pod {visible(HOSTILE)}")
    assert rest[0].endswith("ERROR x: it failed")
    assert all(line.startswith("  ") for line in rest[1:])
