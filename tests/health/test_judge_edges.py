"""The judge where a small difference matters: what is told twice, told late, or cannot be read."""

import pytest
from msgspec.structs import replace

from gpuwatch.config import ChecksConfig
from gpuwatch.health.gpu_history import GpuHistory
from gpuwatch.health.xid.ledger import XidLedger
from gpuwatch.model.snapshot import Gpu, GpuState, Power
from gpuwatch.model.workload import Workload
from gpuwatch.remediation.planning.evidence import is_clean
from tests.health.judging import Bench, pci
from tests.health.test_checks import LONG_ENOUGH, PCIE, ZOMBIE
from tests.health.xid.test_ledger import line, nvml
from tests.remediation.planning.remediating import Story, view


def test_the_evidence_is_what_was_read_without_tables() -> None:
    bench = Bench()
    bench.make(0, **ZOMBIE)
    bench.look(times=LONG_ENOUGH)
    assert bench.finding("zombie_memory").evidence.keys() == {"memory.used", "utilization.gpu", "pci"}


@pytest.mark.parametrize(("shows", "state", "paced"), [(True, 8, True), (False, 8, False), (True, 2, False)])
def test_only_a_gpu_that_shows_a_desktop_is_slow_on_purpose(shows: bool, state: int, paced: bool) -> None:
    bench = Bench()
    bench.make(0, pcie=replace(PCIE, generation=1), performance_state=state, display_active=shows)
    bench.look(times=LONG_ENOUGH)
    assert ("pcie_degraded" not in bench.checks()) is paced


def test_a_driver_that_hangs_hangs_until_a_gpu_answers() -> None:
    bench = Bench()
    bench.look()
    bench.states = dict.fromkeys(bench.states, GpuState.UNRESPONSIVE)
    bench.pass_time(bench.config.unresponsive_after)
    assert "driver_wedged" in bench.checks()
    bench.states = dict.fromkeys(bench.states, GpuState.UNKNOWN)
    bench.look(times=LONG_ENOUGH)
    assert "driver_wedged" in bench.checks()


def test_a_recovery_that_is_told_of_twice_ends_nothing_that_came_between() -> None:
    bench = Bench()
    said = bench.xid(154, recovery=0, message="GPU recovery action changed")
    bench.look(said)
    bench.look(bench.xid(79))
    bench.look(replace(said, also="nvml"))
    assert "xid_fatal" in bench.checks()


def test_the_same_xid_of_two_unknown_places_at_one_instant_is_two_faults() -> None:
    bench = Bench()
    here, there = bench.xid(79, uuid=None, pci="0000:71:00"), bench.xid(79, uuid=None, pci="0000:72:00")
    bench.look(here, there, there)
    assert {finding.key: finding.count for finding in bench.last.findings if finding.check == "xid_fatal"} == {
        "xid_fatal/0000:71:00/79": 1,
        "xid_fatal/0000:72:00/79": 1,
    }


def test_lines_of_two_gpus_that_came_before_the_gpus_become_theirs() -> None:
    """As after a restart: the kernel log is read again at once, and a GPU may take seconds to say who it is."""
    bench = Bench()
    indices, bench.indices = bench.indices, ()
    bench.look(*(bench.xid(79, uuid=None, pci=pci(gpu)) for gpu in indices))
    assert [finding.gpu for finding in bench.last.findings if finding.xid == 79] == [None, None]
    bench.indices = indices
    bench.look()
    assert {finding.gpu for finding in bench.last.findings if finding.xid == 79} == {"GPU-0", "GPU-1"}


def test_a_line_that_came_before_its_gpu_counts_with_those_that_the_gpu_had() -> None:
    bench = Bench()
    bench.look(bench.xid(79))
    bench.restart()
    indices, bench.indices = bench.indices, ()
    bench.look(bench.xid(79, uuid=None, pci=pci(0)))
    bench.indices = indices
    bench.look()
    assert bench.finding("xid_fatal").count == 2


def test_pods_without_a_name_are_told_apart_by_their_uid() -> None:
    past = GpuHistory("GPU-0", ChecksConfig(), {})
    past.add_failed_pods([Workload(namespace="ml", pod_uid="1"), Workload(namespace="ml", pod_uid="2")], 0.0)
    assert [pod.pod_uid for pod in past.failed_pods()] == ["1", "2"]


def test_an_energy_counter_that_cannot_be_read_for_a_while_still_shows_a_reset() -> None:
    bench = Bench(0)
    bench.look(bench.xid(79))
    gpu = bench.snapshot().gpus[0]

    def look(energy: float | None) -> None:
        bench.now += 2.0
        sample: Gpu = replace(gpu, at=bench.now, power=Power(energy=energy))
        bench.last = bench.judge.judge(replace(bench.snapshot(), gpus=(sample,)), (), bench.attribution)

    look(None)
    look(1e6)
    assert bench.checks() == {"xid_fatal"}
    look(5.0)
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
