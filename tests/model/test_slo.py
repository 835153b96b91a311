"""The annotation `gpuwatch.io/slo`: what it means, and that anything else is refused with what, why and next step."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.slo import MOST_TARGETS, Target, slo_targets


def test_a_histogram_a_quantile_and_its_bound() -> None:
    assert slo_targets("vllm:e2e_request_latency_seconds p95 <= 2s") == (
        Target("vllm:e2e_request_latency_seconds", 0.95, 2.0),
    )
    both = slo_targets(" sglang:time_to_first_token_seconds p99<=500ms ; x_seconds  p99.9 <= 0.05 s ")
    assert both == (Target("sglang:time_to_first_token_seconds", 0.99, 0.5), Target("x_seconds", 0.999, 0.05))
    assert str(both[0]) == "sglang:time_to_first_token_seconds p99 <= 0.5 s"


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "x p95 <= 2s;",
        "x p95 < 2s",
        "x p95 <= 2",
        "x p95 <= 2m",
        "x p95 <= 0s",
        "x p95 <= 9999s",
        "x p95 <= -1s",
        "x p95 <= NaNs",
        "x p95 <= 1e3s",
        "x p5 <= 2s",
        "x p49 <= 2s",
        "x p100 <= 2s",
        "x 0.95 <= 2s",
        "x{a=1} p95 <= 2s",
        "x p95 <= ٢s",
        "x p95 <= 2s\nx p95 <= 2s",
        f"{'x' * 101} p95 <= 2s",
        ";".join(f"x{n} p95 <= 2s" for n in range(MOST_TARGETS + 1)),
    ],
)
def test_whatever_else_it_says_is_refused(text: str) -> None:
    with pytest.raises(GpuwatchError) as refused:
        slo_targets(text)
    assert refused.value.what.startswith("gpuwatch.io/slo is ")
    assert refused.value.why
    assert "p95 <= 2s" in refused.value.next_step


@given(st.text(max_size=200))
@example("x p95 <= 2s…")
def test_any_text_is_targets_within_bounds_or_refused(text: str) -> None:
    try:
        targets = slo_targets(text)
    except GpuwatchError:
        return
    assert 1 <= len(targets) <= MOST_TARGETS
    assert all(0.5 <= each.quantile < 1 and 0 < each.seconds <= 3600 for each in targets)


@given(st.integers(50, 99), st.integers(1, 3600))
def test_what_is_written_is_what_is_read(percent: int, seconds: int) -> None:
    assert slo_targets(f"a:b_seconds p{percent} <= {seconds}s") == (Target("a:b_seconds", percent / 100, seconds),)
