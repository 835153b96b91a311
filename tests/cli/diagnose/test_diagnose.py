"""`gpuwatch diagnose` on simulated nodes, copied trees and fake drivers."""

import json
import os
import tarfile
from pathlib import Path

import msgspec
import pytest

from gpuwatch.cli.diagnose.document import exit_code
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.model import CheckResult, CheckStage, CheckStatus, Diagnosis
from gpuwatch.sim.world import World
from gpuwatch.tuning.actuation.record import SettingsRecord
from tests import fast_yaml
from tests.cli.commands import run
from tests.cli.look.test_documents import conforms
from tests.diagnose.hosts import Host
from tests.fakes.libcuda import FakeCuda
from tests.tuning.service.tuning import clocks

SIM = ("--source", "sim")
CAPTURE = Path(__file__).parents[2] / "captures/h100__590.48.01.txt"
PATIENT = ("--budget", "60s")
"""For what is not about time: a machine that runs other tests too is slow to start processes."""


EXTRACTING = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Python 3.11 has filters since 3.11.4, and Debian 12 has 3.11.2."""


@pytest.fixture
def host(tmp_path):
    """A copied tree of a host that is well, with a recorded View."""
    host = Host(tmp_path / "host")
    (host.root / "gpuwatch/view.json").write_bytes(msgspec.json.encode(host.view))
    return host


def diagnose(host, *args):
    return run("diagnose", "--root", str(host.root), *args)


def blacklist_uvm(host):
    """A host on which CUDA cannot start."""
    host.edit("proc/modules", "nvidia_uvm", "something_else")
    host.remove("dev/nvidia-uvm")


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """A host on which CUDA cannot start. It stays as it is."""
    host = Host(tmp_path_factory.mktemp("broken") / "host")
    (host.root / "gpuwatch/view.json").write_bytes(msgspec.json.encode(host.view))
    blacklist_uvm(host)
    return host


@pytest.fixture(scope="module")
def document(broken):
    """What scripts are told of it."""
    return json.loads(diagnose(broken, "-o", "json").stdout)


def test_a_node_that_is_well_is_0_and_reports_it():
    result = run(*SIM, "diagnose", *PATIENT)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0].split()[-1] == "HEALTHY"
    assert "failed" not in result.stdout
    stages = [line.split()[0] for line in result.stdout.splitlines()[2:] if line.strip()]
    assert [stage for stage in stages if stage in set(CheckStage)] == [s for s in CheckStage if s in stages]


def test_the_first_failure_is_on_top_with_what_helps(broken, document):
    result = diagnose(broken)
    assert result.exit_code == 4, result.output
    lines = result.stdout.splitlines()
    first = next(item for item in document["items"] if item["id"] == document["first"])
    assert lines[0].endswith("FAILED")
    assert lines[2].startswith(f"✗ {first['id']}")
    told = " ".join(" ".join(lines[2 : lines.index("", 2)]).split())
    assert first["message"] in told
    assert first["remedy"] in told
    assert all(" ".join(command.split()) in told.replace("\\ ", "") for command in first["commands"])


def test_a_pipe_has_the_first_failure_in_its_third_line(broken, document):
    """For prologs, as in docs/diagnose.md."""
    first = next(item for item in document["items"] if item["id"] == document["first"])
    piped = run("diagnose", "--root", str(broken.root), env={"COLUMNS": None}).stdout.splitlines()
    assert piped[2] == f"✗ {first['id']}  {first['message']}"


def test_what_is_blocked_is_counted_with_what_blocks_it(broken, document):
    blocked = [item for item in document["items"] if item["blocked_by"] == document["first"]]
    assert blocked
    assert f"blocked by {document['first']}" in diagnose(broken).stdout


def test_scripts_get_a_document_that_conforms_to_its_schema(broken, document):
    schema = json.loads(run("diagnose", "-o", "schema").stdout)
    assert conforms(document, schema, schema["$defs"])
    assert set(document) == set(schema["properties"])
    assert (document["kind"], document["verdict"], document["level"]) == ("Diagnosis", "failed", "full")
    assert document["root"] == str(broken.root)
    as_yaml = fast_yaml.load(diagnose(broken, "-o", "yaml").stdout)
    assert {**as_yaml, "at": None} == {**document, "at": None}


def test_names_are_the_checks_that_are_wrong(host, broken, document):
    assert diagnose(host, "-o", "name").stdout == ""
    wrong = [item["id"] for item in document["items"] if item["result"] in ("warn", "fail")]
    assert diagnose(broken, "-o", "name").stdout.split() == wrong


def test_every_check_is_listed_to_who_asks(broken, document):
    for asked in (
        run("diagnose", "--root", str(broken.root), "-o", "wide"),
        run("-v", "diagnose", "--root", str(broken.root)),
    ):
        listed = {line.split()[1] for line in asked.stdout.splitlines() if line[:2] in ("✓ ", "· ", "! ", "✗ ")}
        assert {item["id"] for item in document["items"]} <= listed


def test_a_stage_alone_brings_what_it_stands_on_only_when_that_is_broken(host):
    document = json.loads(diagnose(host, "--stage", "nvml", "-o", "json").stdout)
    assert {item["stage"] for item in document["items"]} == {"nvml"}
    host.write("proc/driver/nvidia/version", "")
    host.remove("sys/module/nvidia/version")
    host.edit("proc/modules", "nvidia ", "other ")
    document = json.loads(diagnose(host, "--stage", "nvml", "-o", "json").stdout)
    assert {item["stage"] for item in document["items"]} >= {"driver", "nvml"}


def test_only_the_wanted_gpus_are_judged(host):
    host.gpu(3, ecc={"pending": not host.view.snapshot.gpus[3].ecc.enabled})
    (host.root / "gpuwatch/view.json").write_bytes(msgspec.json.encode(host.view))
    wrong = diagnose(host, "-o", "name").stdout
    assert wrong
    assert diagnose(host, "--gpu", host.view.snapshot.gpus[3].identity.uuid, "-o", "name").stdout == wrong
    assert diagnose(host, "--gpu", "0,1", "--gpu", "2", "-o", "name").stdout == ""


def test_a_gpu_of_which_nothing_is_known_is_named_by_its_index_alone(host):
    (host.root / "gpuwatch/view.json").unlink()
    refused = diagnose(host, "--gpu", "3", "--gpu", host.view.snapshot.gpus[3].identity.uuid)
    assert refused.exit_code == 2
    assert "no GPU matches 'GPU-" in refused.stderr
    assert "name it by its index" in refused.stderr
    assert diagnose(host, "--gpu", "3").exit_code != 2


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--stage", "kublet"), "did you mean kubelet?"),
        (("--stage", "everything"), "use host, driver"),
        (("--budget", "soon"), "write 5s or 1m"),
        (("--budget", "0s"), "write 5s or 1m"),
        (("--force",), "--force goes with --active"),
        (("--root", "/nowhere/at/all"), "is no folder"),
        (("--level", "medium"), "quick"),
        (("--write-expect", "/nowhere/baseline.yaml"), "there is no folder /nowhere"),
        (("--write-expect", "/"), "it is a folder"),
        (("--write-expect", "/etc/hostname"), "nothing is overwritten"),
        (("--bundle", "/dev/null"), "it is no plain file"),
        (("--gpu", "77"), "no GPU matches '77'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_is_2_and_says_what_is_right(args, says):
    result = run(*SIM, "diagnose", "--level", "quick", *args)
    assert result.exit_code == 2, result.output
    assert says in result.stderr


def test_a_tree_and_a_simulation_are_two_nodes(host):
    result = run(*SIM, "diagnose", "--root", str(host.root))
    assert result.exit_code == 2
    assert "are two nodes" in result.stderr


def test_what_the_tuner_of_a_simulated_node_has_set_is_known(tmp_path):
    with World("healthy", tmp_path / "node") as world:
        place = world.directory / "state"
        place.mkdir(exist_ok=True)
        SettingsRecord(place).add(clocks("GPU-3"))
        result = run("--source", f"sim:{world.directory}", "diagnose", "-o", "json", *PATIENT)
    orphans = next(item for item in json.loads(result.stdout)["items"] if item["id"] == "P01")
    assert "a clock lock at 1200 MHz of gpuwatch's tuner" in orphans["message"]


def test_a_capture_that_is_none_is_wrong_usage(host):
    result = run("--source", f"capture:{host.root}/proc/modules", "diagnose", "--root", str(host.root))
    assert result.exit_code == 2
    assert "is no capture" in result.stderr


def test_a_capture_is_the_driver_of_a_tree(host, tmp_path):
    capture = tmp_path / "driver.capture"
    assert run(*SIM, "capture", str(capture), "--samples", "2", "--interval", "0.2").exit_code == 0
    host.remove("gpuwatch/view.json")
    result = run("--source", f"capture:{capture}", "diagnose", "--root", str(host.root), "--level", "quick", *PATIENT)
    assert result.exit_code == 0, result.output
    assert "8 × NVIDIA H100" in result.stdout


def test_a_capture_alone_says_where_the_files_come_from():
    told = run("--source", f"capture:{CAPTURE}", "diagnose", "--level", "quick", "--stage", "nvml", *PATIENT)
    assert "name a copy of the host's files with --root" in " ".join(told.stdout.split())
    assert told.stdout.startswith("NODE –")


def test_a_machine_without_gpu_and_driver_is_5(tmp_path):
    for folder in ("sys/bus/pci/devices", "proc", "dev", "lib/modules"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "proc/modules").write_text("overlay 212992 35 - Live 0x0000000000000000\n")
    args = ("--source", "nvml", "--nvml-library", "/nowhere/libnvidia-ml.so.1")
    result = run(*args, "diagnose", "--level", "quick", "--root", str(tmp_path))
    assert result.exit_code == 5, result.output
    assert "neither an NVIDIA GPU nor a driver" in result.stderr
    assert result.stdout == ""


def test_where_nothing_can_be_judged_the_exit_code_is_1(host):
    result = diagnose(host, "--stage", "baseline")
    assert result.exit_code == 1, result.output
    assert result.stdout.splitlines()[0].endswith("UNKNOWN")


def test_where_only_rights_are_missing_it_is_6():
    skipped = CheckResult(id="T01", stage=CheckStage.RUNTIME, title="", result=CheckStatus.SKIP)
    found = Diagnosis(results=(skipped,))
    assert exit_code(found, NodeFacts(at=0.0, unread={"runtime": "denied"}, denied=("runtime",))) == 6
    assert exit_code(found, NodeFacts(at=0.0, unread={"runtime": "absent"})) == 1


def test_what_could_not_be_seen_is_reported_once_a_reason(tmp_path):
    (tmp_path / "etc").mkdir()
    told = run("diagnose", "--level", "quick", "--root", str(tmp_path), env={"COLUMNS": None}).stdout
    lines = [
        line
        for line in told.splitlines()
        if line.startswith("not read: the kernel and its modules, running services: ")
    ]
    assert len(lines) == 1
    assert "No such file or directory" in lines[0]


def test_a_folder_that_is_no_root_is_wrong_usage(tmp_path):
    """As the folder that a bundle was unpacked into, one above its root."""
    (tmp_path / "gpuwatch-gpu-node-1/etc").mkdir(parents=True)
    result = run("diagnose", "--root", str(tmp_path))
    assert result.exit_code == 2
    assert "holds no host" in result.stderr


def test_a_node_of_which_no_gpu_was_seen_is_not_healthy(host):
    """A copy of its files alone, in which nothing is wrong."""
    (host.root / "gpuwatch/view.json").unlink()
    result = diagnose(host)
    assert result.exit_code == 1, result.output
    assert result.stdout.splitlines()[0].endswith("UNKNOWN")
    assert "not read: the GPUs (NVML): " in result.stdout
    assert diagnose(host, "--stage", "runtime").exit_code == 0


def test_a_copy_without_libraries_is_not_at_fault_for_it(tmp_path):
    (tmp_path / "etc").mkdir()
    result = run("diagnose", "--root", str(tmp_path), "-o", "name")
    assert (result.exit_code, result.stdout) == (1, "")


def test_a_recording_that_is_none_is_reported(host):
    (host.root / "gpuwatch/view.json").write_text("GPU 0")
    told = run("diagnose", "--root", str(host.root), env={"COLUMNS": None}).stdout
    assert f"not read: the GPUs (NVML): {host.root}/gpuwatch/view.json cannot be read; " in told


def test_where_nothing_was_judged_it_says_why(host):
    told = diagnose(host, "--stage", "functional").stdout
    assert "not judged: X01, X02, X03, X04: puts work on GPUs; runs with --active" in told


def test_active_work_needs_real_gpus(host):
    result = diagnose(host, "--level", "quick", "--active")
    assert "not read: work on the GPUs: there is no CUDA behind a recorded or simulated node" in result.stdout


def test_active_work_is_done_on_the_gpus_that_are_named(host, tmp_path):
    uuids = [status.identity.uuid for status in host.view.snapshot.statuses]
    with FakeCuda(tmp_path / "cuda", uuids) as cuda:
        args = ("--active", "--cuda-library", str(cuda.library), "--gpu", "2", "--stage", "functional", "-o", "json")
        ended = run("diagnose", "--root", str(host.root), *args, env=cuda.env)
        document = json.loads(ended.stdout)
        assert "cuMemAlloc_v2" in "".join(cuda.calls())
        assert cuda.misuses() == []
    assert ended.exit_code == 0, ended.stdout
    assert [item["result"] for item in document["items"] if item["id"] == "X01"] == ["pass"]


def test_what_a_gpu_gets_wrong_is_a_failure(host, tmp_path):
    uuids = [status.identity.uuid for status in host.view.snapshot.statuses]
    with FakeCuda(tmp_path / "cuda", uuids) as cuda:
        cuda.error("cuInit", 802)
        args = ("--active", "--cuda-library", str(cuda.library), "--gpu", "2", "-o", "json")
        ended = run("diagnose", "--root", str(host.root), *args, env=cuda.env)
    assert ended.exit_code == 4
    assert json.loads(ended.stdout)["first"] == "X01"


def test_a_bundle_is_written_and_can_be_diagnosed_again(host, tmp_path):
    blacklist_uvm(host)
    target = tmp_path / "case.tgz"
    first = diagnose(host, "--bundle", str(target), "-o", "name")
    assert first.exit_code == 4, first.output
    assert str(target) in first.stderr
    with tarfile.open(target) as archive:
        archive.extractall(tmp_path / "again", **EXTRACTING)
    for root in (*(tmp_path / "again").iterdir(), target):
        assert run("diagnose", "--root", str(root), "-o", "name").stdout == first.stdout


def test_a_bundle_that_cannot_be_written_is_reported_before_any_read(host):
    result = diagnose(host, "--bundle", "/nowhere/at/all/case.tgz")
    assert result.exit_code == 2
    assert result.stdout == ""


def test_a_node_is_held_against_a_baseline_made_of_another(host, tmp_path):
    baseline = tmp_path / "baseline.yaml"
    assert diagnose(host, "--write-expect", str(baseline)).exit_code == 0
    assert diagnose(host, "--expect", str(baseline), "-o", "name").stdout == ""
    baseline.write_text("gpus: 9\n")
    result = diagnose(host, "--expect", str(baseline))
    assert result.exit_code == 4, result.output
    assert "9" in result.stdout.splitlines()[2]


def test_a_baseline_goes_through_no_link_and_waits_for_no_pipe(host, tmp_path):
    """In a folder such as /tmp another user may have made what has its name."""
    (link := tmp_path / "link.yaml").symlink_to(tmp_path / "elsewhere")
    assert diagnose(host, "--write-expect", str(link)).exit_code == 0
    assert (link.is_symlink(), (tmp_path / "elsewhere").exists()) == (False, False)
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)  # else the test could only hang
    found = diagnose(host, "--write-expect", str(tmp_path / "pipe"))
    os.close(reader)
    assert found.exit_code == 1
    assert "it is not a regular file" in found.stderr


def test_what_is_true_of_all_gpus_is_reported_once(host, tmp_path):
    """A baseline of another node pool is another for each of them."""
    baseline = tmp_path / "baseline.yaml"
    baseline.write_text('vbios: ["97.00"]\n')
    told = diagnose(host, "--expect", str(baseline), "--stage", "baseline").stdout
    assert "! B05  GPUs 0-7: VBIOS 96.00" in told
    assert "gpu 0" not in told


def test_a_terminal_without_unicode_gets_ascii(broken):
    from click.testing import CliRunner

    from gpuwatch.cli.main import cli

    args = ["diagnose", "--root", str(broken.root)]
    result = CliRunner(charset="ascii").invoke(cli, args, env={"COLUMNS": "80", "NO_COLOR": "1"})
    assert result.exit_code == 4
    assert result.stdout.isascii()
    assert "\nx " in result.stdout


def test_colour_says_nothing_that_words_do_not(broken):
    import re

    colored = run("--color", "always", "diagnose", "--root", str(broken.root)).stdout
    assert "\x1b[1;31m" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored).splitlines() == diagnose(broken).stdout.splitlines()
