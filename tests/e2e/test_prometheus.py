"""A real Prometheus scrapes the real agent on a simulated node and takes every sample of it, in every profile."""

import subprocess

import pytest

from tests.e2e.processes import agent, job, prometheus, series
from tests.waiting import until

# Prometheus' own counters of samples that it could not take
DROPPED = (
    "prometheus_target_scrapes_sample_duplicate_timestamp_total",
    "prometheus_target_scrapes_sample_out_of_bounds_total",
    "prometheus_target_scrapes_sample_out_of_order_total",
    "prometheus_target_scrapes_exceeded_sample_limit_total",
    "prometheus_target_scrapes_exceeded_body_size_limit_total",
    "prometheus_tsdb_out_of_order_samples_total",
    "prometheus_tsdb_out_of_bound_samples_total",
)
PROFILES = ("native", "dcgm-4.8", "dcgm-4.9")
SCRAPES = 4


@pytest.fixture(scope="module")
def scraped(tmp_path_factory):
    """(agent, Prometheus) after some scrapes of each profile."""
    place = tmp_path_factory.mktemp("scraped")
    with agent(place / "agent", source=("--source", "sim"), config={"agent": {"interval": 0.5}}) as node:
        node.settle()
        jobs = [job(profile, node, params={"profile": [profile]}) for profile in PROFILES]
        with prometheus(place / "prometheus", jobs) as database:
            for profile in PROFILES:
                scrapes = f'count_over_time(up{{job="{profile}"}}[1m])'
                until(lambda scrapes=scrapes: (database.value(scrapes) or 0) >= SCRAPES, "scrapes")
            yield node, database


@pytest.mark.parametrize("profile", PROFILES)
def test_every_scrape_succeeds(scraped, profile):
    _, database = scraped
    assert database.value(f'min_over_time(up{{job="{profile}"}}[1m])') == 1


def test_prometheus_drops_nothing(scraped):
    _, database = scraped
    for counter in DROPPED:
        found = database.query(counter)
        assert all(float(row["value"][1]) == 0 for row in found), counter
        assert found, f"Prometheus has no {counter}"


@pytest.mark.parametrize("profile", PROFILES)
def test_prometheus_has_the_series_that_we_serve(scraped, profile):
    node, database = scraped
    served = series(node.page(f"?profile={profile}"))
    selector = f'{{job="{profile}"}}'

    def taken():
        found = {}
        for row in database.query(selector):
            labels = {k: v for k, v in row["metric"].items() if k not in ("job", "instance", "__name__")}
            found[row["metric"]["__name__"], frozenset(labels.items())] = row
        return {key for key in found if not key[0].startswith("scrape_") and key[0] != "up"}

    until(lambda: taken() == set(served), f"{profile}: the same series", seconds=5, step=0.2)
    for count in ("scrape_samples_scraped", "scrape_samples_post_metric_relabeling"):
        assert database.value(count + selector) == len(served)


def test_the_page_passes_promtool(scraped):
    node, _ = scraped
    check(node.page())


def check(page):
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")
