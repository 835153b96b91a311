"""Facts of real processes: a simulated node, a copied tree, files and drivers that never answer, an agent's View."""

import os
import shutil
import signal
import time

import msgspec
import pytest
from msgspec.structs import replace

from gpuwatch.agent.client import AgentClient
from gpuwatch.config import Backend, Config
from gpuwatch.diagnose.facts import HOST_SECTIONS
from gpuwatch.diagnose.gathering.collect import GONE, Collection
from gpuwatch.diagnose.gathering.gather import NOT_HERE, OTHER_MACHINE, DiagnosisTarget, gather
from gpuwatch.diagnose.gathering.probe import NEED_ROOT, read_section
from gpuwatch.diagnose.places import HIDDEN, Places
from gpuwatch.kube.credentials import NoCluster
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import Host as Machine
from gpuwatch.sim.world import World
from gpuwatch.tuning.actuation.heartbeat import HeartbeatFile
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.model.setting import Setting
from tests.children import children
from tests.cli.commands import serving
from tests.diagnose.hosts import Host
from tests.fakes.libnvml import FakeDriver
from tests.kept import kept
from tests.model import views
from tests.waiting import BOUND_SECONDS, until

LONG = BOUND_SECONDS
TRIES = (2, 4, 8, 16, 32)
"""Seconds for all that can be read; a busy machine needs more than the first, the kernel ends a lease after 45."""


@pytest.fixture
def tree(tmp_path):
    """Files of a host that is well."""
    return Host(tmp_path / "tree").root


@pytest.fixture
def simulated(tmp_path):
    """A simulated node that runs."""
    with World("healthy", tmp_path / "node") as world:
        config = replace(Config(), sources=world.sources, state_dir=str(tmp_path / "state"))
        yield DiagnosisTarget(Places.tree(world.directory), config, world.backend)


@pytest.fixture
def stuck(tree):
    """The same, with a file of the driver that keeps whoever opens it."""
    with kept(tree / "proc/driver/nvidia/version"):
        yield tree


def probes():
    return children("gpuwatch.diagnose")


def test_a_job_that_knows_no_api_server_costs_no_other_section():
    def ask():
        raise NoCluster("no Kubernetes API server is known")

    collection = Collection()
    collection.start("cluster", ask, LONG)
    collection.start("exporters", lambda: (), LONG)
    got = collection.collect({}, lambda section, done, total: None)
    assert got.found == {"exporters": ()}
    assert "no Kubernetes API server" in got.unread["cluster"]


def test_what_comes_over_the_pipe_is_what_the_readers_find(tree):
    places = Places.tree(tree)
    facts = gather(DiagnosisTarget(places, Config()), level="quick", seconds=LONG)
    assert {s: getattr(facts, s) for s in HOST_SECTIONS if s not in facts.unread} == {
        section: read_section(section, places) for section in HOST_SECTIONS if section not in facts.unread
    }
    assert set(facts.unread) <= {"exporters", "view", "kernel_log"}
    assert facts.cluster.node.name == facts.node
    assert (facts.live, facts.plain, facts.agent, facts.view_failure) == (False, True, False, "absent")


def test_a_recorded_view_is_taken(tree):
    (tree / "gpuwatch/view.json").write_bytes(msgspec.json.encode(views.healthy()))
    assert gather(DiagnosisTarget(Places.tree(tree), Config()), level="full", seconds=LONG).view == views.healthy()


def test_a_simulated_node_has_a_driver_and_a_full_diagnosis_reads_it_twice(simulated):
    came = []
    facts = gather(simulated, level="full", seconds=LONG, progress=lambda what, done, total: came.append((done, total)))
    assert len(facts.view.snapshot.gpus) == 8
    assert facts.view.snapshot.at - facts.earlier.snapshot.at > 0.5
    assert all(gpu.power.energy for gpu in facts.view.snapshot.gpus)
    assert came == [(number, len(came)) for number in range(1, len(came) + 1)]


def test_a_quick_diagnosis_reads_it_once(simulated):
    facts = gather(simulated, level="quick", seconds=LONG)
    assert facts.earlier is None
    assert "earlier" not in facts.unread


def test_a_file_that_never_opens_costs_its_section_and_no_time(stuck):
    for seconds in TRIES:
        start = time.monotonic()
        facts = gather(DiagnosisTarget(Places.tree(stuck), Config()), level="quick", seconds=seconds)
        took = time.monotonic() - start
        assert facts.kernel is None
        assert facts.unread["kernel"] == f"not there within {seconds} s"
        if facts.bus and took < seconds + 1:
            break
    assert facts.bus
    assert took < seconds + 1


def test_the_record_of_this_machine_is_not_taken_for_that_of_a_tree(tree, tmp_path):
    """Whose state folder, or a folder in it, is a link to ours."""
    record = SettingsRecord(tmp_path)
    record.add(
        Setting(uuid="GPU-0", knob="locked_clocks", original=None, applied=(1e9,), at=1.0, boot_id="b", driver="580.1")
    )
    HeartbeatFile(tmp_path).beat("enforce", 1.0)
    state = tree / "var/lib/gpuwatch"
    for link, target in ((state, tmp_path), (state / "tuner", tmp_path / "tuner")):
        shutil.rmtree(state) if state.is_dir() and not state.is_symlink() else state.unlink(missing_ok=True)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        assert read_section("record", Places.tree(tree)).settings == ()
        assert read_section("tuner", Places.tree(tree)) is None


