"""What is offered for machines without Kubernetes does its work: units, Slurm's scripts, the scrape example."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpuwatch
from gpuwatch.collect.kernel_log.ring import DEVICE
from gpuwatch.config import parse
from gpuwatch.consents.file import FOLDER
from gpuwatch.remediation.service.process import FINISH_SECONDS
from gpuwatch.tuning.actuation.guard import EXIT_WAIT_SECONDS
from gpuwatch.tuning.actuation.record import FOLDER as RECORD_FOLDER
from gpuwatch.tuning.actuation.restore import ANSWER_SECONDS
from gpuwatch.workloads.procfs import SlurmJob, slurm_job
from tests import fast_yaml
from tests.deploy.commandline import commands
from tests.e2e.processes import agent, fetch, prometheus
from tests.promql import JOBS
from tests.waiting import until

DEPLOY = Path(gpuwatch.__file__).parents[1] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
ENFORCE = DEPLOY / "systemd/gpuwatch-tuner.service.d/enforce.conf"
DEVICES = {"DevicePolicy", "DeviceAllow"}
GIVE_BACK_SECONDS = 5
"""What a tuner promises to need at its end."""

PROGRAM = "/usr/local/bin/gpuwatch"
EXPOSED, EXPOSED_WITH_SYS_ADMIN = 19, 20
"""What `systemd-analyze security` may say, in tenths: below 2.0; without a sandbox it is 9.6. A tuner that acts
has the driver, SYS_ADMIN and a port at once.
"""


def settings(unit):
    """Lines of a unit by key; a key may be there several times."""
    found = {}
    for line in unit.read_text().splitlines():
        key, sign, value = line.partition("=")
        if sign and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


@pytest.fixture(scope="module")
def analyze():
    """systemd-analyze, of the package systemd."""
    return shutil.which("systemd-analyze") or pytest.fail("systemd-analyze is missing; run: apt-get install systemd")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_the_unit(analyze, tmp_path, unit):
    for each in UNITS:  # they name each other
        (tmp_path / each.name).write_text(each.read_text().replace(PROGRAM, sys.executable))
    done = subprocess.run([analyze, "verify", "--man=no", tmp_path / unit.name], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_unit_is_sandboxed(analyze, tmp_path, unit):
    """Without the drop-in that lies beside it."""
    assert_exposed(analyze, shutil.copy(unit, tmp_path), EXPOSED)


def assert_exposed(analyze, unit, most):
    command = [analyze, "security", "--offline=yes", "--no-pager", f"--threshold={most}", unit]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout.splitlines()[-1]
    return done.stdout


def test_a_driver_may_be_loaded_after_the_unit_has_started():
    """Its devices have a number of their own; a name that /proc/devices does not have yet is passed over."""
    for file in (*UNITS, ENFORCE):
        found = settings(file)
        if "char-nvidia-caps rw" in found.get("DeviceAllow", ()):
            assert found["DeviceAllow"][0] == "char-195 rw"  # Documentation/admin-guide/devices.txt of the kernel
            assert found["DevicePolicy"] == ["closed"]


def test_the_agent_needs_no_capability_for_the_kernel_log():
    """systemd opens it, past the agent's own sandbox but not past its list of devices."""
    found = settings(DEPLOY / "systemd/gpuwatch-agent.service")
    assert found["StandardInput"] == [f"file:{DEVICE}"]
    assert f"{DEVICE} r" in found["DeviceAllow"]
    assert (found["ProtectKernelLogs"], found["CapabilityBoundingSet"]) == (["yes"], [""])


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_command_line_takes_what_the_unit_starts(tmp_path, unit):
    (start,) = settings(unit)["ExecStart"]
    program, *arguments = shlex.split(start)
    assert program == PROGRAM
    file = tmp_path / "gpuwatch.yaml"
    file.write_text("")
    arguments = [str(file) if argument == "/etc/gpuwatch/gpuwatch.yaml" else argument for argument in arguments]
    _, command = commands(arguments)
    assert command.info_name == unit.stem.split("-")[1]


