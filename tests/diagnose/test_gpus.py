"""What is said of GPUs beyond the table of broken hosts: nothing twice, nothing too much, nothing for lack of news."""

import logging

import msgspec
import pytest
from msgspec.structs import replace

from gpuwatch.diagnose.check import CheckContext
from gpuwatch.diagnose.checks.table import CHECKS
from gpuwatch.diagnose.engine import diagnose
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.model import CheckStage, CheckStatus
from gpuwatch.model.snapshot import Gpu, GpuState, GpuStatus, Identity, Snapshot, SourceStatus
from gpuwatch.model.view import AgentStatus, View
from tests.diagnose.checks.broken_gpus import TRAINING, happens, observing, recorded, tuning, working
from tests.diagnose.hosts import Host, seen

OWN = frozenset({CheckStage.NVML, CheckStage.HEALTH, CheckStage.POWER})
BARE = Identity(index=0, uuid="GPU-0", pci_bus_id="00000000:1B:00.0")
AGENT = AgentStatus(version="1", started=0.0)
NVML_UP = SourceStatus(name="nvml", up=True)


def of(host, id_, **how):
    return host.diagnose(**how).of(id_)


def view_of(**snapshot):
    return View(snapshot=Snapshot(at=10.0, interval=1.0, **snapshot), agent=AGENT)


ODD = {
    "nothing was read": NodeFacts(at=10.0),
    "a recording without NVML": NodeFacts(at=10.0, live=False, view_failure="absent", unread={"view": "no such file"}),
    "a View without a source": NodeFacts(at=10.0, view=view_of()),
    "no GPU": NodeFacts(at=10.0, view=view_of(sources=(NVML_UP,)), earlier=view_of(sources=(NVML_UP,))),
    "a GPU of which nothing is known": NodeFacts(
        at=10.0,
        view=view_of(
            gpus=(Gpu(identity=BARE),), statuses=(GpuStatus(identity=BARE, state=GpuState.FRESH),), sources=(NVML_UP,)
        ),
        earlier=view_of(gpus=(Gpu(identity=BARE),)),
    ),
    "a GPU that nobody reads": NodeFacts(
        at=10.0, view=view_of(statuses=(GpuStatus(identity=BARE, state=GpuState.UNKNOWN),), sources=(NVML_UP,))
    ),
}


@pytest.mark.parametrize("facts", ODD.values(), ids=ODD)
@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_what_is_not_known_is_not_judged(facts, mode, caplog):
    config = replace(CheckContext(facts).config, tuning=replace(CheckContext(facts).config.tuning, mode=mode))
    with caplog.at_level(logging.WARNING):
        found = diagnose(CheckContext(facts, config), CHECKS, stages=OWN)
    assert not caplog.records
    wrong = {r.id for r in found.results if r.result is CheckStatus.FAIL}
    assert wrong <= ({"N02"} if facts.view else set()), wrong
    assert all(r.message for r in found.results if r.result is CheckStatus.SKIP)


def test_a_recording_without_nvml_asks_for_one():
    facts = NodeFacts(at=1.0, live=False, view_failure="absent", unread={"view": "gpuwatch/view.json: no such file"})
    found = diagnose(CheckContext(facts), CHECKS, stages=OWN)
    assert "--source capture:FILE" in found.of("N02").message


def test_gpus_of_another_driver_are_not_missed(tmp_path):
    host = Host(tmp_path)
    happens({"do": "lose", "gpu": 3, "announce": False}, {"do": "reload", "seconds": 0})(host)
    other = host.root / "sys/bus/pci/drivers/vfio-pci"
    other.mkdir(parents=True)
    host.remove("sys/bus/pci/devices/0000:61:00.0/driver")
    host.link("sys/bus/pci/devices/0000:61:00.0/driver", f"/{other.relative_to(host.root)}")
    assert (of(host, "N03").result, of(host, "N03").message[:6]) == (CheckStatus.PASS, "7 GPUs")


def test_one_gpu_that_hangs_keeps_no_other_from_being_judged(tmp_path):
    host = Host(tmp_path)
    limit = {"do": "power_limit", "gpu": 6, "watts": 300}
    happens({"do": "hang", "gpu": 2}, {"do": "xid", "gpu": 4, "xid": 95}, limit)(host)
    found = host.diagnose()
    assert (found.of("N04").gpus, found.of("G05").gpus, found.of("G08").gpus) == ((2,), (4,), (6,))
    assert found.of("G05").evidence["gpu 2"] == "not judged, see N04"


