"""What follows from what: of each scenario one fault is shown, with the rest below it."""

import itertools

import pytest

from gpuwatch.config import Config
from gpuwatch.health.causes import CAUSES, with_causes
from gpuwatch.health.checks import CHECK_BY_NAME
from gpuwatch.model.finding import Finding, Remedy, Severity
from gpuwatch.sim.node.scenario import load
from gpuwatch.sim.playback import views
from tests.health.judging import Bench


def finding(check: str, gpu: str | None = "GPU-0", xid: int | None = None, **members: object) -> Finding:
    row = CHECK_BY_NAME[check]
    known = {"severity": row.severity, "message": "", "remedy": row.remedy, "since": 1.0}
    return Finding(check=check, gpu=gpu, xid=xid, **{**known, **members})


def causes(*findings: Finding) -> dict[str, str | None]:
    return {each.key: each.caused_by for each in with_causes(findings)}


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.checks[0])
def test_each_effect_is_folded_under_its_cause_and_no_cause_under_its_effect(cause) -> None:
    for check, effect in itertools.product(cause.checks, cause.effects):
        if check == effect:
            continue
        gpu = None if CHECK_BY_NAME[check].fault_domain == "node" else "GPU-0"
        root = finding(check, gpu, severity=Severity.CRITICAL)
        below = finding(effect, severity=Severity.CRITICAL)
        assert causes(root, below) == {root.key: None, below.key: root.key} == causes(below, root)


def test_of_one_gpu_only_and_never_under_something_milder() -> None:
    lost, other = finding("gpu_lost"), finding("xid_fatal", gpu="GPU-1", xid=79)
    assert causes(lost, other)[other.key] is None
    advised, fatal = finding("xid_contained", xid=94), finding("ecc_uncorrected", severity=Severity.CRITICAL)
    assert causes(advised, fatal)[fatal.key] is None


def test_a_switch_explains_the_links_of_all_gpus() -> None:
    switch, links = finding("sxid_fatal", None), [finding("nvlink_down", gpu=f"GPU-{index}") for index in range(8)]
    assert set(causes(switch, *links).values()) == {None, switch.key}


def test_a_chain_ends_at_its_root() -> None:
    lost, asked = finding("gpu_lost"), finding("recovery_action")
    found = causes(finding("ecc_uncorrected"), finding("xid_fatal", xid=79), asked, lost)
    assert set(found.values()) == {None, lost.key}


def test_of_several_xids_the_gravest_remedy_then_the_oldest_is_the_root() -> None:
    old, new = finding("xid_fatal", xid=95), finding("xid_fatal", xid=64, since=9.0)
    assert causes(new, old) == {old.key: None, new.key: old.key}
    reboot = finding("xid_fatal", xid=79, since=9.0, remedy=Remedy.REBOOT_NODE)
    assert causes(old, reboot) == {reboot.key: None, old.key: reboot.key}


def test_what_belongs_to_the_owner_or_needs_a_replacement_stands_for_itself() -> None:
    found = causes(finding("gpu_lost"), finding("xid_application", xid=13), finding("row_remap_failure"))
    assert list(found.values()) == [None, None, None]


@pytest.mark.parametrize(
    ("scenario", "seconds", "roots"),
    [
        ("fallen-off-bus", 63.0, ["gpu_lost"]),
        pytest.param("ecc-storm", 200.0, ["recovery_action"], marks=pytest.mark.slow),
        pytest.param("gsp-timeout", 165.0, ["gpu_unresponsive"], marks=pytest.mark.slow),
        ("driver-hang", 110.0, ["driver_wedged", "monitoring_degraded"]),
        pytest.param("nvlink-down", 200.0, ["recovery_action", "sxid_fatal"], marks=pytest.mark.slow),
    ],
)
def test_a_scenario_has_one_fault_however_many_checks_it_fails(scenario, seconds, roots) -> None:
    """The slow ones' rows are tried one by one above."""
    *_, view = views(load(scenario), Config(), 0.0, seconds, short_step=5.0)
    findings = view.judgement.findings
    assert [each.check for each in findings if each.caused_by is None] == roots
    assert len(findings) > len(roots)
    assert {each.caused_by for each in findings} - {None} <= {each.key for each in findings}


def test_a_restart_or_an_end_of_the_root_leaves_nothing_stale() -> None:
    bench = Bench(0)
    bench.make(0, recovery_action=1)
    bench.cycle(bench.xid(95))
    assert bench.finding("xid_fatal").caused_by == bench.finding("recovery_action").key
    bench.make(0, recovery_action=0)
    bench.cycle(times=3)
    assert bench.finding("xid_fatal").caused_by is None
