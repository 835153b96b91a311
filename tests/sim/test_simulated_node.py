"""Whole commands over a simulated node: agent, look, disturb, record, tell the story. Real processes throughout."""

import contextlib
import json
import os
import re
import signal
import subprocess

import pytest

from gpuwatch.sim.directory import end
from gpuwatch.sim.world import World
from tests.cli.commands import run
from tests.cli.processes import finish, interrupted, started
from tests.waiting import BOUND_SECONDS, until


@pytest.fixture
def places(tmp_path):
    """Directory of the node and socket of its agent."""
    return tmp_path / "node", tmp_path / "agent.sock"


@pytest.fixture
def agent(places):
    """`agent()` starts `gpuwatch agent` on a simulated node; gives the process and what it said."""
    directory, socket = places
    with contextlib.ExitStack() as stack:

        def begin():
            command = (
                "--source", "sim:healthy", "agent", "--listen", "127.0.0.1:0", "--socket", str(socket),
                "--sim-dir", str(directory), "--interval", "0.2",
            )  # fmt: skip
            process = stack.enter_context(started(*command, stderr=subprocess.PIPE, text=True))
            said = []
            for line in iter(process.stderr.readline, ""):  # a busy machine may have warned before
                said.append(line)
                if line.startswith("try"):
                    break
            until(lambda: len(run_on(socket, "get", "gpus", "-o", "name").stdout.split()) == 8)
            return process, "".join(said)

        yield begin


def run_on(socket, *args: str):
    return run("--source", f"agent:{socket}", *args)


def test_an_agent_says_where_to_look_and_answers_there(agent, places):
    _, said = agent()
    port = re.search(r"http://127\.0\.0\.1:(\d+)/metrics", said)
    assert port
    assert str(places[1]) in said
    assert f"gpuwatch --source agent:{places[1]} status" in said
    until(lambda: "8 × NVIDIA H100" in run_on(places[1], "status").stdout)
    refused = run("--source", f"agent:http://127.0.0.1:{port[1]}", "status")
    assert (refused.exit_code, "agent.api: open" in refused.stderr) == (6, True)


def test_an_agent_ends_by_sigterm_with_0_and_takes_its_socket_along(agent, places):
    process, _ = agent()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=BOUND_SECONDS)
    assert process.returncode == 0
    assert not places[1].exists()


def test_a_second_agent_on_the_same_socket_is_refused(agent, places):
    agent()
    elsewhere = ("--sim-dir", str(places[0].with_name("second")))
    second = finish("--source", "sim:t4", "agent", "--listen", "127.0.0.1:0", "--socket", str(places[1]), *elsewhere)
    assert second.returncode == 2
    assert "answers there" in second.stderr


def test_what_is_injected_is_seen(agent, places):
    directory, socket = places
    agent()
    until(lambda: run_on(socket, "status").exit_code == 0)  # what was never there cannot be lost
    for action in (("xid", "gpu=4", "xid=31"), ("lose", "gpu=3")):
        assert run("sim", "inject", *action, "--dir", str(directory)).exit_code == 0
    until(lambda: "gpu_lost" in run_on(socket, "get", "findings").stdout)  # its XID may be told before
    assert run_on(socket, "status").exit_code == 4
    until(lambda: " 31 " in run_on(socket, "get", "xids").stdout)

    def described():
        return json.loads(run_on(socket, "describe", "gpu", "3", "-o", "json").stdout)["items"][0]

    until(lambda: described()["state"] == "lost", "the driver says so, too")  # the finding may stand on the XID alone
    lost = described()
    assert (lost["health"], lost["name"]) == ("failed", "NVIDIA H100 80GB HBM3")
    assert "ml-research/llama-pretrain-0" in lost["users"]
    happened = json.loads(run_on(socket, "events", "-o", "json").stdout)["items"]
    assert 31 in {event["xid"] for event in happened if event["kind"] == "xid"}


def test_a_running_node_is_joined_by_its_directory(tmp_path):
    directory = tmp_path / "node"
    with started("sim", "run", "t4", "--dir", str(directory), stderr=subprocess.PIPE, text=True) as node:
        until((directory / "node.json").exists)
        until(lambda: run("sim", "inject", "lose", "gpu=1", "--dir", str(directory)).exit_code == 0)
        until(lambda: run("--source", f"sim:{directory}", "status").exit_code == 4)
        assert interrupted(node)[0] == 130


def test_a_pipe_in_the_place_of_a_folder_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "etc")
    writer = os.open(tmp_path / "etc", os.O_RDWR)  # without one, this test would wait, too
    try:
        end(tmp_path)
    finally:
        os.close(writer)
    assert list(tmp_path.iterdir()) == []


def test_a_node_started_as_a_job_of_a_script_ends_by_sigterm(tmp_path):
    """Shells without job control start what they put in the background with SIGINT ignored."""
    command = ("sim", "run", "t4", "--dir", str(tmp_path / "node"))
    with contextlib.ExitStack() as stack:
        ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            node = stack.enter_context(started(*command, stderr=subprocess.PIPE, text=True))
        finally:
            signal.signal(signal.SIGINT, ignored)
        assert any("disturb it" in line for line in node.stderr)
        assert (tmp_path / "node/node.json").exists()
        node.terminate()
        node.communicate(timeout=BOUND_SECONDS)
        assert node.returncode == 130
    assert not (tmp_path / "node/node.json").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("xdi", "gpu=1"), "did you mean xid?"),
        (("xid", "gpu"), "is no KEY=VALUE"),
        (("xid", "gpu=[1"), "cannot read the value of gpu"),
        (("xid", "gpuu=1", "xid=1"), "gpu"),
    ],
)
def test_a_wrong_injection_is_2(args, said, tmp_path):
    with World("t4", tmp_path):
        result = run("sim", "inject", *args, "--dir", str(tmp_path))
    assert result.exit_code == 2
    assert said in result.stderr


def test_an_injection_into_nothing_is_5(tmp_path):
    result = run("sim", "inject", "lose", "gpu=1", "--dir", str(tmp_path))
    assert result.exit_code == 5
    assert "gpuwatch sim run" in result.stderr


def test_scenarios_are_listed_the_default_first():
    names = run("sim", "list", "-o", "name").stdout.split()
    assert names[0] == "healthy"
    assert [item["name"] for item in json.loads(run("sim", "list", "-o", "json").stdout)["items"]] == names


def test_a_recording_stands_in_for_its_node(tmp_path):
    file = tmp_path / "node.capture"
    recorded = run("--source", "sim:t4", "capture", str(file), "--samples", "3", "--interval", "0.1", "--mask")
    assert recorded.exit_code == 0, recorded.stderr
    assert "4 GPUs" in recorded.stderr
    replayed = run("--source", f"capture:{file}", "status")
    assert "4 × Tesla T4" in replayed.stdout
    real = json.loads(run("--source", "sim:t4", "get", "gpus", "-o", "json").stdout)["items"]
    masked = json.loads(run("--source", f"capture:{file}", "get", "gpus", "-o", "json").stdout)["items"]
    assert {gpu["uuid"] for gpu in real}.isdisjoint(gpu["uuid"] for gpu in masked)


def test_an_agent_cannot_be_recorded(tmp_path):
    assert run("--source", "agent", "capture", str(tmp_path / "x")).exit_code == 2
