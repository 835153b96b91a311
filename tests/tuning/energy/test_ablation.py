"""The bench that switches mechanisms off: what it replaces exists, and is whole again afterwards."""

from unittest.mock import patch

import pytest

from gpuwatch.tuning.energy.model import Terms
from tests.bench.tuner.ablate import MECHANISMS, gangs, three_caps


@pytest.mark.parametrize("what", MECHANISMS)
def test_what_is_switched_off_is_there(what: str) -> None:
    for module, name, instead in MECHANISMS[what]:
        before = getattr(module, name)
        with patch.object(module, name, instead):
            assert getattr(module, name) is not before
        assert getattr(module, name) is before


def test_the_slowest_of_a_gang_is_the_account() -> None:
    gang = next(gangs(1, 7))
    cap = 0.7 * gang.curve.top
    alone = [each.truth(cap)[0] for each in gang.fellows]
    assert gang.truth(cap)[0] <= min(alone)
    assert len(gang.gang(gang.tick(cap)[-1])) == 1 + len(gang.fellows)


def test_the_rival_holds_one_of_its_three_caps_or_none() -> None:
    gpu = next(gangs(1, 7)).fellows[0]
    ladder = gpu.curve.ladder()
    held = three_caps(gpu, ladder, Terms(slowdown=0.05)).held
    assert held is None or held / ladder.top == pytest.approx(round(held / ladder.top, 1), abs=0.02)