def test_the_process_that_reads_is_let_go_and_ends(stuck):
    gather(DiagnosisTarget(Places.tree(stuck), Config()), level="quick", seconds=1.0)
    until(lambda: not probes(), "no process is left")


def test_a_process_that_dies_is_reported(stuck):
    def kill(what, done, total):
        if what == "bus":
            probes()[0].send_signal(signal.SIGSEGV)

    facts = gather(DiagnosisTarget(Places.tree(stuck), Config()), level="quick", seconds=LONG, progress=kill)
    assert facts.unread["kernel"] == GONE


def test_a_driver_that_never_answers_still_gives_a_view_that_reports_it(tree, tmp_path, monkeypatch):
    with FakeDriver(tmp_path / "driver", gpus=8) as driver:
        for name, value in driver.env.items():
            monkeypatch.setenv(name, value)
        driver.hang("nvmlInit")
        ground = DiagnosisTarget(Places.tree(tree), Config(), Backend(target=str(driver.library)))
        for seconds in TRIES:
            start = time.monotonic()
            facts = gather(ground, level="quick", seconds=seconds)
            took = time.monotonic() - start
            sources = facts.view.snapshot.sources if facts.view else ()
            reasons = [source.reason for source in sources if source.name == "nvml"]
            if "nvmlInit" in "".join(reasons) and facts.kernel and took < seconds + 1:
                break
    assert ["nvmlInit" in reason for reason in reasons] == [True]
    assert facts.view_failure is None
    assert facts.kernel is not None
    assert took < seconds + 1


def test_without_the_library_there_is_a_view_with_the_return_code(tree):
    ground = DiagnosisTarget(Places.tree(tree), Config(), Backend(target="/nowhere/libnvidia-ml.so.1"))
    facts = gather(ground, level="quick", seconds=LONG)
    assert next(source.code for source in facts.view.snapshot.sources if source.name == "nvml") == 12


def test_a_container_without_the_hosts_root_says_what_is_missing(tree):
    places = replace(Places.tree(tree), hidden=True)
    facts = gather(DiagnosisTarget(places, Config()), level="quick", seconds=LONG)
    assert {section for section, reason in facts.unread.items() if reason == HIDDEN} == NEED_ROOT
    assert set(facts.denied) == NEED_ROOT


def test_an_agent_that_runs_already_is_asked_instead_of_the_driver(tree):
    with serving(views.healthy()) as socket:
        ground = DiagnosisTarget(Places.tree(tree), Config(), Backend(target="/nowhere"), AgentClient(str(socket)))
        facts = gather(ground, level="quick", seconds=LONG)
    assert facts.agent
    assert facts.view == views.healthy()
    assert facts.bus


def test_an_agent_with_nothing_newer_to_report_has_sent_one_view(tree):
    with serving(views.healthy()) as socket:
        ground = DiagnosisTarget(Places.tree(tree), Config(), agent=AgentClient(str(socket)))
        facts = gather(ground, level="full", seconds=LONG)
    assert facts.view == views.healthy()
    assert facts.earlier is None
    assert "view" not in facts.unread


def test_an_agent_that_simulates_its_gpus_is_not_mixed_with_a_machine_without(tree):
    shutil.rmtree(tree / "sys/bus/pci/devices")
    (tree / "sys/bus/pci/devices").mkdir()
    with serving(views.healthy()) as socket:
        facts = gather(
            DiagnosisTarget(Places.tree(tree), Config(), agent=AgentClient(str(socket))), level="quick", seconds=LONG
        )
    assert facts.view == views.healthy()
    assert {facts.unread[section] for section in HOST_SECTIONS} == {NOT_HERE}
    assert facts.kernel is None


def test_an_agent_of_another_machine_is_not_mixed_with_these_files(tree):
    view = views.healthy()
    view = replace(view, snapshot=replace(view.snapshot, host=Machine(boot_id="another")))
    (tree / "proc/sys/kernel/random").mkdir(parents=True, exist_ok=True)
    (tree / "proc/sys/kernel/random/boot_id").write_text("this one\n")
    with serving(view) as socket:
        facts = gather(
            DiagnosisTarget(Places.tree(tree), Config(), agent=AgentClient(str(socket))), level="quick", seconds=LONG
        )
    assert facts.view == view
    assert {facts.unread[section] for section in HOST_SECTIONS} == {OTHER_MACHINE}


def test_an_agent_without_a_view_is_passed_over_unless_it_was_named(tree):
    with serving(None) as socket:
        agent = AgentClient(str(socket))
        found = DiagnosisTarget(Places.tree(tree), Config(), Backend(target="/nowhere"), agent)
        facts = gather(found, level="quick", seconds=LONG)
        assert not facts.agent
        assert "no view" in facts.unread["agent"]
        with pytest.raises(GpuwatchError, match="no view"):
            gather(found._replace(backend=None), level="quick", seconds=LONG)


def test_a_tree_of_pipes_and_devices_keeps_and_floods_nobody(tree):
    (tree / "proc/sys/kernel/random").mkdir(parents=True, exist_ok=True)
    for name in ("proc/sys/kernel/random/boot_id", "etc/hostname", "gpuwatch/view.json"):
        (tree / name).touch()
    files = [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink()]
    for number, path in enumerate(files):
        path.unlink()
        if number % 2:
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
    facts = gather(DiagnosisTarget(Places.of(str(tree), Config().sources, ""), Config()), level="quick", seconds=LONG)
    assert not [reason for reason in facts.unread.values() if reason == GONE or "not there within" in reason]
    assert facts.node is None
