"""The fleet of `python -m tests.bench.scale`, small: a real Prometheus reads what its blocks are said to hold."""

import math
import time
from pathlib import Path

import pytest

from tests.bench.scale import fleet
from tests.bench.scale.boards import median, queries, raw, step_of
from tests.bench.scale.fleet import RANGE, SCRAPE, Template
from tests.e2e.backfilled import serving

PAGES = 120
"""How many pages of a simulated node there are."""


@pytest.fixture(scope="module")
def end() -> int:
    return int(time.time()) // SCRAPE * SCRAPE


def _node(name: str) -> list[Template]:
    found = []
    for gpu in range(8):
        labels = {"node": name, "gpu": str(gpu), "uuid": f"GPU-{gpu}-{name}", "cluster": "c"}
        rising = tuple(minute * 3000.0 for minute in range(PAGES))
        found += [
            Template("gpuwatch_gpu_info", labels, (1.0,) * PAGES),
            Template("gpuwatch_gpu_energy_joules_total", labels, rising),
            Template("gpuwatch_gpu_power_watts", labels, tuple(300 + 50 * math.sin(m + gpu) for m in range(PAGES))),
            Template("gpuwatch_finding", labels, (None,) * 30 + (1.0,) * 30 + (None,) * 60),
        ]
    return [*found, Template("node:gpuwatch_target:known", {"node": name, "process": "agent"}, (1.0,) * PAGES)]


def test_a_fleet_of_sixteen_gpus_is_what_a_prometheus_reads(tmp_path: Path, end: int):
    templates = [each for name in ("gpu-west-01", "gpu-east-04", "gpu-east-03") for each in _node(name)]
    templates.append(Template("cluster:gpuwatch_nodes:count", {"cluster": "c"}, (2.0,) * PAGES))
    made = fleet.write(tmp_path, templates, 16, end)
    assert made["numSeries"] == 2 * (8 * 4 + 1) + 1
    samples = RANGE // SCRAPE + 1
    with serving(tmp_path) as served:
        asked = {
            "count(count by (node, gpu, uuid) (gpuwatch_gpu_info))": 16,
            "count(count by (node) (gpuwatch_gpu_info))": 2,
            "min(count_over_time(gpuwatch_gpu_power_watts[7h]))": samples,
            "min(min_over_time(gpuwatch_gpu_power_watts[7h])) > bool 249": 1,
            "max(max_over_time(gpuwatch_gpu_power_watts[7h])) < bool 351": 1,
            "count(count(gpuwatch_gpu_power_watts) by (node))": 2,
            "avg(increase(gpuwatch_gpu_energy_joules_total[6h]))": PAGES * 3000 - 3000,
            "count(gpuwatch_finding) or vector(0)": 0,
            f"count(gpuwatch_finding @ {end - RANGE * 5 // 8})": 16,
            f"count(gpuwatch_finding @ {end - RANGE // 2 + 8 * SCRAPE}) or vector(0)": 0,
            "min(count_over_time(node:gpuwatch_target:known[25h]))": 86400 // SCRAPE + 1,
        }
        found = {expr: served.value(expr if "@" in expr else _at(expr, end)) for expr in asked}
    assert found == pytest.approx(asked)


def _at(expr: str, end: int) -> str:
    """The expression's value at the end, whenever that was."""
    return f"last_over_time(({expr})[1s:1s] @ {end})"


def test_steps_are_those_that_grafana_chooses():
    """A panel of half the width over six hours, of the whole width, and a month; one with a least interval."""
    assert [step_of(6 * 3600, 12), step_of(6 * 3600, 24), step_of(30 * 86400, 12)] == [20, 15, 3600]
    assert step_of(6 * 3600, 8, "5m") == 300


@pytest.mark.slow  # the history takes 80 CPU seconds to play
def test_every_query_is_answered_with_recording_rules_and_without(tmp_path: Path, end: int):
    fleet.write(tmp_path, fleet.templates(), 16, end)
    with serving(tmp_path) as served:
        taken = [median(served, each, end, 1) for each in queries("r0-gpu-west-01")]
        assert {each.query.name: each.error for each in taken if each.error} == {}
        assert sum(each.series > 0 for each in taken) > len(taken) // 2
        bare = {raw(each.query) for each in taken if each.query.board == "fleet"}
        answered = [median(served, each, end, 1) for each in bare]
    assert [each.error for each in answered if each.error] == []
