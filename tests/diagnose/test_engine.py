"""What is blocked, what is skipped, and what is said of both."""

import logging
import shlex

import pytest

from gpuwatch.diagnose.check import CheckContext, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.per_gpu import gpu_list
from gpuwatch.diagnose.checks.table import CHECKS
from gpuwatch.diagnose.engine import diagnose
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.model import CheckStage, CheckStatus
from gpuwatch.model.snapshot import GpuState, GpuStatus, Identity, Snapshot
from gpuwatch.model.text import visible
from gpuwatch.model.view import AgentStatus, View


def row(id_, judge=lambda context: passed(), **fields):
    base = {"title": f"{id_} is well", "how": "", "remedy": "mend it"}
    return DiagnosticCheck(id=id_, stage=CheckStage.HOST, judge=judge, **base | fields)


def judged(*rows, facts=None, **how):
    return diagnose(CheckContext(facts or NodeFacts(at=1.0, node="n1")), rows, **how)


def test_what_needs_a_broken_check_is_blocked_by_the_first_one_however_far_down():
    found = judged(
        row("A", lambda context: failed("broken")), row("B", needs=("A",)), row("C", needs=("B",)), row("D"), row("E")
    )
    assert [(r.result, r.blocked_by) for r in found.results] == [
        (CheckStatus.FAIL, None),
        (CheckStatus.SKIP, "A"),
        (CheckStatus.SKIP, "A"),
        (CheckStatus.PASS, None),
        (CheckStatus.PASS, None),
    ]
    assert found.first.id == "A"


def test_a_check_may_need_one_that_stands_below_it():
    found = judged(row("A", needs=("B",)), row("B", lambda context: failed("broken")))
    assert [r.id for r in found.results] == ["A", "B"]
    assert found.of("A").blocked_by == "B"
    assert found.first.id == "B"


def of_gpus(id_, blamed=(), **fields):
    """A row that judges each GPU; its message says about which it was asked."""

    def judge(context):
        bad = tuple(sorted(context.indexes & set(blamed)))
        return failed("broken", gpus=bad) if bad else passed(",".join(map(str, sorted(context.indexes))))

    return row(id_, judge, each=True, **fields)


def gpus(count):
    statuses = [
        GpuStatus(identity=Identity(index=i, uuid=f"GPU-{i}", pci_bus_id=f"00000000:0{i}:00.0"), state=GpuState.FRESH)
        for i in range(count)
    ]
    snapshot = Snapshot(at=1.0, interval=1.0, statuses=tuple(statuses))
    return NodeFacts(at=1.0, view=View(snapshot=snapshot, agent=AgentStatus(version="1", started=0.0)))


def test_a_broken_gpu_keeps_checks_of_each_gpu_from_none_of_the_others():
    found = judged(
        of_gpus("A", {1}), of_gpus("B", {2}, needs=("A",)), of_gpus("C", needs=("B",)), row("D", needs=("C",)),
        facts=gpus(4),
    )  # fmt: skip
    assert [(r.result, r.gpus, r.blocked_by) for r in found.results] == [
        (CheckStatus.FAIL, (1,), None),
        (CheckStatus.FAIL, (2,), None),
        (CheckStatus.PASS, (), None),
        (CheckStatus.SKIP, (), "A"),
    ]
    assert found.of("C").message == "0,3"
    assert found.of("C").evidence == {"gpu 1": "not judged, see A", "gpu 2": "not judged, see B"}


def test_a_failure_of_a_gpu_that_nobody_can_name_keeps_no_check_from_the_others():
    nameless = row("A", lambda context: failed("7 of 8 GPUs"), each=True)
    found = judged(nameless, of_gpus("B", needs=("A",)), row("C", needs=("A",)), facts=gpus(2))
    assert found.of("B").result is CheckStatus.PASS
    assert found.of("C").blocked_by == "A"


def test_checks_of_each_gpu_are_blocked_when_no_gpu_is_left():
    found = judged(of_gpus("A", {0, 1}), of_gpus("B", needs=("A",)), facts=gpus(2))
    assert found.of("B").blocked_by == "A"


def test_warnings_and_skips_block_nothing():
    found = judged(
        row("A", lambda context: warned("odd")),
        row("B", lambda context: skipped("no switch")),
        row("C", needs=("A", "B")),
    )
    assert found.of("C").result is CheckStatus.PASS
    assert found.first.id == "A"


def test_what_was_not_read_is_not_judged_and_says_why():
    facts = NodeFacts(at=1.0, unread={"cdi": "permission denied"})
    found = judged(row("A", lambda context: failed("nonsense"), reads=("cdi",)), facts=facts)
    assert found.of("A").result is CheckStatus.SKIP
    assert "permission denied" in found.of("A").message


def test_a_check_that_fails_by_itself_hides_no_other(caplog):
    with caplog.at_level(logging.CRITICAL):
        found = judged(row("A", lambda context: passed(str(1 // 0))), row("B"))
    assert "ZeroDivisionError" in found.of("A").message
    assert found.of("B").result is CheckStatus.PASS


def test_active_checks_run_only_when_asked_for():
    table = (row("A", active=True),)
    assert judged(*table).of("A").result is CheckStatus.SKIP
    assert judged(*table, active=True).of("A").result is CheckStatus.PASS


def test_a_stage_brings_what_it_stands_on_only_when_that_is_broken():
    table = (
        row("A", lambda context: failed("broken")),
        row("B"),
        row("C", needs=("A", "B"))._replace(stage=CheckStage.NVML),
    )
    assert [r.id for r in judged(*table, stages=frozenset({CheckStage.NVML})).results] == ["A", "C"]


def test_a_quick_diagnosis_leaves_out_what_takes_long():
    assert [r.id for r in judged(row("A"), row("B", level="full"), level="quick").results] == ["A"]


def test_remedy_and_commands_name_the_node_and_the_first_faulty_gpu():
    broken = row("A", lambda context: failed("broken", gpus=(3, 5)), commands=("reset {gpu}",), remedy="Drain {node}.")
    found = judged(broken).of("A")
    assert (found.remedy, found.commands) == ("Drain n1.", ("reset 3",))


def test_a_command_to_copy_has_the_node_as_one_word_whatever_its_name():
    name = "gpu-1; reboot\n$(id) \x1b[2J"
    rows = row("a", lambda context: failed("broken"), commands=("kubectl get node {node} -o yaml", "x --by=n={node}"))
    (result,) = judged(rows, facts=NodeFacts(at=0.0, node=name)).results
    assert [shlex.split(command) for command in result.commands] == [
        ["kubectl", "get", "node", visible(name), "-o", "yaml"],
        ["x", f"--by=n={visible(name)}"],
    ]


def test_the_table_is_in_the_order_of_stages_and_names_only_checks_it_has():
    ids = [check.id for check in CHECKS]
    order = list(CheckStage)
    assert len(set(ids)) == len(ids)
    assert [order.index(check.stage) for check in CHECKS] == sorted(order.index(check.stage) for check in CHECKS)
    assert {need for check in CHECKS for need in check.needs} <= set(ids)
    assert all(check.title and check.how and check.remedy for check in CHECKS)


@pytest.mark.parametrize(
    ("gpus", "text"),
    [((3,), "GPU 3"), ((7, 0, 1, 2), "GPUs 0-2, 7"), ((0, 1, 4), "GPUs 0, 1, 4"), ((0, 2), "GPUs 0, 2")],
)
def test_gpus_in_a_row_are_a_span(gpus, text):
    assert gpu_list(gpus) == text
