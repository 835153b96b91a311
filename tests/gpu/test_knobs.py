"""What the tuner would go by on this machine's GPUs: read, and nothing set. Run by `make test-gpu`."""

from itertools import pairwise

import pytest

from gpuwatch.collect.nvml.library import open_library
from gpuwatch.model.view import View
from gpuwatch.tuning.actuation.driver import NvmlControl
from gpuwatch.tuning.cycle.gang import sampled_capabilities
from gpuwatch.tuning.model.setting import GpuCapabilities

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def capabilities(view: View) -> list[GpuCapabilities]:
    """Of every GPU, asked of the driver."""
    with NvmlControl(open_library("")) as control:
        found = [control.capabilities(gpu.identity.uuid) for gpu in view.snapshot.gpus]
    for board in found:
        print(board)
    return found


def test_the_driver_says_what_may_be_set(capabilities: list[GpuCapabilities]) -> None:
    """Limits within the board's own, clocks from the highest down."""
    assert capabilities
    for board in capabilities:
        assert None not in (board.limit, board.limit_min, board.limit_max)
        assert 0 < (board.limit_min or 0) <= (board.limit or 0) <= (board.limit_max or 0)
        assert all(higher > lower > 0 for higher, lower in pairwise(board.clocks))


def test_an_observing_tuner_sees_nearly_the_same_ladder(view: View, capabilities: list[GpuCapabilities]) -> None:
    """Who may not ask the driver counts steps of 15 MHz down from the highest clock seen."""
    seen = {gpu.identity.uuid: sampled_capabilities(gpu) for gpu in view.snapshot.gpus}
    for board in capabilities:
        if board.clocks:
            assert abs(seen[board.uuid].clocks[0] - board.clocks[0]) < 15e6
            assert seen[board.uuid].limit == board.limit


def test_gpus_with_gpm_show_dram_and_pipe_activity(view: View) -> None:
    """Hopper and newer: the two signals that the search goes by, as ratios."""
    counted = [gpu for gpu in view.snapshot.gpus if gpu.activity.window_seconds]
    if not counted:
        pytest.skip("no GPU here has GPM, or it may not be read")
    for gpu in counted:
        assert gpu.activity.dram is not None
        assert 0 <= gpu.activity.dram <= 1
        assert gpu.activity.tensor is not None
