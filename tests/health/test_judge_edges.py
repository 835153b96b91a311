"""The judge where a small difference matters: what is told twice, told late, or cannot be read."""

import pytest
from msgspec.structs import replace

from gpuwatch.config import ChecksConfig
from gpuwatch.health.check import UNDECIDED
from gpuwatch.health.checks.xid import failures_on_one_gpu
from gpuwatch.health.gpu_history import GpuHistory
from gpuwatch.health.xid.ledger import XidLedger
from gpuwatch.model.snapshot import Gpu, GpuProcess, GpuState, NvLink, Power
from gpuwatch.model.workload import Workload
from gpuwatch.remediation.planning.evidence import is_clean
from tests.health.judging import Bench, pci
from tests.health.test_checks import LONG_ENOUGH, PCIE, ZOMBIE
from tests.health.xid.test_ledger import line, nvml
from tests.remediation.planning.remediating import Story, view


def test_the_evidence_is_what_was_read_without_tables() -> None:
    bench = Bench()
    bench.make(0, **ZOMBIE)
    bench.cycle(times=LONG_ENOUGH)
    assert bench.finding("zombie_memory").evidence.keys() == {"memory.used", "utilization.gpu", "pci"}


@pytest.mark.parametrize(("shows", "state", "paced"), [(True, 8, True), (False, 8, False), (True, 2, False)])
def test_only_a_gpu_that_shows_a_desktop_is_slow_on_purpose(shows: bool, state: int, paced: bool) -> None:
    bench = Bench()
    bench.make(0, pcie=replace(PCIE, generation=1), performance_state=state, display_active=shows)
    bench.cycle(times=LONG_ENOUGH)
    assert ("pcie_degraded" not in bench.checks()) is paced


def test_a_driver_that_hangs_hangs_until_a_gpu_answers() -> None:
    bench = Bench()
    bench.cycle()
    bench.states = dict.fromkeys(bench.states, GpuState.UNRESPONSIVE)
    bench.pass_time(bench.config.unresponsive_after)
    assert "driver_wedged" in bench.checks()
    bench.states = dict.fromkeys(bench.states, GpuState.UNKNOWN)
    bench.cycle(times=LONG_ENOUGH)
    assert "driver_wedged" in bench.checks()


def test_a_recovery_that_is_reported_twice_ends_nothing_that_came_between() -> None:
    bench = Bench()
    said = bench.xid(154, recovery=0, message="GPU recovery action changed")
    bench.cycle(said)
    bench.cycle(bench.xid(79))
    bench.cycle(replace(said, also="nvml"))
    assert "xid_fatal" in bench.checks()


def test_a_recovery_that_is_reported_twice_takes_back_nothing_reported_of_the_inforom_between() -> None:
    bench = Bench()
    said = bench.xid(154, recovery=0, message="GPU recovery action changed")
    bench.cycle(said)
    bench.cycle(bench.xid(93))
    assert "inforom" in bench.checks()
    bench.cycle(replace(said, also="nvml"))
    assert "inforom" in bench.checks()


def test_the_same_xid_of_two_unknown_places_at_one_instant_is_two_faults() -> None:
    bench = Bench()
    here, there = bench.xid(79, uuid=None, pci="0000:71:00"), bench.xid(79, uuid=None, pci="0000:72:00")
    bench.cycle(here, there, there)
    assert {finding.key: finding.count for finding in bench.last.findings if finding.check == "xid_fatal"} == {
        "xid_fatal/0000:71:00/79": 1,
        "xid_fatal/0000:72:00/79": 1,
    }


def test_lines_of_two_gpus_that_came_before_the_gpus_become_theirs() -> None:
    """As after a restart: the kernel log is read again at once, and a GPU may take seconds to say who it is."""
    bench = Bench()
    indices, bench.indices = bench.indices, ()
    bench.cycle(*(bench.xid(79, uuid=None, pci=pci(gpu)) for gpu in indices))
    assert [finding.gpu for finding in bench.last.findings if finding.xid == 79] == [None, None]
    bench.indices = indices
    bench.cycle()
    assert {finding.gpu for finding in bench.last.findings if finding.xid == 79} == {"GPU-0", "GPU-1"}


