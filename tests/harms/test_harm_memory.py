"""Harms by forgetting, and by taking a restart or a reboot for a cure; over HTTP or with the real judge."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.model.finding import Judgement
from gpuwatch.model.snapshot import GpuState, Host, RowRemap
from gpuwatch.remediation.model import BlockReason
from gpuwatch.storage.store import Store
from tests.harms.chain import Chain
from tests.harms.conftest import Start
from tests.remediation.model.remediating import Bench, FakeClock, fatal

BOOT = "boot-after"


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    with closing(Chain(tmp_path)) as running:
        yield running


def reasons(bench: Bench) -> set[str]:
    plan = bench.remediator.state.plan
    return {obstacle.reason for obstacle in plan.blocked} if plan else set()


def reboot(bench: Bench) -> None:
    """The kubelet tells of the new boot, and so does the agent."""
    status = bench.node["status"]
    info = {**status["nodeInfo"], "bootID": BOOT}
    bench.cluster.put("nodes", {**bench.node, "status": {**status, "nodeInfo": info}})
    bench.views.boot_id = BOOT
    bench.views.poll()


# ---- restarts


def test_a_restart_without_any_memory_keeps_the_quarantine_and_ends_it_when_all_is_well(start: Start) -> None:
    bench = start()
    bench.finds(fatal())
    bench.run(30)
    before = bench.taints, bench.annotations
    bench.ledger.documents.clear()
    bench.restarted()
    bench.run(120)
    assert (bench.taints, bench.annotations) == before
    bench.finds()
    bench.ledger.documents.clear()
    bench.restarted()
    bench.run(120)
    assert bench.is_clean()


def test_an_agent_that_starts_again_remembers_what_it_found(chain: Chain, tmp_path: Path) -> None:
    """Its finding goes through the real store and back; a GPU that nobody has read yet is not taken for well."""
    store = Store.open(str(tmp_path / "state"), FakeClock())
    chain.cycle()
    chain.fail(79)
    chain.cycle(read=True)
    store.save_open(chain.bench.last.findings)
    store.close()
    again = Store.open(str(tmp_path / "state"), FakeClock())
    chain.bench.last = Judgement(findings=again.open_findings())
    again.close()
    chain.bench.restart()
    chain.bench.states[0] = GpuState.UNKNOWN
    chain.cycle(5)
    assert chain.bench.checks() == {"xid_fatal"}
    assert chain.quarantines == 1
    assert chain.taints


# ---- reboots


@pytest.mark.parametrize(
    ("after", "tainted"),
    [
        ({"row_remap": RowRemap(corrected=0, uncorrected=1, pending=True, failure=False)}, True),
        ({"row_remap": RowRemap(corrected=0, uncorrected=9, pending=False, failure=True)}, True),
        ({"recovery_action": 2}, True),
        ({"errors": {"recovery_action": "Unknown Error"}}, True),
        ({}, False),
    ],
)
def test_a_boot_cures_only_what_is_seen_to_be_well(chain: Chain, after: dict[str, object], tainted: bool) -> None:
    chain.cycle()
    chain.fail(95)
    chain.cycle(read=True)
    assert chain.taints
    chain.bench.restart(host=Host(boot_id=BOOT))
    node = chain.story.node
    chain.story.cluster.node = replace(node, host=replace(node.host, boot_id=BOOT))
    chain.bench.make(0, **after)
    chain.cycle(60)
    assert bool(chain.taints) is tainted
    assert chain.quarantines == 1


def test_a_boot_by_itself_gives_nothing_back(start: Start) -> None:
    bench = start()
    bench.finds(fatal())
    bench.run(30)
    reboot(bench)
    bench.run(600)
    assert len(bench.ours) == 1
    assert bench.ledger.done().count("untaint") == 0


def test_a_fault_that_comes_back_too_often_waits_for_a_person(start: Start) -> None:
    bench = start(repeats=3)
    for _ in range(3):
        assert bench.ours == []
        bench.finds(fatal(bench.clock.time()))
        bench.run(30)
        assert len(bench.ours) == 1
        bench.finds()
        bench.run(600)
    assert len(bench.ours) == 1
    assert BlockReason.HELD in reasons(bench)