def test_agent_and_remediator_take_the_node_s_name_from_the_same_places():
    """A remediator acts on no Node that the agent does not say it is on."""
    one, other = (settings(unit) for unit in UNITS if unit.stem in ("gpuwatch-agent", "gpuwatch-remediator"))
    assert one["EnvironmentFile"] == other["EnvironmentFile"]
    assert one["Environment"] == [each for each in other["Environment"] if each.startswith("NODE_NAME=")]
    assert one["EnvironmentFile"][0].removeprefix("-") in (DEPLOY.parent / "docs/machines.md").read_text()


def test_who_starts_the_agent_has_made_the_file_that_its_unit_names():
    before, *after = (DEPLOY.parent / "docs/machines.md").read_text().split("systemctl enable --now gpuwatch-agent")[:2]
    assert after
    for path in ("/etc/gpuwatch", "/etc/gpuwatch/gpuwatch.yaml"):
        assert f" {path}\n" in before or f" {path} " in before
    (start,) = settings(DEPLOY / "systemd/gpuwatch-agent.service")["ExecStart"]
    assert "--config /etc/gpuwatch/gpuwatch.yaml" in start


def test_s15_only_the_guard_and_the_repairer_have_the_right_to_change_gpus():
    allowed = {unit.stem: settings(unit)["CapabilityBoundingSet"] for unit in UNITS}
    assert allowed.pop("gpuwatch-tuner-guard") == ["CAP_SYS_ADMIN"]
    assert allowed.pop("gpuwatch-repairer") == ["CAP_SYS_ADMIN CAP_SYS_PTRACE"]
    assert set(map(tuple, allowed.values())) == {("",)}


def test_s15_a_tuner_has_it_by_a_file_that_names_it_and_stays_in_its_sandbox(analyze, tmp_path):
    """Nothing else of its unit is undone."""
    told = settings(ENFORCE)
    assert told["CapabilityBoundingSet"] == ["CAP_SYS_ADMIN"]
    assert {*told} - {"CapabilityBoundingSet", "PrivateDevices", *DEVICES, "After", "OOMScoreAdjust"} == set()
    for each in UNITS:
        (tmp_path / each.name).write_text(each.read_text().replace(PROGRAM, sys.executable))
    unit = tmp_path / "gpuwatch-tuner.service"
    shutil.copytree(ENFORCE.parent, tmp_path / ENFORCE.parent.name)
    done = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    rows = {tuple(line.split()[:2]) for line in assert_exposed(analyze, unit, EXPOSED_WITH_SYS_ADMIN).splitlines()}
    assert ("✗", "CapabilityBoundingSet=~CAP_SYS_ADMIN") in rows  # the file was read
    assert ("✓", "CapabilityBoundingSet=~CAP_SYS_MODULE") in rows


def test_s14_a_tuner_that_acts_is_stopped_before_its_guard_and_has_the_time_to_restore():
    assert "gpuwatch-tuner-guard.service" in settings(ENFORCE)["After"][0].split()
    units = {unit.stem: settings(unit) for unit in UNITS}
    assert "gpuwatch-tuner-guard.service" in units["gpuwatch-tuner"]["Wants"][0].split()
    assert int(units["gpuwatch-tuner"]["TimeoutStopSec"][0]) > GIVE_BACK_SECONDS
    assert int(units["gpuwatch-tuner-guard"]["TimeoutStopSec"][0]) > EXIT_WAIT_SECONDS + ANSWER_SECONDS


def test_who_has_the_token_may_write_nothing_but_what_it_has_read():
    """Beside that folder is the record of what is set on GPUs."""
    told = settings(DEPLOY / "systemd/gpuwatch-tuner-consents.service")
    assert told["StateDirectory"] == [f"gpuwatch/{FOLDER}"]
    assert told["ProtectSystem"] == ["strict"]
    assert told["PrivateDevices"] == ["yes"]
    assert "ReadWritePaths" not in told