def test_a_line_that_came_before_its_gpu_counts_with_those_that_the_gpu_had() -> None:
    bench = Bench()
    bench.cycle(bench.xid(79))
    bench.restart()
    indices, bench.indices = bench.indices, ()
    bench.cycle(bench.xid(79, uuid=None, pci=pci(0)))
    bench.indices = indices
    bench.cycle()
    assert bench.finding("xid_fatal").count == 2


def test_pods_without_a_name_are_distinguished_by_their_uid() -> None:
    past = GpuHistory("GPU-0", ChecksConfig(), {})
    past.add_failed_pods([Workload(namespace="ml", pod_uid="1"), Workload(namespace="ml", pod_uid="2")], 0.0)
    assert [pod.pod_uid for pod in past.failed_pods()] == ["1", "2"]


def test_an_energy_counter_that_cannot_be_read_for_a_while_still_shows_a_reset() -> None:
    bench = Bench(0)
    bench.cycle(bench.xid(79))
    gpu = bench.snapshot().gpus[0]

    def cycle(energy: float | None) -> None:
        bench.now += 2.0
        sample: Gpu = replace(gpu, at=bench.now, power=Power(energy=energy))
        bench.last = bench.judge.judge(replace(bench.snapshot(), gpus=(sample,)), (), bench.attribution)

    cycle(None)
    cycle(1e6)
    assert bench.checks() == {"xid_fatal"}
    cycle(5.0)
    assert bench.checks() == set()


def test_an_event_that_is_no_longer_kept_is_not_kept_again_when_it_is_completed() -> None:
    book = XidLedger(recent=1)
    book.observe(nvml(10.0))
    book.observe(nvml(11.0, 31))
    kept = book.events()
    assert book.observe(line(10.5)) is None
    assert book.events() == kept


def test_without_a_quarantine_every_gpu_has_to_be_known_for_the_node_to_be_clean() -> None:
    story = Story()
    assert is_clean(story.observation, story.node, story.policy)
    story.view = view(unknown=("GPU-1",))
    assert not is_clean(story.observation, story.node, story.policy)


def test_a_sample_that_is_shown_again_is_not_new() -> None:
    past = GpuHistory("GPU-0", ChecksConfig(), {})
    bench = Bench(0)
    snapshot = bench.snapshot()
    for now, is_new in ((0.0, True), (1.0, False)):
        past.update(snapshot.statuses[0], snapshot.gpus[0], (), now, 1.0, 1)
        assert past.is_new is is_new


def test_a_pod_that_failed_again_is_remembered_from_its_latest_failure_on() -> None:
    past = GpuHistory("GPU-0", ChecksConfig(repeat_window=100.0), {})
    for now in (0.0, 90.0, 50.0):
        past.add_failed_pods([Workload(namespace="ml", pod="a")], now)
    past.update(None, None, (), 180.0, 2.0, 1)
    assert [pod.pod for pod in past.failed_pods()] == ["a"]
    past.update(None, None, (), 191.0, 2.0, 2)
    assert past.failed_pods() == ()


def test_memory_of_processes_that_the_driver_lists_is_no_zombies() -> None:
    bench = Bench(0)
    bench.make(0, **ZOMBIE, processes=(GpuProcess(pid=7, type="compute", used_memory=3 << 30),))
    bench.cycle(times=LONG_ENOUGH)
    assert "zombie_memory" not in bench.checks()


def test_link_errors_name_the_link_that_has_most() -> None:
    bench = Bench(0)
    for errors in (10, 1010):
        few, many = (NvLink(link=n, active=True, errors={"replay": count}) for n, count in ((2, 0), (5, errors)))
        bench.make(0, nvlinks=(few, many))
        bench.cycle()
    assert bench.finding("nvlink_errors").message.endswith(", most on link 5")


def test_a_gpu_that_does_not_answer_is_not_at_fault_for_its_pods_failures_again() -> None:
    bench = Bench(0)
    bench.states[0] = GpuState.UNRESPONSIVE
    past = GpuHistory("GPU-0", ChecksConfig(), {})
    past.update(bench.snapshot().statuses[0], None, (), 0.0, 2.0, 1)
    past.add_failed_pods([Workload(namespace="ml", pod=f"p-{n}") for n in range(50)], 0.0)
    assert failures_on_one_gpu(past) is UNDECIDED
