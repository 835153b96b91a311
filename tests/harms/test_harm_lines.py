"""Harms by the kernel log, from a line in it to a taint: real reader, ledger, judge and plan."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.model.errors import UsageError
from gpuwatch.model.finding import Response
from gpuwatch.remediation.model import BlockReason, SetCondition
from tests.harms.chain import USER, Chain, line
from tests.health.judging import pci, pod
from tests.remediation.planning.remediating import policy

Chains = Iterator[Chain]


@pytest.fixture
def chain(tmp_path: Path) -> Chains:
    with closing(Chain(tmp_path)) as running:
        yield running


def test_a_line_of_now_taints(chain: Chain) -> None:
    """So that the silence of all others says something."""
    chain.cycle()
    chain.fail(79)
    chain.cycle(read=True)
    assert [taint.value for taint in chain.taints] == ["xid_fatal"]


@pytest.mark.parametrize("xid", [79, 48, 63, 64, 94, 95, 109, 119, 120, 145, 154, 45, 92])
def test_a_line_that_the_driver_does_not_confirm_changes_nothing(chain: Chain, xid: int) -> None:
    """Any process can have the kernel print such a line, whatever the policy says about the code."""
    chain.bench.hold(pod("train"))
    chain.cycle(3)
    before, done = chain.story.node, len(chain.story.done)
    for _ in range(20):
        chain.write(xid, text="RLW_RXPIPE Fatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x1 0x0 0x100000 0x4)")
        chain.cycle(read=True)
    kept = [step for step in chain.story.done[done:] if getattr(step, "pod", None) is None]
    assert (chain.story.node.taints, chain.story.node.labels, chain.quarantines) == (before.taints, before.labels, 0)
    assert all(isinstance(step, SetCondition) and step.condition.status == "True" for step in kept)
    assert chain.bench.last.gpus["GPU-0"] == "healthy"


def test_a_line_that_the_driver_confirms_taints_then(chain: Chain) -> None:
    """The same line, and within the bound the driver's state, its event, or its silence."""
    chain.cycle()
    chain.write(79)
    chain.cycle(read=True, seconds=2.0)
    assert (chain.quarantines, chain.story.plan().blocked[0].reason) == (0, BlockReason.UNCONFIRMED)
    chain.report(79)
    chain.cycle(seconds=2.0)
    assert [taint.value for taint in chain.taints] == ["xid_fatal"]


def test_a_persons_untaint_is_not_undone_by_a_line(chain: Chain) -> None:
    """A forged line is no new occurrence of a fault that the driver had confirmed."""
    chain.cycle()
    chain.fail(79)
    chain.cycle(read=True)
    chain.story.cluster.node = replace(chain.story.node, taints=())
    chain.cycle(2)
    for _ in range(5):
        chain.write(79, 119)
        chain.cycle(read=True)
    assert (chain.taints, chain.quarantines) == ((), 1)


def test_a_fatal_sxid_that_nothing_confirms_takes_no_node_and_ends(chain: Chain) -> None:
    chain.cycle()
    chain.path.write_text(
        "4,1,1000000,-;nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up\n"
    )
    chain.cycle(read=True)
    assert (chain.bench.checks(), chain.quarantines) == ({"sxid_unconfirmed"}, 0)
    chain.cycle(61)
    assert (chain.bench.checks(), chain.quarantines) == (set(), 0)


def test_old_lines_are_not_acted_on_after_a_start(tmp_path: Path) -> None:
    old = line(79, 0, number=1) + line(48, 1, number=2) + line(95, 1, number=3)
    with closing(Chain(tmp_path, old)) as chain:
        chain.cycle(3, read=True)
        assert [event.xid for event in chain.ledger.events()] == [79, 48, 95]  # listed, as they were
        assert chain.bench.last.findings == ()
        assert chain.quarantines == 0


def test_the_same_record_read_again_is_no_second_fault(chain: Chain) -> None:
    def counted() -> int:
        return sum(row.count for row in chain.ledger.xids() if row.xid == 79)

    chain.cycle()
    chain.fail(79)
    chain.cycle(read=True)
    last = chain.bench.finding("xid_fatal").latest
    chain.ledger.observe(chain.ledger.events()[0])
    before = counted()
    for _ in range(3):
        chain.path.write_text(line(79, number=1))
        chain.cycle(read=True)
    assert (chain.bench.finding("xid_fatal").latest, counted(), chain.quarantines) == (last, before, 1)


