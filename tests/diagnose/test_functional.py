"""How the runs of the active checks are judged where there is more than right and wrong: refused, cut up, unknown."""

from typing import Any, get_args

import pytest
from msgspec.structs import replace

from gpuwatch.diagnose.active.results import Active, DeviceRun, Test
from gpuwatch.diagnose.check import CheckContext, CheckVerdict, failed, passed
from gpuwatch.diagnose.checks.functional import FUNCTIONAL, pcie_bandwidth
from gpuwatch.diagnose.checks.remedies import BY_CODE, BY_FAULT
from gpuwatch.diagnose.checks.table import CHECKS
from gpuwatch.diagnose.engine import diagnose
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.model import CheckStatus
from gpuwatch.model.snapshot import Pcie
from tests.diagnose.hosts import seen

ROWS = {check.id: check for check in FUNCTIONAL}


def judged(id_: str, *runs: DeviceRun, selected: frozenset[int] | None = None) -> CheckVerdict:
    facts = NodeFacts(at=0.0, view=seen(gpus=2), active=Active(runs=runs))
    return ROWS[id_].judge(CheckContext(facts, selected=selected))


def run(index: int, test: str = "vector_add", **members: Any) -> DeviceRun:
    return DeviceRun(test=test, device=members.pop("device", f"GPU-{index}"), index=index, **members)


def test_some_refused_is_still_a_pass_that_reports_it():
    verdict = judged("X01", run(0), run(1, refused="allocated to ml/train-0"))
    assert (verdict.result, verdict.message) == (CheckStatus.PASS, "right on 1 GPU; 1 not tried")
    assert verdict.evidence == {"gpu 1": "not tried: allocated to ml/train-0"}


def test_all_refused_is_a_skip_with_the_reasons():
    verdict = judged("X01", run(0, refused="in use by 1 process"), run(1, refused="it is lost"))
    assert (verdict.result, verdict.message) == (
        CheckStatus.SKIP,
        "not tried: GPU 0: in use by 1 process; GPU 1: it is lost",
    )


def test_nothing_tried_at_all():
    assert judged("X03") == CheckVerdict(CheckStatus.SKIP, "not tried: no device")
    assert judged("X04").message == "not tried: no pair of GPUs was left"


def test_only_gpus_that_were_asked_for_are_judged():
    broken = run(1, error="wrong", fault="wrong")
    assert judged("X01", run(0), broken, selected=frozenset({0})).result is CheckStatus.PASS
    assert judged("X01", run(0), broken).gpus == (1,)


def test_a_gpu_that_does_not_answer_hides_no_wrong_result_of_another():
    silent = {"N04": failed("GPU 3: no answer", gpus=(3,))}
    table = [row if row.id in ROWS else row._replace(judge=lambda case, id_=row.id: silent.get(id_, passed()), reads=())
             for row in CHECKS]  # fmt: skip
    wrong = [run(5, test, peer=6 if test == "peer" else None, error="wrong", fault="wrong") for test in get_args(Test)]
    for runs, ids in ((wrong[:1], ("X01",)), (wrong[1:], ("X02", "X03", "X04"))):
        active = Active(runs=(*(() if runs == wrong[:1] else (run(5),)), *runs))
        found = diagnose(CheckContext(NodeFacts(at=0.0, view=seen(), active=active)), table, active=True)
        assert [found.of(id_).result for id_ in ids] == [CheckStatus.FAIL] * len(ids)
        assert all(5 in found.of(id_).gpus for id_ in ids)


def test_instances_are_counted_and_named():
    instance = run(0, device="MIG-03bb6ba4")
    assert judged("X01", instance, run(1)).message == "right on 1 GPU, 1 MIG instance"
    verdict = judged("X01", replace(instance, error="boom", fault="wrong"))
    assert verdict.message == "GPU 0 MIG-03bb6ba4: boom"
    assert verdict.evidence == {"gpu 0 MIG-03bb6ba4": "boom"}


