"""Reads the GPUs of this machine through the whole pipeline and checks that the answers make sense. Changes nothing.

Run by `make test-gpu`; skipped, with the reason, where there is no driver.
"""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpuwatch.config import MetricsConfig
from gpuwatch.metrics.page_cache import PageCache
from gpuwatch.model.snapshot import GpuState
from gpuwatch.model.view import View

pytestmark = pytest.mark.gpu


def test_every_gpu_answers(view: View) -> None:
    """No GPU of a healthy machine is lost or silent."""
    assert view.snapshot.gpus
    assert {status.state for status in view.snapshot.statuses} == {GpuState.FRESH}


def test_readings_are_within_what_the_gpu_allows(view: View) -> None:
    """Memory adds up, power is below its limit with some overshoot, clocks below their maximum."""
    for gpu in view.snapshot.gpus:
        if gpu.memory.total is not None and not gpu.mig_enabled:
            parts = (gpu.memory.used or 0) + (gpu.memory.free or 0) + (gpu.memory.reserved or 0)
            assert parts == pytest.approx(gpu.memory.total, rel=0.02)
        if gpu.power.average is not None and gpu.power.limit_enforced is not None:
            assert 0 < gpu.power.average <= gpu.power.limit_enforced * 1.2
        if gpu.clocks.sm is not None and gpu.clocks.sm_max is not None:
            assert 0 < gpu.clocks.sm <= gpu.clocks.sm_max
        if gpu.temperature.gpu is not None:
            assert 0 < gpu.temperature.gpu < 120
        for ratio in (gpu.utilization.gpu, gpu.utilization.memory, gpu.activity.sm, gpu.activity.dram):
            assert ratio is None or 0 <= ratio <= 1


def test_unsupported_is_absent_not_an_error(view: View) -> None:
    """Reads that fail for another reason than lack of support would show here, by name."""
    assert {gpu.identity.index: gpu.errors for gpu in view.snapshot.gpus if gpu.errors} == {}


def test_gpm_answers_on_hopper_and_newer(view: View) -> None:
    """The activity ratios need no capability on these GPUs; older ones must not pretend."""
    for gpu in view.snapshot.gpus:
        capability = float(gpu.identity.compute_capability or 0)
        if gpu.mig_enabled:
            continue
        assert (gpu.activity.sm is not None) == (capability >= 9.0)


def test_the_exposition_of_real_values_parses(view: View) -> None:
    """What Prometheus would see: parsable, with one utilization series per GPU outside MIG mode."""
    board = PageCache(MetricsConfig(), node="here")
    board.publish(view)
    families = {family.name: family for family in text_string_to_metric_families(board.page(("native",)).decode())}
    assert len(families["gpuwatch_gpu_info"].samples) == len(view.snapshot.gpus)


def test_reading_is_quick_enough(view: View) -> None:
    """A look at one GPU stays far below the shortest sensible interval; prints what it took."""
    for gpu in view.snapshot.gpus:
        assert gpu.read_seconds is not None
        print(f"GPU {gpu.identity.index} {gpu.identity.name}: {gpu.read_seconds * 1e3:.1f} ms of driver calls")
        assert gpu.read_seconds < 0.5
