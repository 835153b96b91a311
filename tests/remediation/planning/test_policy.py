"""The policy: which key decides, how far it may go, and what a typo is told."""

from typing import Any

import pytest

from gpuwatch.config import RemediationConfig
from gpuwatch.health.checks import CHECKS
from gpuwatch.model.errors import UsageError
from gpuwatch.model.finding import Response
from gpuwatch.remediation.planning.policy import Policy
from tests.remediation.planning.remediating import finding, policy


@pytest.mark.parametrize("row", CHECKS, ids=lambda row: row.name)
def test_no_default_goes_further_than_its_check_may(row: Any) -> None:
    assert row.most.reaches(row.response)
    assert policy().answer(row.name) is row.response


@pytest.mark.parametrize("check", ["xid_application", "xid_unknown", "monitoring_degraded", "xid_application_repeated"])
@pytest.mark.parametrize("response", [Response.TAINT, Response.CORDON, Response.DRAIN])
def test_what_is_no_fault_of_a_gpu_may_not_taint(check: str, response: Response) -> None:
    with pytest.raises(UsageError, match=f"remediation.checks.{check}") as raised:
        policy(checks={check: response})
    assert "observe" in raised.value.next_step
    assert "taint" not in raised.value.next_step


def test_an_xid_overrules_its_check_and_the_check_the_table() -> None:
    mine = policy(checks={"xid_fatal": "cordon"}, xids={79: Response.DRAIN, 48: Response.OBSERVE})
    answers = {xid: mine.response(finding("xid_fatal", xid=xid)) for xid in (79, 48, 119)}
    assert answers == {79: Response.DRAIN, 48: Response.OBSERVE, 119: Response.CORDON}


def test_an_xid_raises_no_finding_above_what_its_check_may() -> None:
    mine = policy(xids={63: Response.DRAIN})
    assert mine.answer("xid_contained", 63) is Response.DRAIN
    assert mine.answer("xid_unknown", 63) is Response.OBSERVE


@pytest.mark.parametrize(("code", "why"), [(13, "application"), (9999, "documented")])
def test_an_xid_that_is_no_hardware_fault_may_not_taint(code: int, why: str) -> None:
    with pytest.raises(UsageError) as raised:
        policy(xids={code: Response.TAINT})
    assert f"remediation.xids.{code}" in str(raised.value)
    assert why in str(raised.value)


def test_an_xid_that_the_user_calls_fatal_may_taint() -> None:
    compiled = Policy.compile(RemediationConfig(xids={9999: Response.TAINT}), CHECKS, {9999: "fatal"})
    assert compiled.answer("xid_fatal", 9999) is Response.TAINT


def test_to_migrate_work_is_to_drain_where_the_table_taints_and_nothing_else() -> None:
    usual, mine = policy(), policy(migrate=True, checks={"gpu_lost": "taint"})
    taints = {row.name for row in CHECKS if row.response.reaches(Response.TAINT)}
    assert taints
    assert {row.name for row in CHECKS if mine.answer(row.name) is Response.DRAIN} == taints - {"gpu_lost"}
    assert mine.answer("gpu_lost") is Response.TAINT
    assert all(mine.answer(row.name) is usual.answer(row.name) for row in CHECKS if row.name not in taints)
    origins = {rule.subject: rule.origin for rule in mine.rules()}
    assert {origins[name] for name in taints} == {"remediation.migrate", "remediation.checks.gpu_lost"}


def test_what_is_not_named_is_answered_with_no_more_than_at_most() -> None:
    mine = policy(at_most=Response.CONDITION, xids={79: Response.TAINT}, checks={"gpu_lost": "taint"})
    assert mine.response(finding("xid_fatal", xid=79)) is Response.TAINT
    assert {row.name for row in CHECKS if mine.answer(row.name).reaches(Response.TAINT)} == {"gpu_lost"}
    usual = {row.name: row.response for row in CHECKS if not row.response.reaches(Response.CONDITION)}
    assert {name: mine.answer(name) for name in usual} == usual
    lowered = {row.name for row in CHECKS if row.response.reaches(Response.TAINT)} - {"gpu_lost"}
    assert {rule.subject for rule in mine.rules() if rule.origin == "remediation.at_most"} == lowered
    assert policy(at_most=Response.OBSERVE, migrate=True).answer("gpu_lost") is Response.OBSERVE


def test_a_check_of_another_version_is_watched_only() -> None:
    assert policy().answer("gpu_on_fire") is Response.OBSERVE


@pytest.mark.parametrize(
    ("settings", "key"),
    [({"checks": {"gpu_lots": "taint"}}, "checks.gpu_lots"), ({"held_checks": ("gpu_lots",)}, "held_checks[0]")],
)
def test_an_unknown_check_is_named_with_the_nearest(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(UsageError, match="did you mean gpu_lost") as raised:
        policy(**settings)
    assert f"remediation.{key}" in str(raised.value)


def test_the_effective_policy_shows_where_each_answer_is_from() -> None:
    rules = {rule.subject: rule for rule in policy(checks={"gpu_missing": "taint"}, xids={79: Response.DRAIN}).rules()}
    assert set(rules) == {row.name for row in CHECKS} | {"XID 79"}
    assert rules["gpu_missing"].origin == "remediation.checks.gpu_missing"
    assert rules["gpu_lost"].origin == "default"
    assert rules["XID 79"].response is Response.DRAIN
