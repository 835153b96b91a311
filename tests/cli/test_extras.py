"""An install without an extra says which one a command needs, and all else works."""

import sys

import pytest

from gpuwatch import DISTRIBUTION
from tests.cli.commands import ask, run
from tests.model import views

EXTRA = f"pip install '{DISTRIBUTION}[kubernetes]'"
COMMANDS = (
    ("node", "status", "--node", "gpu-1"),
    ("node", "plan", "--node", "gpu-1"),
    ("node", "quarantine", "--node", "gpu-1", "--yes"),
    ("remediator", "--mode", "enforce", "--node-name", "gpu-1"),
)


@pytest.fixture(autouse=True)
def kubeconfig(monkeypatch, tmp_path):
    """As Python finds it, and a kubeconfig that it would read."""
    for name in [name for name in sys.modules if name.split(".")[0] == "kubernetes"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kubernetes", None)
    file = tmp_path / "kubeconfig"
    file.write_text("{apiVersion: v1, kind: Config}")
    return str(file)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_that_needs_the_api_server_names_the_extra(command, kubeconfig):
    ended = run(*command, "--kubeconfig", kubeconfig)
    assert ended.exit_code == 2, ended.stderr
    (error,) = (line for line in ended.stderr.splitlines() if line.startswith("gpuwatch: error: "))
    assert "Kubernetes client" in error
    assert error.endswith(EXTRA)


def test_commands_that_read_need_no_extra():
    assert ask(views.healthy(), "status").exit_code == 0
