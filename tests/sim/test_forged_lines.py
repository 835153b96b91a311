"""Scenario `forged-xid`: no line that only the kernel log has is a fault; each becomes a finding that asks a person."""

from gpuwatch.cli.look.recording import scenario_views
from gpuwatch.config import Config


def test_no_forged_line_is_a_fault_and_a_person_is_asked_about_those_that_nothing_contradicts() -> None:
    """Those of user space and of a program's name are none at all; alert GpuXidUnconfirmed is about the others."""
    views = list(scenario_views("forged-xid", Config(), "10m", 1))
    found = {(each.check, each.xid) for view in views for each in view.judgement.findings}
    assert found == {("xid_unconfirmed", 79), ("xid_unconfirmed", 95), ("sxid_unconfirmed", None)}
    assert len(views[-1].judgement.findings) == 3
    assert "reported by the kernel log only" in views[-1].judgement.findings[0].message
