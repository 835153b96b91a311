"""Whose judgement a look shows: it finds the agent by the agent's own settings, and says on stderr what it asked."""

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.commands import run
from tests.fakes.libnvml import FakeDriver
from tests.model.view_factory import full_view

VIEW = full_view(2)
LOOKS = (
    ("status",),
    ("get", "gpus"),
    ("get", "findings"),
    ("describe", "gpu", "0"),
    ("events",),
    ("metrics",),
)


def configured(place: Path, **agent: object) -> tuple[str, str]:
    """The options that name a file with these settings of `agent:`."""
    file = place / "gpuwatch.yaml"
    file.write_text(yaml.safe_dump({"agent": agent, "state_dir": ""}))
    return "--config", str(file)


@pytest.mark.parametrize("look", LOOKS, ids=" ".join)
def test_a_socket_that_only_the_file_names_is_asked(agent, tmp_path: Path, look: tuple[str, ...]):
    socket = agent(VIEW)
    result = run(*configured(tmp_path, socket=str(socket)), *look)
    assert f"asked the agent at {socket}\n" in result.stderr
    assert "read the driver" not in result.stderr


def test_source_agent_without_a_url_is_that_agent(agent, tmp_path: Path):
    socket = agent(VIEW)
    result = run(*configured(tmp_path, socket=str(socket)), "--source", "agent", "status")
    assert f"asked the agent at {socket}" in result.stderr


def test_the_variable_beats_the_file(agent, tmp_path: Path):
    socket, other = agent(VIEW), agent(full_view(1))
    named = {"GPUWATCH_AGENT_SOCKET": str(socket)}
    result = run(*configured(tmp_path, socket=str(other)), "status", env=named)
    assert f"asked the agent at {socket}\n" in result.stderr


def test_documents_stay_clean_and_quiet_is_quiet(agent, tmp_path: Path):
    options = configured(tmp_path, socket=str(agent(VIEW)))
    result = run(*options, "status", "-o", "json")
    assert json.loads(result.stdout)["kind"] == "Status"
    assert run(*options, "-q", "status").stderr == ""
    assert run(*options, "status", "--nagios").stderr == ""


def test_without_an_agent_the_driver_is_read_and_the_socket_named(tmp_path: Path):
    missing = tmp_path / "missing.sock"
    with FakeDriver(tmp_path / "driver", gpus=1) as driver:
        options = (*configured(tmp_path, socket=str(missing)), "--nvml-library", str(driver.library))
        result = run(*options, "get", "gpus", env=driver.env)
    assert f"read the driver: no agent at {missing} (No such file or directory)" in result.stderr
    assert "asked the agent" not in result.stderr


def test_a_wrong_file_is_an_error_also_where_an_agent_answers(agent, tmp_path: Path):
    result = run(*configured(tmp_path, sockets="x"), "status", env={"GPUWATCH_AGENT_SOCKET": str(agent(VIEW))})
    assert result.exit_code == 2
    assert "did you mean agent.socket?" in result.stderr
