"""Recommendations as series: the dearest only, each labels' set once, nothing where nothing is said."""

import pytest

from gpuwatch.config import MetricsConfig
from gpuwatch.metrics.native import collect
from gpuwatch.metrics.page_cache import PageCache
from gpuwatch.rightsizing.model.recommendation import FindingKind, Recommendations
from gpuwatch.rightsizing.service.metrics import RIGHTSIZING_METRICS, rightsizing_families
from tests.model.view_factory import full_view
from tests.rightsizing.model.advice_factory import advice, recommendation

NAMES = tuple(f"gpuwatch_{row.name}" for row in RIGHTSIZING_METRICS)
NATIVE = ("native",)


def series(body: Recommendations | None, top: int = 20) -> dict[str, list[tuple[tuple[str | None, ...], float]]]:
    """Family -> values of its own labels, and number."""
    families = collect(full_view(1), MetricsConfig(), extra=rightsizing_families(body, top))
    return {
        family.name: [(own, value) for (_, own), value in family.samples] for family in families if family.name in NAMES
    }


def test_without_advice_there_is_no_series() -> None:
    assert series(None) == {}


def test_every_kind_is_counted_from_zero_on() -> None:
    counts = series(advice(recommendation("a", 1.0), recommendation("b", 2.0)), top=0)["gpuwatch_recommendations"]
    assert {own[0]: value for own, value in counts} == {kind: 2 * (kind == "idle_holder") for kind in FindingKind}


def test_known_and_learning_are_all_workloads() -> None:
    states = dict(series(advice(workloads=7, learning=4), top=1)["gpuwatch_rightsizing_workloads"])
    assert states == {("known",): 3, ("learning",): 4}


@pytest.mark.parametrize("top", [0, 2, 9])
def test_only_the_dearest_become_series(top: int) -> None:
    items = [recommendation(f"w{number}", 100.0 - number) for number in range(5)]
    found = series(advice(*items), top=top)
    names = [f"w{number}" for number in range(5)][:top]
    for family in ("gpuwatch_recommendation", "gpuwatch_recommendation_gpu_hours_per_day"):
        assert [own[3] for own, _ in found[family]] == names


def test_images_of_one_workload_are_one_series_and_their_savings_a_sum() -> None:
    told = advice(recommendation("w", 24.0, image="a:1"), recommendation("w", 12.0, image="a:2"))
    labels = ("idle_holder", "ask_owner", "ml", "w", "main", "high")
    assert series(told)["gpuwatch_recommendation"] == [(labels, 1)]
    assert series(told)["gpuwatch_recommendation_gpu_hours_per_day"] == [(labels, 36.0)]


def test_they_count_for_the_bound_of_a_page_and_go_before_the_readings() -> None:
    view = full_view(1)
    told = advice(*(recommendation(f"w{number}", 1.0) for number in range(200)))
    readings = sum(len(family.samples) for family in collect(view, MetricsConfig()))
    board = PageCache(MetricsConfig(max_series=readings + 100), node="n")
    board.publish(view, rightsizing_families(told, 200))
    page = board.page(NATIVE).decode()
    assert "gpuwatch_gpu_power_watts{" in page
    assert "gpuwatch_recommendations{" in page
    assert "gpuwatch_recommendation{" not in page
    assert "gpuwatch_series_dropped 400\n" in page


def test_they_are_on_the_native_page_alone() -> None:
    board = PageCache(MetricsConfig(), node="n")
    board.publish(full_view(1), rightsizing_families(advice(recommendation("w", 1.0)), 20))
    assert b"gpuwatch_recommendation{" in board.page(NATIVE)
    assert b"gpuwatch_recommendation" not in board.page(("dcgm-4.8",))
