"""The machine under test, read through the whole pipeline; without a driver its tests are skipped, with the reason."""

import pytest

from gpuwatch.agent.one_shot import OneShotCollector
from gpuwatch.config import Backend, Config
from gpuwatch.model.errors import NoGpuStack
from gpuwatch.model.view import View


@pytest.fixture(scope="module")
def view() -> View:
    """Three samples a second apart, so that rates, GPM and sample buffers have something to say."""
    try:
        with OneShotCollector(Config(), Backend(), interval=1.0) as looking:
            looking.wait(3, 30)
            return looking.view()
    except NoGpuStack as error:
        pytest.skip(f"no GPU here: {error}")
