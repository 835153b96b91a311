"""The hand-over for a reboot waits for a repairer that resets the GPU, and for no other."""

from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.config import HandoverConfig
from gpuwatch.model.finding import Remedy
from gpuwatch.model.view import GpuRepair, RepairerStatus
from gpuwatch.remediation.model import BlockReason
from gpuwatch.remediation.planning.recovery import REPAIR_TIMEOUT
from tests.remediation.planning.remediating import START, Story, finding

ANNOTATION = "example.com/reboot"


def drained(repairer: RepairerStatus | None, remedy: Remedy = Remedy.RESET_GPU, later: float = 0.0) -> Any:
    """A drained node whose GPU asks for a reset; the last plan."""
    story = Story(checks={"xid_fatal": "drain"}, handover=HandoverConfig(annotation=ANNOTATION))
    story.see(finding("xid_fatal", remedy=remedy), holders={"GPU-0": ()})
    if repairer is not None:
        repairer = replace(repairer, at=START + later)
    story.view = replace(story.view, repairer=repairer) if story.view else None
    made = story.cycle()
    story.now += later
    for _ in range(4):
        made = story.cycle()
    return story, made


def status(state: Any = "waiting", **changes: Any) -> RepairerStatus:
    return replace(RepairerStatus(at=START, mode="enforce", gpus=(GpuRepair(gpu="GPU-0", state=state),)), **changes)


def test_a_repairer_at_work_holds_up_the_reboot() -> None:
    story, made = drained(status())
    assert ANNOTATION not in story.node.annotations
    assert BlockReason.REPAIR in {each.reason for each in made.blocked}


@pytest.mark.parametrize(
    ("repairer", "remedy", "later"),
    [
        (None, Remedy.RESET_GPU, 0.0),
        (status("given_up"), Remedy.RESET_GPU, 0.0),
        (status(mode="observe"), Remedy.RESET_GPU, 0.0),
        (status(), Remedy.REBOOT_NODE, 0.0),
        (status(), Remedy.RESET_GPU, REPAIR_TIMEOUT + 1),
    ],
)
def test_without_one_that_can_help_the_reboot_is_asked_for_as_before(repairer: Any, remedy: Any, later: float) -> None:
    story, _ = drained(repairer, remedy, later)
    assert story.node.annotations[ANNOTATION] == remedy