SPEEDS = {  # of 63 GB/s
    (55e9, "GPU-0"): CheckStatus.PASS,
    (38e9, "GPU-0"): CheckStatus.PASS,
    (37e9, "GPU-0"): CheckStatus.WARN,
    (16e9, "GPU-0"): CheckStatus.WARN,
    (15e9, "GPU-0"): CheckStatus.FAIL,
    (16e9, "MIG-0"): CheckStatus.PASS,
    (15e9, "MIG-0"): CheckStatus.FAIL,
}


@pytest.mark.parametrize(("speed", "device"), SPEEDS)
@pytest.mark.parametrize("slow", ["host_to_device", "device_to_host"])
def test_copies_are_measured_by_their_link(speed, device, slow):
    speeds = {"host_to_device": 55e9, "device_to_host": 55e9} | {slow: speed}
    assert judged("X02", run(0, "bandwidth", device=device, **speeds)).result is SPEEDS[speed, device]


def test_an_unknown_link_sets_no_limit():
    verdict = judged("X02", run(7, "bandwidth", host_to_device=1e9, device_to_host=1e9))
    assert (verdict.result, verdict.message) == (CheckStatus.PASS, "1 GPU, at least 1.0 GB/s")
    assert pcie_bandwidth(None) is None
    assert pcie_bandwidth(Pcie(generation_max=5)) is None
    assert pcie_bandwidth(Pcie(generation_max=9, width_max=16)) is None


def test_an_idle_link_is_measured_by_what_it_can_be():
    assert pcie_bandwidth(Pcie(generation=1, generation_max=4, width=16, width_max=16)) == pytest.approx(31.504e9)
    assert pcie_bandwidth(Pcie(generation=3, width=8)) == pytest.approx(7.88e9)


def test_every_remedy_has_words_and_something_to_run():
    for remedy in (*BY_CODE.values(), *BY_FAULT.values()):
        assert remedy.text.endswith(".")
        assert remedy.commands


def by_link(id_: str, *runs: DeviceRun, pcie: Pcie) -> CheckVerdict:
    """Judged where both GPUs have such a link."""
    view = seen(gpus=2)
    gpus = tuple(replace(gpu, pcie=pcie) for gpu in view.snapshot.gpus)
    view = replace(view, snapshot=replace(view.snapshot, gpus=gpus))
    return ROWS[id_].judge(CheckContext(NodeFacts(at=0.0, view=view, active=Active(runs=runs))))


LINK = Pcie(generation_max=1, width_max=4)
FULL = 1e9
"""Bytes per second that it carries."""

SHARES = {
    0.61: CheckStatus.PASS,
    0.6: CheckStatus.PASS,
    0.59: CheckStatus.WARN,
    0.25: CheckStatus.WARN,
    0.24: CheckStatus.FAIL,
}


@pytest.mark.parametrize("share", SHARES)
def test_the_limits_of_copies_are_not_below_themselves(share):
    verdict = by_link("X02", run(0, "bandwidth", host_to_device=share * FULL, device_to_host=FULL), pcie=LINK)
    assert verdict.result is SHARES[share]


def test_of_slow_copies_the_slowest_is_named():
    shares = {0: 0.5, 1: 0.4}
    runs = [run(i, "bandwidth", host_to_device=FULL, device_to_host=share * FULL) for i, share in shares.items()]
    verdict = by_link("X02", *runs, pcie=LINK)
    assert verdict.message == "GPU 1: 1.0 GB/s to the GPU, 0.4 GB/s back, of 1.0 (PCIe 1.0 x4)"
    assert verdict.gpus == (0, 1)


PEERS = {2 * FULL: CheckStatus.PASS, FULL: CheckStatus.WARN, FULL / 2: CheckStatus.WARN}


@pytest.mark.parametrize("speed", PEERS)
def test_nvlink_must_be_faster_than_pcie(speed):
    pair = run(0, "peer", peer=1, peer_bandwidth=speed)
    assert by_link("X04", pair, pcie=LINK).result is PEERS[speed]
    assert by_link("X04", pair, pcie=Pcie()).result is CheckStatus.PASS
