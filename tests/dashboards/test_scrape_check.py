"""`gpuwatch metrics check`: asked of a Prometheus with the fleet's history, and of scrapes that lack something."""

from contextlib import closing

import pytest

from dashboards.history.fleet import END
from gpuwatch.cli.metrics.check import NEEDED, PROCESSES, WORKLOADS, ScrapeCheck, scrape_checks
from gpuwatch.rightsizing.prometheus.api import PrometheusApi, Series
from gpuwatch.rightsizing.prometheus.http import PrometheusHttp
from tests.promql import families, recorded

AGENT = PROCESSES["agent"]
WELL = {
    f"count by (job) ({AGENT})": [("gpus", 3)],
    f"count by (job) ({PROCESSES['remediator']})": [("gpus", 3)],
}


def asked(**other: float) -> dict[str, ScrapeCheck]:
    """Of three agents under one job; `other`: a piece of a query -> the number it answers."""

    def ask(expression: str) -> list[Series]:
        if "__name__" in expression:
            names = [name for name in (*NEEDED, WORKLOADS) if name not in other]
            return [Series(metric={"__name__": name}, value=(0.0, "1")) for name in names]
        for piece, value in other.items():
            if piece in expression:
                return [Series(metric={}, value=(0.0, str(value)))] if value else []
        return [Series(metric={"job": job}, value=(0.0, str(count))) for job, count in WELL.get(expression, ())]

    return {each.check: each for each in scrape_checks(ask)}


def test_a_whole_fleet_lacks_nothing_but_the_rules(url) -> None:
    with closing(PrometheusHttp(url)) as http:
        api = PrometheusApi(http)
        found = {each.check: each for each in scrape_checks(lambda expression: api.query(expression, END))}
    assert {name for name, each in found.items() if each.result == "missing"} <= {"cluster:gpuwatch_nodes:count"}
    assert found["label node"].result == found["scraped twice"].result == "ok"
    assert "as job gpuwatch" in found["agent"].found


def test_nothing_of_gpuwatch_is_one_answer() -> None:
    (found,) = scrape_checks(lambda _: [])
    assert (found.check, found.result) == ("agent", "missing")


def test_any_job_will_do_and_a_process_that_does_not_run_is_no_lack() -> None:
    found = asked()
    assert found["agent"].found == "3 as job gpus"
    assert found["tuner"].result == "note"
    assert not [each for each in found.values() if each.result == "missing"]


@pytest.mark.parametrize(
    ("piece", "value", "check"),
    [
        ('{node=""}', 1, "label node"),
        ('{cluster=""}', 1, "label cluster"),
        ("up == 0", 2, "targets down"),
        ("exported_pod", 4, "honor_labels"),
        ("by (cluster, uuid)", 8, "scraped twice"),
        *((name, 0, name) for name in NEEDED),
    ],
)
def test_what_is_missing_is_named_with_who_misses_it(piece, value, check) -> None:
    found = asked(**{piece: value})
    assert [(each.check, bool(each.miss)) for each in found.values() if each.result == "missing"] == [(check, True)]


def test_without_the_label_cluster_on_all_targets_nothing_is_missing() -> None:
    assert asked(**{'{cluster=""}': 3})["label cluster"].result == "note"


def test_what_it_asks_for_exists() -> None:
    assert {*PROCESSES.values(), WORKLOADS, *NEEDED} <= families().keys() | recorded().keys()
