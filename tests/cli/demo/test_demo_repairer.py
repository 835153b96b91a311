"""The demo's proof fails for a GPU that is still sick, and what the repairer does is told in words."""

from functools import partial

import pytest
from msgspec.structs import replace

from gpuwatch.cli.demo.narrator import repair_sentences
from gpuwatch.cli.demo.stage import simulated_checks
from gpuwatch.diagnose.validation import validate
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.event import ActionEvent, Result
from tests.model import views


@pytest.mark.parametrize(("asked", "passed", "words"), [(0, True, ""), (1, False, "X01: GPU 0: the driver asks for")])
def test_a_simulated_gpu_passes_only_when_the_driver_asks_for_no_recovery(asked: int, passed: bool, words: str) -> None:
    view = views.view((replace(views.gpu(0), recovery_action=asked), replace(views.gpu(1), recovery_action=1)))
    prove = partial(validate, run=simulated_checks)
    (found,) = prove(view, frozenset({0}), SystemClock()).validations
    assert (found.gpu, found.passed) == (views.uuid(0), passed)
    assert found.message.startswith(words)


def action(name: str, result: Result, actor: str = "repairer", **words: str) -> ActionEvent:
    return ActionEvent(at=1.0, actor=actor, action=name, target="gpu/GPU-4", result=result, **words)


def test_each_action_of_the_repairer_is_reported_also_one_that_failed_and_no_other() -> None:
    told = repair_sentences(
        (
            action("reset_gpu", Result.INTENDED, why="XID 95"),
            action("reset_gpu", Result.FAILED, detail="in use by another client"),
            action("repaired", Result.DONE),
            action("taint", Result.DONE, actor="remediator"),
        )
    )
    assert list(told) == [
        ("repairer", "resets GPU-4, which nothing uses any more: XID 95"),
        ("repairer", "reset_gpu of GPU-4 failed: in use by another client"),
    ]
