"""Command lines that the program prints can be copied: they begin with what this program has to be called here."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.cli.console.terminal import as_typed, program
from tests.cli.commands import run
from tests.cli.processes import environment, finish
from tests.waiting import until

STATUS = "try  gpuwatch status"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A script called gpuwatch in a folder `bin`, the working directory above it, started by its path from there."""
    script = tmp_path / "bin" / "gpuwatch"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\nfrom gpuwatch.cli.main import main\nmain()\n")
    script.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "argv", ["bin/gpuwatch"])
    return script


def test_a_program_off_the_path_is_called_by_its_path_from_the_working_directory(installed):
    assert program() == "bin/gpuwatch"
    assert as_typed(STATUS) == "try  bin/gpuwatch status"


def test_a_program_on_the_path_is_called_by_its_name(installed, monkeypatch):
    monkeypatch.setenv("PATH", f"{installed.parent}:/usr/bin")
    assert as_typed(STATUS) == STATUS


def test_another_program_of_the_name_on_the_path_is_not_taken_for_this_one(installed, monkeypatch):
    other = installed.parent.parent / "elsewhere" / "gpuwatch"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}:/usr/bin")
    assert program() == "bin/gpuwatch"


def test_a_program_beside_or_outside_the_working_directory_gets_a_path_that_works(installed, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(installed)])
    monkeypatch.chdir(installed.parent)
    assert program() == "./gpuwatch"
    monkeypatch.chdir("/")
    monkeypatch.setattr(sys, "argv", [f"/usr/../{installed}"])
    assert (Path("/") / program()).samefile(installed)


def test_a_path_with_a_blank_is_quoted(installed, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["my bin/gpuwatch"])
    assert shlex.split(program()) == ["my bin/gpuwatch"]


def test_a_module_is_called_through_its_interpreter(installed, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/gpuwatch/__main__.py"])
    assert program().endswith(" -m gpuwatch")
    assert shlex.split(program())[0].split("/")[-1] == Path(sys.executable).name


@pytest.mark.parametrize("argv", ["", "-c", "/usr/bin/pytest"])
def test_another_program_that_loads_the_package_prints_the_name(monkeypatch, argv):
    monkeypatch.setattr(sys, "argv", [argv])
    assert program() == "gpuwatch"


@pytest.mark.parametrize(
    "text",
    [
        "start it with `{} agent`, or use --source nvml",
        "gpuwatch: error: no such command 'x'; see {} xid --help",
        "replay with: {} --source capture:FILE status",
        "→ {} xid explain 79",
        "\x1b[36m{} node release\x1b[0m --node a; {} -v status",
        "a wrapped line ends with {}\n    tune resume",
        "dmesg | {} xid parse",
        "Usage: {} [OPTIONS] COMMAND",
    ],
)
def test_every_command_line_in_a_text_is_rewritten(installed, text):
    assert as_typed(text.replace("{}", "gpuwatch")) == text.replace("{}", "bin/gpuwatch")


@pytest.mark.parametrize(
    "text",
    [
        "gpuwatch asks again later",
        "what runs is gpuwatch's",
        "12:00:00  gpuwatch    taints gpu-node-1",
        "/run/gpuwatch status",
        "gpuwatch.yaml",
        "nothing on node a is gpuwatch's",
        "gpuwatch statuses",
        "my-gpuwatch status",
    ],
)
def test_other_mentions_of_the_name_stay(installed, text):
    assert as_typed(text) == text


def test_documents_keep_the_name_and_screens_and_errors_and_help_get_the_path(installed):
    refused = run("--source", "agent:/nowhere.sock", "get", "gpus", "-o", "json").stderr.splitlines()
    assert "start it with `bin/gpuwatch agent`" in refused[0]
    assert '"hint":"start it with `gpuwatch agent`' in refused[1]
    assert "see bin/gpuwatch xid --help" in run("xid", "nonsense").stderr
    assert "  bin/gpuwatch xid explain 79" in run("xid", "explain", "--help").stdout
    assert "To continue: bin/gpuwatch tune resume" in run("tune", "stop", "--state-dir", str(installed.parent)).stdout


def answered(typed: str, folder: Path, environ: dict[str, str]) -> subprocess.CompletedProcess[str] | None:
    """What the command line has printed; None while the agent has no View yet."""
    ran = subprocess.run(["sh", "-c", typed], cwd=folder, env=environ, capture_output=True, text=True, check=False)
    return None if "in a moment" in ran.stderr else ran


def test_what_an_agent_prints_can_be_typed_where_it_was_started(installed, tmp_path):
    """The agent is started as `make run` does it, and each command line it prints is run as it stands."""
    environ = environment(PATH="/usr/bin:/bin")
    places = ["--sim-dir", "sim", "--socket", "agent.sock", "--state-dir", "state"]
    command = ["bin/gpuwatch", "--source", "sim", "agent", "--listen", "127.0.0.1:0", *places]
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True) as agent:
        try:
            assert agent.stderr is not None
            line = next(line for line in agent.stderr if line.startswith("try "))
            typed = line.removeprefix("try").strip()
            ran = until(lambda: answered(typed, tmp_path, environ), "the agent has looked at the node")
        finally:
            agent.terminate()
            agent.communicate()
    assert re.match(r"bin/gpuwatch --source agent:agent\.sock status$", typed)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_module_off_the_path_says_how_it_was_started():
    ended = finish("--source", "agent:/nowhere.sock", "status", PATH=os.defpath)
    assert f"start it with `{shlex.quote(sys.executable)} -m gpuwatch agent`" in ended.stderr or (
        f"{Path(sys.executable).name} -m gpuwatch agent" in ended.stderr
    )
