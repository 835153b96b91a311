"""How commands end: the code says what was found, stderr says why, and no traceback is seen without asking."""

import contextlib
import json
import subprocess

import pytest

from gpuwatch.http.server import HttpServer, Response
from tests.cli.commands import ask, run, serving
from tests.cli.processes import COMMAND, environment, finish, interrupted, started
from tests.model import views
from tests.waiting import BOUND_SECONDS, until

NO_DRIVER = ("--source", "nvml", "--nvml-library", "/nowhere/libnvidia-ml.so.1")


@pytest.mark.parametrize(
    ("view", "code"), [(views.healthy, 0), (views.degraded, 3), (views.failing, 4), (views.empty, 5)]
)
def test_status_ends_with_the_verdict(view, code):
    assert ask(view(), "status").exit_code == code
    assert ask(view(), "status", "-o", "json").exit_code == code


@pytest.mark.parametrize(
    ("view", "nagios", "npd", "word"),
    [
        (views.healthy, 0, 0, "OK"),
        (views.degraded, 1, 1, "WARNING"),
        (views.failing, 2, 1, "CRITICAL"),
        (views.empty, 3, 2, "UNKNOWN"),
    ],
)
def test_status_speaks_to_other_monitors_in_their_codes(view, nagios, npd, word):
    told = ask(view(), "status", "--nagios")
    assert (told.exit_code, told.stdout.split()[:2]) == (nagios, ["GPU", word])
    assert len(told.stdout.splitlines()) == 1
    assert ask(view(), "status", "--npd").exit_code == npd


def test_a_monitor_that_cannot_read_is_unknown_to_other_monitors():
    assert run("--source", "agent:/nowhere.sock", "status", "--nagios").exit_code == 3
    assert run("--source", "agent:/nowhere.sock", "status", "--npd").exit_code == 2


@pytest.mark.parametrize(
    "command", [("status",), ("get", "gpus"), ("describe", "gpu", "0"), ("why",), ("metrics",), ("events",)]
)
def test_no_driver_is_5_and_points_to_the_simulator(command):
    ended = run(*NO_DRIVER, *command)
    assert ended.exit_code == 5
    assert ended.stderr.splitlines()[-1].startswith("gpuwatch: error: ")
    assert "try --source sim" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_a_process_ends_with_the_code_of_its_command():
    ended = finish("--source", "agent:/nowhere.sock", "status")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("gpuwatch: error: cannot reach the agent at /nowhere.sock")


@pytest.mark.parametrize(
    "args",
    [
        ("get",),
        ("get", "everything"),
        ("status", "--nagios", "--npd"),
        ("--source", "nvmll", "status"),
        ("--source", "capture", "status"),
        ("--source", "agent", "agent"),
        ("--config", "/nowhere.yaml", "config", "show"),
        ("sim", "run", "no-such-scenario"),
        ("get", "gpus", "--interval", "0"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_2_and_one_line(args):
    result = run(*args)
    assert result.exit_code == 2
    assert result.stderr.startswith("gpuwatch: error: ")
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def test_no_agent_is_1_and_says_what_to_do():
    result = run("--source", "agent:/nowhere/agent.sock", "status")
    assert result.exit_code == 1
    assert result.stderr == (
        "gpuwatch: error: cannot reach the agent at /nowhere/agent.sock; No such file or directory; "
        "start it with `gpuwatch agent`, or use --source nvml\n"
    )


def test_an_agent_that_keeps_us_out_is_6():
    server = HttpServer({"/api/v1/view": lambda _: Response(status=401, body=b"Unauthorized")}, listen="127.0.0.1:0")
    server.start()
    try:
        result = run("--source", f"agent:http://127.0.0.1:{server.port}", "status")
    finally:
        server.stop()
    assert result.exit_code == 6
    assert "put user and password into the URL" in result.stderr


def test_an_error_comes_as_json_too_when_json_is_asked_for():
    result = run("--source", "agent:/nowhere.sock", "get", "gpus", "-o", "json")
    error = json.loads(result.stderr.splitlines()[-1])["error"]
    assert error["code"] == 1
    assert error["message"] == "cannot reach the agent at /nowhere.sock"
    assert error["hint"].startswith("start it")


def test_a_traceback_is_seen_only_by_who_asks():
    assert "Traceback" not in run("-v", "--source", "agent:/nowhere.sock", "status").stderr
    assert "Traceback" in run("-vv", "--source", "agent:/nowhere.sock", "status").stderr


def test_a_reader_that_goes_away_is_no_error():
    with serving(views.failing()) as path:
        command = [*COMMAND, "--source", f"agent:{path}", "get", "gpus", "-o", "json"]
        ran = subprocess.run(
            ["bash", "-c", '"$@" | head -c 1', "-", *command],
            capture_output=True,
            env=environment(),
            timeout=BOUND_SECONDS,
            check=False,
        )
    assert ran.stdout == b"{"
    assert ran.stderr == b""


def in_shell(line, *args):
    """How `gpuwatch ARGS` ends in a line of bash, where it is "$@"."""
    command = ["bash", "-c", line, "-", *COMMAND, *args]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment(), timeout=BOUND_SECONDS, check=False
    )


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_change_no_verdict(closed):
    """A reader of GPUs is started meanwhile: none of its pipes becomes the stream of another."""
    ended = in_shell(f'"$@" {closed}', "--source", "sim", "status")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_full_disk_is_no_bug():
    ended = in_shell('"$@" > /dev/full', "xid", "list")
    assert ended.returncode == 1
    assert "the output cannot be written; No space left on device; make room" in ended.stderr


@pytest.mark.parametrize(
    "args",
    [
        ("--source", "capture:\udcff", "status"),
        ("--nvml-library", "\udcff", "--source", "nvml", "status"),
        ("node", "status", "--node", "\udcff", "--kubeconfig", "CONFIG"),
    ],
    ids=["source", "library", "node"],
)
def test_a_name_that_is_no_utf_8_is_wrong_usage_at_once(args, tmp_path):
    (config := tmp_path / "config").write_text(
        "{current-context: a, contexts: [{name: a, context: {cluster: a}}], "
        "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    ended = run(*(str(config) if arg == "CONFIG" else arg for arg in args))
    assert (ended.exit_code, "\\udcff'; it is not UTF-8" in ended.stderr) == (2, True)


@contextlib.contextmanager
def going_on(view, *args, **served):
    """A command that goes on until it is interrupted."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with serving(view, **served) as path, started("--source", f"agent:{path}", *args, **pipes) as process:
        yield process


def test_ctrl_c_is_130_and_silent():
    with going_on(views.healthy(), "get", "gpus", "--watch", "--interval", "0.1") as process:
        assert process.stdout.readline().startswith("GPU")
        code, _, errors = interrupted(process)
    assert code == 130
    assert errors.strip() == ""


def test_watching_prints_one_document_a_line():
    with going_on(views.healthy(), "get", "gpus", "--watch", "--interval", "0.1", "-o", "json") as process:
        documents = [json.loads(process.stdout.readline()) for _ in range(3)]
    assert [document["kind"] for document in documents] == ["GpuList"] * 3


def test_events_are_followed_without_repeating_them():
    served = {"events": views.some_events(), "followed": []}
    with going_on(views.failing(), "xid", "watch", "-o", "json", **served) as process:
        lines = [process.stdout.readline() for _ in range(2)]
        until(lambda: len(served["followed"]) >= 3)
        _, rest, _ = interrupted(process)
    assert [json.loads(line)["xid"] for line in lines] == [31, 79]
    assert rest == ""