@pytest.mark.parametrize("name", ["gpuwatch-agent", "gpuwatch-remediator"])
def test_who_sets_nothing_may_not_write_the_record_of_settings(name):
    told = settings(DEPLOY / f"systemd/{name}.service")
    place = f"/var/lib/gpuwatch/{RECORD_FOLDER}"
    assert told["ReadOnlyPaths"][0] == f"-{place}"
    assert told["ExecStartPre"] == [f"+/usr/bin/install -d -m 0700 {place}"], "it exists before it is made read-only"


def test_state_is_closed_to_other_users():
    for unit in UNITS:
        assert settings(unit)["StateDirectoryMode"] == ["0750"]
    assert settings(DEPLOY / "systemd/gpuwatch-agent.service")["RuntimeDirectoryMode"] == ["0750"]


def test_the_page_says_how_a_machine_is_tuned():
    """Word for word: the files that it copies are there, and the settings that it names are good."""
    page = (DEPLOY.parent / "docs/machines.md").read_text()
    told = page.split("## Tuning")[1].split("\n## ")[0]
    copied = re.findall(r"deploy/systemd/\S+", told)
    assert f"deploy/systemd/{ENFORCE.parent.name}/{ENFORCE.name}" in copied
    assert [path for path in copied if not (DEPLOY.parent / path).is_file()] == []
    (block,) = re.findall(r"```yaml\n(.*?)```", told, re.DOTALL)
    config = parse(fast_yaml.load(block), "docs/machines.md")
    assert (config.tuning.mode, config.agent.interval) == ("enforce", 1.0)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_unit_starts_while_the_agent_s_folder_is_gone(unit):
    """systemd lets no unit start whose paths are missing, but for those that begin with a dash."""
    assert all(path.startswith("-") for path in settings(unit).get("ReadOnlyPaths", []))


def test_the_remediator_has_the_time_to_finish_a_step():
    (unit,) = (unit for unit in UNITS if unit.stem == "gpuwatch-remediator")
    assert int(settings(unit)["TimeoutStopSec"][0]) > FINISH_SECONDS


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """Two agents: one on a node that is well, one on a node that has lost a GPU."""
    place = tmp_path_factory.mktemp("machines")
    with (
        agent(place / "well", source=("--source", "sim")) as well,
        agent(place / "sick", source=("--source", "sim")) as sick,
    ):
        well.settle()
        sick.settle()
        inject = ["sim", "inject", "--xid", "79", "--gpu", "3", "--dir", str(sick.directory)]
        subprocess.run([sys.executable, "-m", "gpuwatch", *inject], check=True, capture_output=True)
        until(lambda: b'gpuwatch_node_health{state="failed"} 1' in sick.page(), "the fault is judged")
        yield {"well": well, "sick": sick}


def scheduler(place, found, node="State=IDLE"):
    """An environment in which `gpuwatch` is this one and asks an agent; what `scontrol` is told is in `place`/told.

    `node`: what `scontrol show node` tells of it.
    """
    programs = place / "bin"
    programs.mkdir(exist_ok=True)
    source = f"agent:{found.log.parent / 'agent.sock'}"
    scripts = {
        "gpuwatch": f'exec {sys.executable} -m gpuwatch --source {source} "$@"',
        "scontrol": f'[ "$1" = show ] && echo "{node}" || printf "%s\\n" "$@" >> {place}/told',
    }
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}


def by_slurm(place, script, found, node="State=IDLE", **job):
    """Run a script as slurmd does: without a search path. `place` stands for /run, `place`/bin for /usr/local/bin."""
    scheduler(place, found, node)
    copy = place / script
    text = (DEPLOY / "slurm" / script).read_text().replace("/usr/local/bin", str(place / "bin"))
    copy.write_text(text.replace("/run/gpuwatch-jobs", str(place / "jobs")))
    copy.chmod(0o755)
    return subprocess.run([copy], env={"SLURMD_NODENAME": "gpu-1", **job}, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("script", "node", "code", "drained"),
    [
        ("prolog.sh", "well", 0, False),
        ("prolog.sh", "sick", 1, True),
        ("epilog.sh", "well", 0, False),
        ("epilog.sh", "sick", 0, True),
    ],
)
def test_slurm_starts_no_job_on_a_failed_gpu(machines, tmp_path, script, node, code, drained):
    done = by_slurm(tmp_path, script, machines[node])
    assert done.returncode == code, done.stderr
    told = (tmp_path / "told").read_text().splitlines() if (tmp_path / "told").exists() else []
    assert bool(told) is drained
    if drained:
        assert told[:4] == ["update", "nodename=gpu-1", "state=drain", told[3]]
        assert told[3].startswith("reason=gpuwatch: GPU CRITICAL - ")