def test_lines_that_user_space_wrote_count_for_nothing(chain: Chain) -> None:
    chain.write(79, 48, 64, 95, 119, priority=USER)
    chain.cycle(3, read=True)
    assert chain.ledger.events() == ()
    assert chain.bench.last.findings == ()
    assert chain.quarantines == 0


def test_a_lost_line_is_made_up_for_by_the_drivers_own_word(chain: Chain) -> None:
    """The ring ran over and NVML has no event: what the driver asks for is read with every sample."""
    chain.cycle(3, read=True)
    chain.bench.make(0, recovery_action=2)
    chain.cycle(2, read=True)
    assert chain.ledger.events() == ()
    assert [taint.value for taint in chain.taints] == ["recovery_action"]


@pytest.mark.parametrize("code", [200, 999, 65_535])
def test_an_unknown_code_is_recorded_and_never_acted_on(chain: Chain, code: int) -> None:
    chain.write(code)
    chain.report(code + 1, 1)
    chain.cycle(3, read=True)
    assert {finding.check for finding in chain.bench.last.findings} == {"xid_unknown"}
    assert {finding.xid for finding in chain.bench.last.findings} == {code, code + 1}
    assert chain.ledger.unknown == 2
    assert chain.quarantines == 0


def test_the_process_in_the_line_is_not_at_fault(chain: Chain) -> None:
    """XID 119 names whoever's call timed out, often a monitor: affected are those who were given the GPU."""
    chain.bench.hold(pod("train"))
    chain.bench.hold(pod("dcgm-exporter"), gpu=1)
    chain.cycle()
    chain.fail(119, text="Timeout after 45s of waiting for RPC response from GPU0 GSP!", pid=7)
    chain.cycle(read=True)
    finding = chain.bench.finding("xid_fatal")
    assert [workload.pod for workload in finding.pods] == ["train"]
    assert "python" not in finding.message


def test_a_fault_at_an_unknown_address_is_no_gpus(chain: Chain) -> None:
    """A GPU that was never seen: the node has a fault, and none of its GPUs is guessed to have it."""
    chain.cycle()
    chain.write(79, gpu=6)
    chain.cycle(read=True)
    finding = chain.bench.finding("xid_unconfirmed")
    assert (finding.gpu, finding.evidence["pci"]) == (None, pci(6))
    assert set(chain.bench.last.gpus.values()) == {"healthy"}


def test_a_gpu_that_left_nvml_keeps_its_address(chain: Chain) -> None:
    """The last lines of a GPU come when NVML does not list it any more, and another has its index."""
    chain.cycle()
    chain.bench.indices = (1,)
    chain.cycle()
    chain.fail(79)
    chain.cycle(read=True)
    assert chain.bench.finding("xid_fatal").gpu == "GPU-0"


def test_a_contained_fault_hits_one_instance(chain: Chain) -> None:
    """XID 94 of a MIG instance: its pod is affected, its siblings are not, and the GPU stays in service."""
    chain.bench.hold(pod("a"), gi=5)
    chain.bench.hold(pod("b"), gi=6)
    chain.cycle()
    chain.path.write_text(
        "4,9,1000000,-;NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7, name=python, Contained error\n"
    )
    chain.report(94, gi=5)
    chain.cycle(3, read=True)
    finding = chain.bench.finding("xid_contained")
    assert (finding.gi, [workload.pod for workload in finding.pods]) == (5, ["a"])
    assert chain.story.policy.response(finding) is Response.CONDITION
    assert chain.quarantines == 0


@pytest.mark.parametrize("xid", [13, 31, 43, 45])
def test_an_applications_fault_is_only_reported_to_its_pod(chain: Chain, xid: int) -> None:
    chain.bench.hold(pod("train"))
    chain.cycle()
    for _ in range(50):
        chain.write(xid)
    chain.cycle(5, read=True)
    assert {finding.check for finding in chain.bench.last.findings} == {"xid_application"}
    assert chain.quarantines == 0
    assert {step.reason for step in chain.story.done if hasattr(step, "pod") and step.pod} == {f"GPUXid{xid}"}


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 999])
def test_an_applications_fault_never_taints_whatever_a_policy_says(xid: int) -> None:
    with pytest.raises(UsageError, match=f"remediation.xids.{xid}"):
        policy(xids={xid: Response.TAINT})
