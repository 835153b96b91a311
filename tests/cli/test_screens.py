"""Every screen equals its file, fits its terminal, and reads without colours and without Unicode."""

import re

import pytest
from msgspec.structs import replace

from gpuwatch.model.finding import Finding, Severity
from gpuwatch.model.snapshot import GpuProcess
from gpuwatch.model.workload import ProcessOwner
from gpuwatch.model.xid import XidCount
from tests.cli.commands import ask, run
from tests.cli.tune.goldens import FOLDER, SCREENS, Screen
from tests.model import views

TABLES = [screen for screen in SCREENS if not {"wide", "json", "yaml", "apply", "--nagios"} & set(screen.args)]
AGED = re.compile(r"\d+[smhd] ago")


@pytest.mark.parametrize("screen", SCREENS, ids=lambda screen: screen.name)
def test_a_screen_is_as_its_file(screen: Screen):
    assert screen.draw() == screen.path.read_text(), "if the change is meant: python -m tests.cli.tune.goldens"


def test_no_file_is_left_over():
    assert {path.name for path in FOLDER.iterdir()} == {screen.path.name for screen in SCREENS}


@pytest.mark.parametrize("screen", [s for s in TABLES if s.args[0] != "describe"], ids=lambda screen: screen.name)
def test_a_screen_fits_its_terminal(screen: Screen):
    """Its file does, and another test compares the two."""
    assert max(len(line) for line in screen.path.read_text().splitlines()) <= screen.width


def test_every_gpu_has_its_line_even_a_lost_one():
    lines = ask(views.failing(), "status").stdout.splitlines()
    assert [line.split()[:2] for line in lines[3:6]] == [["0", "healthy"], ["1", "degraded"], ["2", "failed"]]


def test_unknown_is_a_dash_and_never_a_zero():
    lost = ask(views.failing(), "get", "gpus").stdout.splitlines()[3]
    assert lost.split()[2:5] == ["–", "–", "–"]


def test_colour_comes_on_demand_and_says_nothing_that_words_do_not():
    plain = ask(views.failing(), "status").stdout
    colored = ask(views.failing(), "--color", "always", "status").stdout
    assert "\x1b[1;31mfailed" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored).splitlines() == plain.splitlines()


def test_a_terminal_without_unicode_gets_ascii(monkeypatch):
    from click.testing import CliRunner

    from gpuwatch.cli.main import cli
    from tests.cli.commands import serving

    with serving(views.failing()) as path:
        result = CliRunner(charset="ascii").invoke(cli, ["--source", f"agent:{path}", "status"], env={"COLUMNS": "80"})
    assert result.exit_code == 4
    assert result.stdout.isascii()
    assert "3 x NVIDIA" in result.stdout
    assert "->" in result.stdout


def test_a_pipe_gets_full_names(agent):
    result = run("--source", f"agent:{agent(views.healthy())}", "get", "pods", env={"COLUMNS": None})
    assert "llama-3-pretrain-worker-0-7b9c5d" in result.stdout


def test_only_the_wanted_gpus_are_listed():
    for wanted in ("2", views.uuid(2), "0000:1d:00", "GPU-00000002"):
        lines = ask(views.failing(), "get", "gpus", "--gpu", wanted).stdout.splitlines()
        assert [line.split()[0] for line in lines[1:]] == ["2"]


def test_a_gpu_nobody_has_is_a_usage_error_that_names_those_there_are():
    result = ask(views.failing(), "get", "gpus", "--gpu", "0,7")
    assert result.exit_code == 2
    assert "no GPU matches '7'; this node has GPUs 0, 1, 2" in result.stderr


def test_an_empty_list_is_reported_on_stderr_and_quiet_silences_it():
    result = ask(views.healthy(), "get", "xids")
    assert (result.stdout, result.stderr.strip(), result.exit_code) == ("", "No XIDs found.", 0)
    assert ask(views.healthy(), "-q", "get", "xids").stderr == ""


def test_the_fault_is_named_rather_than_the_advice_that_follows_it():
    fault = XidCount(uuid=views.uuid(2), pci="0000:1d:00", xid=79, count=1, last=views.AT - 240)
    advice = replace(fault, xid=154, last=views.AT - 180)
    for xids, told in (((fault, advice), "79 4m ago"), ((advice,), "154 3m ago")):
        assert told in ask(replace(views.failing(), xids=xids), "get", "gpus").stdout


@pytest.mark.parametrize(("name", "told"), [("ada", "ada: python"), (None, "1002: python")])
def test_a_plain_process_is_reported_with_its_user(name: str | None, told: str):
    process = GpuProcess(pid=7, type="compute", name="python")
    view = views.healthy()
    gpus = (replace(view.snapshot.gpus[0], processes=(process,)),)
    owner = ProcessOwner(pid=7, start_time=1, name="python", uid=1002, user=name)
    view = replace(view, snapshot=replace(view.snapshot, gpus=gpus), owners=(owner,))
    assert told in ask(view, "get", "processes").stdout


def test_a_kernel_log_that_is_off_is_hinted_with_the_remedy():
    assert ask(views.healthy(), "status").stderr == (
        "hint: kmsg is off; permission denied; give the container CAP_SYSLOG\n"
    )


def test_what_is_true_of_several_gpus_is_reported_once():
    brake = Finding(check="hw_power_brake", severity=Severity.WARNING, message="less power", action="check supplies")
    findings = tuple(replace(brake, gpu=views.uuid(index)) for index in (0, 1, 2))
    shown = replace(views.healthy(), judgement=replace(views.healthy().judgement, findings=findings))
    text = ask(shown, "status").stdout
    assert re.findall(r"^! (.*?)  *warning", text, re.M) == ["gpus 0-2"]
    assert text.count("check supplies") == 1
