"""Where a setting comes from: default, file, variable or option, the strongest last; and what a wrong one says."""

import json
import os
import subprocess
import sys

import pytest

from gpuwatch.cli.console.effective_config import OVERRIDES
from gpuwatch.config import Config
from tests import fast_yaml
from tests.cli.commands import run


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "gpuwatch.yaml"
    path.write_text("agent:\n  interval: 5\n  listen: :9999\nmetrics:\n  profiles: [native]\n")
    return path


def shown(*args: str, env: dict[str, str | None] | None = None) -> dict[str, tuple[str, str]]:
    """Key -> value and origin, as the table has them."""
    result = run(*args, env=env)
    assert result.exit_code == 0, result.stderr
    rows = [line.split(None, 1) for line in result.stdout.splitlines()]
    return {key: tuple(part.strip() for part in rest.rstrip().rsplit("  ", 1)) for key, rest in rows}


def test_everything_is_default_without_a_file():
    rows = shown("--config", "", "config", "show", env={"GPUWATCH_STATE_DIR": None})
    assert {origin for _, origin in rows.values()} == {"default"}
    assert rows["agent.listen"][0] == '":9400"'


def test_file_variable_and_option_win_in_this_order(file):
    env = {"GPUWATCH_AGENT_LISTEN": ":1111", "GPUWATCH_STATE_DIR": "/state"}
    rows = shown("--config", str(file), "config", "show", "--state-dir", "/other", env=env)
    assert rows["agent.interval"] == ("5.0", f"file {file}")
    assert rows["agent.listen"] == ('":1111"', "env GPUWATCH_AGENT_LISTEN")
    assert rows["state_dir"] == ('"/other"', "option --state-dir")
    assert rows["agent.socket"] == ('""', "default")


AS_ROOT = () if os.geteuid() == 0 else ("--map-root-user",)
IN_ITS_OWN_ETC = ("unshare", *AS_ROOT, "--mount", "sh", "-c", 'mount --bind "$0" /etc && exec "$@"')


@pytest.fixture
def machine(tmp_path):
    """Runs a command on a machine with that /etc/gpuwatch/gpuwatch.yaml."""
    probe = subprocess.run([*IN_ITS_OWN_ETC, tmp_path, "true"], check=False, capture_output=True, text=True)
    if probe.returncode:
        pytest.skip(f"no mount namespaces here: {probe.stderr.strip()}")

    def ran(text: str, *command: str) -> subprocess.CompletedProcess[str]:
        place = tmp_path / "etc/gpuwatch"
        place.mkdir(parents=True, exist_ok=True)
        (place / "gpuwatch.yaml").write_text(text)
        within = [*IN_ITS_OWN_ETC, place.parent, sys.executable, "-m", "gpuwatch", *command]
        return subprocess.run(within, check=False, capture_output=True, text=True)

    return ran


def test_the_machines_file_is_used_unless_another_is_named_or_none(machine, file):
    """A command in a pod, or on a machine with the unit, has the settings of the agent there."""

    def socket(*options):
        shown = machine("agent: {socket: /srv/agent.sock}", *options, "config", "show").stdout.splitlines()
        return next(line.split(None, 2)[1:] for line in shown if line.startswith("agent.socket "))

    assert socket() == ['"/srv/agent.sock"', "file /etc/gpuwatch/gpuwatch.yaml"]
    assert socket("--config", str(file)) == ['""', "default"]
    assert socket("--config", "") == ['""', "default"]


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("--source", "sim", "get", "gpus"), 0),
        (("xid", "explain", "79"), 0),
        (("--source", "sim", "tune", "plan"), 0),
        (("tune", "stop"), 2),
        (("agent",), 2),
        (("policy", "check"), 2),
        (("node", "release", "--node", "gpu-node-1"), 2),
    ],
)
def test_with_a_mistake_in_it_commands_that_read_continue_and_those_that_act_refuse(machine, command, code):
    found = machine("agnet: {}", *command)
    assert (found.returncode, "continuing with the defaults" in found.stderr) == (code, code == 0)
    assert "unknown key agnet in /etc/gpuwatch/gpuwatch.yaml" in found.stderr
    assert ("did you mean agent?, or --config '' to do without it" in found.stderr) == (code == 2)