def test_a_gpu_that_has_to_be_woken_first_is_waited_for(tmp_path):
    host = Host(tmp_path)
    happens({"do": "hang", "gpu": 2})(host)
    assert of(host, "N04").result is CheckStatus.FAIL
    for index in range(8):
        host.gpu(index, persistence_mode=False)
    assert (of(host, "N04").result, of(host, "N04").gpus) == (CheckStatus.WARN, (2,))


def test_a_lost_gpu_says_why_and_its_xid_is_no_second_failure(tmp_path):
    host = Host(tmp_path)
    happens({"do": "lose", "gpu": 3})(host)
    found = host.diagnose()
    assert "no longer reach the GPU" in found.of("N04").evidence["XID 79"]
    assert [r.id for r in found.results if r.result is CheckStatus.FAIL and r.stage in OWN] == ["N04"]


def test_an_agents_view_has_all_there_is_of_xids(tmp_path):
    """It has judged those of before, and their repair: only its findings count."""
    host = Host(tmp_path)
    happens({"do": "xid", "gpu": 3, "xid": 95})(host)
    host.view = replace(host.view, judgement=replace(host.view.judgement, findings=()))
    assert of(host, "G05").result is CheckStatus.FAIL
    facts = replace(host.facts(), agent=True)
    assert diagnose(CheckContext(facts), CHECKS).of("G05").result is CheckStatus.PASS


@pytest.mark.parametrize(("hours", "expected"), [(0.5, True), (2.0, False)])
def test_an_applications_xid_is_reported_for_an_hour(tmp_path, hours, expected):
    host = Host(tmp_path)
    happens({"do": "xid", "gpu": 3, "xid": 13})(host)
    old = tuple(replace(count, last=count.last - hours * 3600) if count.last else count for count in host.view.xids)
    host.view = replace(host.view, xids=old, judgement=replace(host.view.judgement, findings=()))
    assert ("XID 13" in of(host, "G05").message) is expected


def test_an_applications_xid_is_held_against_no_gpu(tmp_path):
    """Every program that crashes makes one: the node is as good as before."""
    host = Host(tmp_path)
    happens({"do": "xid", "gpu": 3, "xid": 13}, workloads=(TRAINING,))(host)
    found = host.diagnose()
    assert found.first is None
    assert found.of("G05").message.startswith("none that is the GPU's fault; GPU 3: XID 13: ")
    evidence = found.of("G05").evidence["gpu 3, XID 13"]
    assert "pod ml/train-0" in evidence
    assert "XID" not in evidence  # its name has said so


def test_a_fatal_xid_lasts_where_the_driver_does_not_show_what_it_asks_for(tmp_path):
    host = Host(tmp_path)
    happens({"do": "xid", "gpu": 3, "xid": 95})(host)
    host.gpu(3, recovery_action=None)
    old = tuple(replace(count, last=count.last - 7200.0) if count.last else count for count in host.view.xids)
    host.view = replace(host.view, xids=old, judgement=replace(host.view.judgement, findings=()))
    assert of(host, "G05").result is CheckStatus.FAIL


@pytest.mark.parametrize("knob", ["power_limit", "locked_clocks"])
def test_what_gpuwatch_has_set_is_reported_once(tmp_path, knob):
    """By the check that asks who answers for it, not by those that wonder about clocks and limits."""
    host = Host(tmp_path)
    caps = (
        ({"do": "power_limit", "gpu": 3, "watts": 400},)
        if knob == "power_limit"
        else ({"do": "stuck_clock", "gpu": 3, "megahertz": 300},)
    )
    host.view = host.earlier = seen(caps, (TRAINING,))
    recorded(knob, 400.0 if knob == "power_limit" else 300e6)(host)
    found = host.diagnose()
    assert {found.of(id_).result for id_ in ("G08", "G09", "P01")} == {CheckStatus.PASS}
    assert "gpuwatch" in found.of("G08" if knob == "power_limit" else "G09").message
    observing(host)
    assert host.diagnose().first.id == "P01"


def test_a_tuner_of_a_recording_lived_when_it_was_recorded(tmp_path):
    host = Host(tmp_path)
    recorded()(host)
    facts = replace(host.facts(), at=host.view.snapshot.at + 86400)
    assert diagnose(CheckContext(facts), CHECKS).of("P01").result is CheckStatus.PASS


def test_persistence_is_nobodys_business_on_a_desk(tmp_path):
    host = Host(tmp_path, model="rtx4080s", gpus=1)
    host.remove("proc/1034/comm")
    assert of(host, "G10").result is CheckStatus.SKIP


def test_exclusive_use_is_right_for_mps(tmp_path):
    host = Host(tmp_path)
    happens({"do": "compute_mode", "gpu": "all", "mode": "exclusive_process"})(host)
    assert of(host, "G11").result is CheckStatus.WARN
    host.write("proc/2300/comm", "nvidia-cuda-mps\n")
    assert of(host, "G11").result is CheckStatus.PASS


