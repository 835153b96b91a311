"""A part of the drills of `tuner_failures`: whatever goes wrong under a tuner, everything is as it was afterwards."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from gpuwatch.tuning.service.state_dir import TunerStatus
from tests.drills.tuner_failures import drills
from tests.drills.tuner_mishaps import KINDS
from tests.drills.tuner_rig import EXIT_SECONDS, PATH_SECONDS, DrillResult, Rig
from tests.e2e.shared import once
from tests.waiting import until

EACH, SEED, RIGS = 2, 77, 8
GUARD = 8.0
"""How many times faster than in earnest the guard is: a machine that is busy with other tests has to keep up."""

QUICK = (
    "SIGTERM",
    "SIGKILL of the tuner",
    "SIGKILL of the guard",
    "SIGKILL of both, a tuner comes",
    "NVML error in mid-write",
    "driver hangs, SIGKILL",
)
"""What ends a tuner, a guard or both, and what a driver does; the others are variations of it."""


def test_a8_after_the_failures_that_matter_most_everything_is_as_it_was(tmp_path: Path) -> None:
    results = drills(len(QUICK), SEED, tmp_path, 3, QUICK, guard=GUARD)
    assert [each.kind for each in results] == list(QUICK)
    assert not [each for each in results if each.trouble]
    assert all(each.sets > 1 for each in results)


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Sequence[DrillResult]:
    """Two of each kind, once in a run."""
    return once(tmp_path_factory, "drills", lambda place: drills(EACH * len(KINDS), SEED, place, RIGS, guard=GUARD))


@pytest.mark.slow  # as the next ones: the quick test above has one of each sort
@pytest.mark.parametrize("kind", KINDS)
def test_a8_after_each_failure_everything_is_as_it_was(kind: str, results: Sequence[DrillResult]) -> None:
    own = [each for each in results if each.kind == kind]
    assert len(own) == EACH
    assert not [each for each in own if each.trouble]


@pytest.mark.slow
def test_s1_no_setter_was_ever_called_with_more_than_the_original(results: Sequence[DrillResult]) -> None:
    assert all(each.sets > 1 for each in results)
    assert not [each for each in results if "above the original" in each.trouble]


@pytest.mark.slow
def test_s3_a_tuner_that_is_asked_to_end_has_restored_everything_in_five_seconds(
    results: Sequence[DrillResult],
) -> None:
    ends = [each.exit for each in results if each.exit is not None]
    assert len(ends) > len(KINDS) / 2
    assert max(ends) <= EXIT_SECONDS


@pytest.mark.slow
def test_s4_the_guards_path_takes_thirty_five_seconds_at_most(results: Sequence[DrillResult]) -> None:
    paths = [each.path for each in results if each.path is not None]
    assert len(paths) >= 4 * EACH
    assert max(paths) <= PATH_SECONDS


@pytest.mark.slow  # quick: test_a9_a_tuner_that_observes_calls_no_setter of test_tuner_dies
@pytest.mark.parametrize(("mode", "state"), [("observe", "eligible"), ("off", None)])
def test_a9_what_is_not_enforce_calls_no_setter_however_much_there_is_to_do(
    tmp_path: Path, mode: Literal["observe", "off"], state: str | None
) -> None:
    rig = Rig(tmp_path, mode=mode)
    rig.reset()
    status = TunerStatus(rig.place.state)
    try:
        rig.start_guard()
        rig.start_tuner()
        first = until(status.read, "the tuner tells of itself")
        last = until(lambda: (now := status.read()) and now.at > first.at + 200 and now, "minutes of its time passed")
    finally:
        rig.end()
    assert {gpu.state for gpu in last.gpus} == ({state} if state else set())
    assert rig.driver.sets() == ()
    assert not [name for name in rig.driver.called() if name.startswith(("nvmlDeviceSet", "nvmlDeviceReset"))]
