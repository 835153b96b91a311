"""The active checks on the GPUs of this machine: CUDA starts, computes, copies and remembers; takes nothing for good.

Run by `make test-gpu`; skipped, with the reason, where there is no driver or the GPUs are in use.
"""

import pytest

from gpuwatch.agent.one_shot import OneShotCollector
from gpuwatch.config import Backend, Config
from gpuwatch.diagnose.active.results import Active
from gpuwatch.diagnose.active.run import run_active
from gpuwatch.diagnose.checks.functional import pcie_bandwidth
from gpuwatch.model.errors import NoGpuStack
from gpuwatch.model.view import View

pytestmark = pytest.mark.gpu


def new_view() -> View:
    with OneShotCollector(Config(), Backend(), interval=1.0) as looking:
        looking.wait(2, 30)
        return looking.view()


@pytest.fixture(scope="module")
def view() -> View:
    """The machine before the checks."""
    try:
        return new_view()
    except NoGpuStack as error:
        pytest.skip(f"no GPU here: {error}")


@pytest.fixture(scope="module")
def active(view: View) -> Active:
    """Everything, once."""
    found = run_active(view, progress=print)
    if found.runs and all(run.refused for run in found.runs):
        pytest.skip(f"no GPU is free: {found.runs[0].refused}")
    return found


def test_nothing_goes_wrong(active: Active) -> None:
    """Every test of every free device; prints what was measured."""
    for run in active.runs:
        print(run)
    assert [(run.test, run.index, run.error) for run in active.runs if run.error] == []
    assert {"vector_add", "bandwidth", "memory"} <= {run.test for run in active.runs if not run.refused}


def test_copies_are_as_fast_as_the_link_allows(active: Active, view: View) -> None:
    """Faster than a quarter of what PCIe can carry, in both directions."""
    links = {gpu.identity.index: gpu.pcie for gpu in view.snapshot.gpus}
    for run in active.runs:
        most = pcie_bandwidth(links.get(run.index))
        if run.host_to_device and run.device_to_host and most:
            for speed in (run.host_to_device, run.device_to_host):
                assert speed > most / 4


def test_memory_is_returned(active: Active, view: View) -> None:
    """Afterwards as much is free as before, give or take what the driver keeps for itself."""
    before = {gpu.identity.uuid: gpu.memory.used or 0 for gpu in view.snapshot.gpus}
    for gpu in new_view().snapshot.gpus:
        assert (gpu.memory.used or 0) - before[gpu.identity.uuid] < 256 << 20