def test_slurm_s_account_and_partition_are_there_for_as_long_as_the_job(machines, tmp_path):
    job = {"SLURM_JOB_ID": "4711", "SLURM_JOB_ACCOUNT": "physics", "SLURM_JOB_PARTITION": "gpu"}
    by_slurm(tmp_path, "prolog.sh", machines["well"], **job)
    assert slurm_job(tmp_path / "jobs", "4711") == SlurmJob("physics", "gpu")
    by_slurm(tmp_path, "epilog.sh", machines["well"])
    by_slurm(tmp_path, "epilog.sh", machines["well"], SLURM_JOB_ID="12")
    assert slurm_job(tmp_path / "jobs", "4711") == SlurmJob("physics", "gpu"), "a health check, another job"
    by_slurm(tmp_path, "epilog.sh", machines["well"], **job)
    assert list((tmp_path / "jobs").iterdir()) == []


@pytest.mark.parametrize("script", ["prolog.sh", "epilog.sh"])
def test_a_foreign_reason_for_a_drain_stays(machines, tmp_path, script):
    done = by_slurm(tmp_path, script, machines["sick"], "State=IDLE+DRAIN Reason=new disk [anna@2026-01-01]")
    assert done.returncode == (1 if script == "prolog.sh" else 0), done.stderr
    assert not (tmp_path / "told").exists()


@pytest.mark.parametrize("script", ["prolog.sh", "epilog.sh"])
def test_slurm_continues_where_the_monitor_does_not_answer(tmp_path, machines, script):
    gone = machines["well"]._replace(log=tmp_path / "nowhere" / "log")
    assert by_slurm(tmp_path, script, gone).returncode == 0
    assert not (tmp_path / "told").exists()


@pytest.mark.parametrize(("node", "code"), [("well", 0), ("sick", 1)])
def test_node_problem_detector_gets_its_codes(tmp_path, machines, node, code):
    plugin = json.loads((DEPLOY / "node-problem-detector/gpuwatch.json").read_text())
    (rule,) = plugin["rules"]
    assert rule["condition"] == plugin["conditions"][0]["type"]
    env = scheduler(tmp_path, machines[node])
    done = subprocess.run([Path(rule["path"]).name, *rule["args"]], env=env, capture_output=True, text=True)
    assert done.returncode == code
    assert len(done.stdout.splitlines()) == 1
    assert len(done.stdout) <= plugin["pluginConfig"]["max_output_length"]


@pytest.mark.slow  # quick: test_scrape.py scrapes by the example for clusters
def test_the_scrape_example_names_the_machines(tmp_path, machines):
    file = DEPLOY / "prometheus/scrape.example.yaml"
    done = subprocess.run(["promtool", "check", "config", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    jobs = fast_yaml.load(file.read_text())["scrape_configs"]
    agents = dict(jobs[0])
    port = machines["well"].url.rpartition(":")[2]
    agents["static_configs"] = [{"targets": ["127.0.0.1"]}]
    agents["relabel_configs"] = json.loads(json.dumps(agents["relabel_configs"]).replace("9400", port))
    agents["scrape_interval"] = "1s"
    with prometheus(tmp_path, [agents]) as found:
        up = 'up{job="gpuwatch", node="127.0.0.1", instance="127.0.0.1"}'
        until(lambda: found.value(up) == 1, "the machine is scraped under its name")
        held = found.query('gpuwatch_gpu_workload_info{namespace="ml-research", node="127.0.0.1"}')
        assert held
    assert {each["job_name"] for each in jobs} == JOBS
    assert fetch(f"{machines['well'].url}/-/healthy")
