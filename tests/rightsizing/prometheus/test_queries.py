"""What is asked of a Prometheus says what it means: of dcgm-exporter's two sizes the device's own."""

from gpuwatch.rightsizing.prometheus.queries import DCGM


def test_a_gpu_that_was_full_and_then_empty_has_not_become_twice_as_large() -> None:
    """The most that was used and the most that was free are of two moments."""
    used, free = DCGM.queries["memory_total"].split(" + ")

    assert "max_over_time(DCGM_FI_DEV_FB_USED{@}" in used
    assert "min_over_time(DCGM_FI_DEV_FB_FREE{@}" in free
    assert "max_over_time(DCGM_FI_DEV_FB_FREE" not in free