def test_a_file_that_repeats_a_default_is_still_the_origin(file):
    assert shown("--config", str(file), "config", "show")["metrics.profiles"] == ('["native"]', f"file {file}")


def test_a_global_option_is_a_setting_too():
    rows = shown("--nvml-library", "/opt/libnvidia-ml.so.1", "config", "show")
    assert rows["sources.nvml_library"] == ('"/opt/libnvidia-ml.so.1"', "option --nvml-library")


def test_several_profiles_may_be_given():
    rows = shown("config", "show", "--profile", "native", "--profile", "dcgm-4.8")
    assert rows["metrics.profiles"] == ('["native","dcgm-4.8"]', "option --profile")
    rows = shown("config", "show", env={"GPUWATCH_AGENT_PROFILE": "native dcgm-4.8"})
    assert rows["metrics.profiles"] == ('["native","dcgm-4.8"]', "env GPUWATCH_AGENT_PROFILE")


def test_what_is_shown_as_yaml_can_be_used(file, tmp_path):
    saved = tmp_path / "saved.yaml"
    saved.write_text(run("--config", str(file), "config", "show", "-o", "yaml").stdout)
    assert fast_yaml.load(saved.read_text())["agent"]["interval"] == 5.0
    assert run("config", "check", str(saved)).exit_code == 0


def test_every_override_is_a_setting():
    keys = shown("config", "show")
    assert {row.path for row in OVERRIDES} <= set(keys)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("agnet: {}", "did you mean agent?"),
        ("agent: {intervall: 5}", "did you mean agent.interval?"),
        ("agent: {interval: soon}", "agent.interval"),
        ("agent: {interval: 0}", "use 0.1 to 3600"),
        ("metrics: {profiles: [dcgm]}", "use native, dcgm-4.8, dcgm-4.9"),
        ("metrics: {workload_labels: some}", "use info, inline"),
        ("- a list", "not a mapping"),
        ("a: [", "line 2; while parsing"),
    ],
)
def test_a_wrong_file_is_2_with_the_reason(tmp_path, text, said):
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    for command in (("config", "check", str(path)), ("--config", str(path), "config", "show")):
        result = run(*command)
        assert result.exit_code == 2
        assert said in result.stderr


@pytest.mark.parametrize(
    ("text", "hints"),
    [
        ("tuning: {mode: enforce}", True),
        ("tuning: {mode: enforce}\nagent: {interval: 1}", False),
        ("tuning: {mode: observe}", False),
    ],
)
def test_a_tuner_that_would_wait_for_a_faster_agent_for_ever_is_reported(tmp_path, text, hints):
    file = tmp_path / "gpuwatch.yaml"
    file.write_text(text)
    found = run("config", "check", str(file))
    assert (found.exit_code, "set agent.interval: 1" in found.stderr) == (0, hints)


def test_a_web_configuration_is_checked_with_the_file_that_names_it_where_it_is_there(tmp_path):
    file, web = tmp_path / "gpuwatch.yaml", tmp_path / "web.yaml"
    file.write_text(f"tuning: {{web_config: {web}}}")
    away = run("config", "check", str(file))
    assert (away.exit_code, f"hint: {web} was not checked" in " ".join(away.stderr.split())) == (0, True)
    web.write_text("basic_auth_users: {ann: secret}")
    wrong = run("config", "check", str(file))
    assert (wrong.exit_code, "bcrypt" in wrong.stderr, "is a good configuration" in wrong.stderr) == (2, True, False)
    web.write_text("basic_auth_users: {}")
    assert run("config", "check", str(file)).exit_code == 0


def test_a_wrong_option_is_2_with_the_key():
    result = run("config", "show", "--profile", "dcgm")
    assert result.exit_code == 2
    assert "metrics.profiles" in result.stderr


def test_the_schema_names_every_section():
    schema = json.loads(run("config", "schema").stdout)
    top = schema["$defs"][schema["$ref"].rpartition("/")[2]]
    assert set(top["properties"]) == set(Config.__struct_fields__)
