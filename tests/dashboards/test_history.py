"""The fleet's history: what Prometheus answers is what agents and remediators would have shown at that moment."""

import json
import urllib.parse
import urllib.request
from collections.abc import Callable
from itertools import islice

import pytest

from dashboards.history.fleet import BEGIN, END, LAG, NODES, STEP
from dashboards.history.play import samples
from dashboards.history.targets import CONFIG, Agent
from gpuwatch.metrics.exposition import Encoder
from gpuwatch.metrics.native import collect
from tests.e2e.processes import Series, series

Query = Callable[..., dict[Series, float]]
TARGET = ("cluster", "instance", "job", "node")


@pytest.fixture
def query(url: str) -> Query:
    def ask(expression: str, at: float = END) -> dict[Series, float]:
        asked = urllib.parse.urlencode({"query": expression, "time": at})
        with urllib.request.urlopen(f"{url}/api/v1/query?{asked}", timeout=60) as answer:
            found = json.load(answer)["data"]["result"]
        return {
            Series(each["metric"].pop("__name__", ""), frozenset(each["metric"].items())): float(each["value"][1])
            for each in found
        }

    return ask


def the(name: str) -> Agent:
    return Agent(next(node for node in NODES if node.name == name))


def without_target(found: dict[Series, float]) -> dict[Series, float]:
    return {
        Series(name, frozenset(label for label in labels if label[0] not in TARGET)): value
        for (name, labels), value in found.items()
    }


@pytest.mark.parametrize("minute", [0, 7, 40])
def test_it_says_what_the_agents_page_says_at_that_moment(query: Query, minute: int):
    at = BEGIN + minute * 60
    view = next(view for view in the("gpu-east-03").views() if view.snapshot.at == at - LAG)
    page = series(Encoder().encode(collect(view, CONFIG.metrics)))
    found = query('{node="gpu-east-03", job="gpuwatch", __name__=~"gpuwatch_.*"}', at)
    kept = {key: value for key, value in without_target(found).items() if key in page}
    assert kept == pytest.approx(page)
    assert len(page) > 200


@pytest.mark.slow  # as all that needs the history, see conftest
def test_it_is_the_same_every_time():
    once, again = (b"".join(islice(samples("east"), 40)) for _ in range(2))
    assert once == again
    assert once.count(b"\n") > 10_000


def test_every_node_is_there_from_the_beginning_to_the_end(query: Query):
    for at in (BEGIN, END):
        assert {dict(labels)["node"] for _, labels in query('up{job="gpuwatch"} == 1', at)} == {n.name for n in NODES}


def test_an_agent_that_is_away_is_down_and_comes_back_as_another_process(query: Query):
    gone, back = next(node.away for node in NODES if node.away)
    assert query('up{node="gpu-west-01", job="gpuwatch"} == 0', BEGIN + gone)
    assert not query('gpuwatch_gpus{node="gpu-west-01"}', BEGIN + gone + 2 * STEP)
    assert query('up{node="gpu-west-01", job="gpuwatch"} == 1', BEGIN + back)
    assert query('changes(process_start_time_seconds{node="gpu-west-01", job="gpuwatch"}[2h]) == 1')


def test_a_fault_is_counted_from_nothing(query: Query):
    selector = 'gpuwatch_gpu_xid_errors_total{node="gpu-west-02", gpu="3", xid="79"}'
    assert list(query(selector, BEGIN).values()) == [0]
    assert list(query(selector).values()) == [1]
    assert query(f"increase({selector}[2h]) > 0")


def test_faults_lead_to_quarantine_repair_to_release_and_the_budget_stands_in_the_way(query: Query):
    quarantined = {dict(labels)["node"] for _, labels in query("gpuwatch_remediator_quarantined == 1")}
    assert quarantined == {"gpu-west-02", "gpu-east-01"}
    assert query('changes(gpuwatch_remediator_quarantined{node="gpu-west-03"}[2h]) == 2')
    blocked = [dict(labels) for _, labels in query("gpuwatch_remediator_blocked == 1")]
    assert [(each["node"], each["reason"]) for each in blocked] == [("gpu-west-05", "budget")]
    assert set(query('gpuwatch_remediator_budget_slots{cluster="west", state="used"}').values()) == {1}


@pytest.mark.parametrize(
    "expression",
    [
        "gpuwatch_gpu_sm_active_ratio > 0.5",
        'gpuwatch_gpu_sm_active_ratio{gi!=""} > 0.1',
        "gpuwatch_pod_gpu_memory_bytes > 0",
        "rate(gpuwatch_pod_gpu_energy_joules_total[10m]) > 10",
        "gpuwatch_process_gpu_memory_bytes > 0",
        "count by (node, gpu) (gpuwatch_gpu_workload_info) > 1",
        'gpuwatch_source_up{source="podresources"} == 1',
        "rate(process_cpu_seconds_total[10m]) > 0",
        'min_over_time(gpuwatch_source_up{source="nvml"}[2h]) == 0',
        "min_over_time(gpuwatch_gpu_temperature_margin_celsius[2h]) < 1",
        "increase(gpuwatch_gpu_nvlinks_errors_total[2h]) > 0",
        "gpuwatch_gpu_row_remap_failure == 1",
        'gpuwatch_tuner_state{state="refused", reason="fault"}',
        'gpuwatch_tuner_state{state="refused", reason="conflict"}',
        'gpuwatch_tuner_state{state="holding"} and on (node, gpu) gpuwatch_tuner_clock_cap_hertz',
        "increase(gpuwatch_tuner_energy_saved_joules_total[1h]) > 0",
        'increase(gpuwatch_tuner_restores_total{trigger="guard"}[2h]) > 0',
        'count({__name__=~".+:gpuwatch_.+"}) > 10',
    ],
)
def test_the_stories_show(query: Query, expression: str):
    assert query(expression)
