"""`gpuwatch version` names this program, and the agent as it says of itself or why it does not."""

from gpuwatch import __version__
from tests.cli.commands import ask, run
from tests.model import views


def test_it_names_this_program_and_the_agent():
    shown = ask(views.healthy(), "version")
    assert shown.exit_code == 0
    own, agent = shown.stdout.splitlines()
    assert own.startswith(f"gpuwatch  {__version__} (gpuwatch-agent; Python 3.")
    assert agent.startswith(f"agent     {views.healthy().agent.version} (")
    assert agent.endswith("; driver 580.95.05)")


def test_without_an_agent_it_says_where_none_was(tmp_path):
    shown = run("version", env={"GPUWATCH_AGENT_SOCKET": str(tmp_path / "none.sock")})
    assert shown.exit_code == 0
    assert f"agent     no agent at {tmp_path}/none.sock (" in shown.stdout


def test_an_agent_that_does_not_answer_is_no_failure():
    shown = run("--source", "agent:http://127.0.0.1:1", "version")
    assert shown.exit_code == 0
    assert "agent     does not answer: " in shown.stdout