def test_a_baseline_may_need_another_power_limit(tmp_path):
    host = Host(tmp_path)
    happens({"do": "power_limit", "gpu": "all", "watts": 500})(host)
    assert of(host, "G08").gpus == tuple(range(8))
    host.expect = replace(host.expect, power_limit=500.0)
    assert of(host, "G08").result is CheckStatus.PASS


def test_processes_that_live_hold_their_memory(tmp_path):
    host = Host(tmp_path)
    working(host)
    assert of(host, "G12").result is CheckStatus.PASS


def test_in_a_container_no_process_is_called_gone(tmp_path):
    host = Host(tmp_path)
    working(host)
    assert host.view.owners
    host.view = replace(host.view, owners=host.view.owners[:1])
    assert of(host, "G12").result is CheckStatus.WARN
    host.remove("proc/2/comm")
    assert of(host, "G12").result is CheckStatus.PASS


def test_only_the_gpus_asked_for_are_at_fault(tmp_path):
    host = Host(tmp_path)
    happens({"do": "xid", "gpu": 3, "xid": 95}, {"do": "power_limit", "gpu": "all", "watts": 500})(host)
    host.selected = frozenset({5})
    assert of(host, "G05").result is CheckStatus.PASS
    assert of(host, "G08").gpus == (5,)


def test_who_else_sets_power_is_asked_only_where_gpuwatch_does(tmp_path):
    host = Host(tmp_path)
    assert of(host, "P02").result is CheckStatus.SKIP
    tuning(host)
    assert of(host, "P02").result is CheckStatus.PASS
    host.write("proc/2200/comm", "nv-hostengine\n")
    assert "dcgmi config" in of(host, "P02").evidence["nv-hostengine"]


def test_codes_travel_to_the_view():
    view = seen([{"do": "refuse", "error": "LIB_RM_VERSION_MISMATCH"}])
    nvml = next(source for source in view.snapshot.sources if source.name == "nvml")
    assert (nvml.up, nvml.code, view.snapshot.driver) == (False, 18, None)
    assert msgspec.json.decode(msgspec.json.encode(view), type=View) == view


def hot(host, index, degrees):
    host.gpu(index, temperature={"gpu": degrees, "threshold_slowdown": 87.0})


def short_of_spares(host, index, banks):
    host.gpu(index, row_remap={"banks": {"none": banks}})


def limited(host, index, watts):
    host.gpu(index, power={"limit_configured": watts, "limit_enforced": watts})


WORST = {
    "G06": (hot, {1: 88.0, 2: 95.0, 5: 88.0}, "GPU 2: 95 °C, slowdown at 87 °C; also GPUs 1, 5"),
    "G03": (short_of_spares, {1: 1, 2: 3, 5: 3}, "GPUs 2, 5: 3 memory banks have no spare row left; also GPU 1"),
    "G08": (limited, {1: 500.0, 2: 300.0}, "GPU 2: limit 300 W, default 700 W, and not by gpuwatch; also GPU 1"),
}


@pytest.mark.parametrize(("id_", "breaks", "how", "expected"), [(id_, *row) for id_, row in WORST.items()], ids=WORST)
def test_the_worst_gpu_is_named_first_and_commands_are_about_it(tmp_path, id_, breaks, how, expected):
    host = Host(tmp_path)
    for index, value in how.items():
        breaks(host, index, value)
    found = of(host, id_)
    assert found.message == expected
    assert (found.gpus[0], set(found.gpus)) == (2, set(how))
    assert {f"gpu {index}" for index in how} == found.evidence.keys()
    assert not any(f"-i {index} " in command for command in found.commands for index in how if index != 2)


def test_of_clocks_the_slowest_is_named_first(tmp_path):
    host = Host(tmp_path)
    for index in range(8):
        host.gpu(index, utilization={"gpu": 1.0}, clocks={"sm": {1: 600e6, 4: 300e6}.get(index, 1980e6)})
    assert of(host, "G09").message.startswith("GPU 4: 300 MHz, others ")
    assert of(host, "G09").gpus == (4, 1)


def test_a_gpu_that_hangs_is_named_before_one_that_is_lost(tmp_path):
    """What helps is about the one that hangs."""
    host = Host(tmp_path)
    happens({"do": "lose", "gpu": 1}, {"do": "hang", "gpu": 6})(host)
    found = of(host, "N04")
    assert found.message.startswith("GPU 6: ")
    assert found.message.endswith("; also GPU 1")
    assert "Kill nothing" in found.remedy
