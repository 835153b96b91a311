"""A real Prometheus scrapes the real agent on a simulated node and takes every sample of it, in every profile."""

import contextlib
import subprocess

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
COUNTS = ("scrape_samples_scraped", "scrape_samples_post_metric_relabeling")
SCRAPES = 4
PATIENT = {"scrape_interval": "2s", "scrape_timeout": "2s"}
"""A scrape that comes too late on a busy machine is none that failed."""


@contextlib.contextmanager
def scraped(place):
    """(agent, Prometheus) after some scrapes of each profile."""
    with agent(place / "agent", source=("--source", "sim"), config={"agent": {"interval": 0.5}}) as node:
        node.settle()
        jobs = [job(profile, node, params={"profile": [profile]}, **PATIENT) for profile in PROFILES]
        with prometheus(place / "prometheus", jobs) as database:
            for profile in PROFILES:
                scrapes = f'count_over_time(up{{job="{profile}"}}[1m])'
                until(lambda scrapes=scrapes: (database.value(scrapes) or 0) >= SCRAPES, "scrapes")
            yield node, database


def test_prometheus_takes_each_sample_of_each_profile(tmp_path):
    """Every scrape succeeds, nothing is dropped, the series are those that we serve, and promtool likes the page."""
    with scraped(tmp_path) as (node, database):
        for profile in PROFILES:
            assert database.value(f'min_over_time(up{{job="{profile}"}}[1m])') == 1
            has_what_is_served(node, database, profile)
        for counter in DROPPED:
            found = database.query(counter)
            assert all(float(row["value"][1]) == 0 for row in found), counter
            assert found, f"Prometheus has no {counter}"
        check(node.page())


def has_what_is_served(node, database, profile):
    """The series of a scrape and of a page are the same; which there are may change between the two."""
    selector = f'{{job="{profile}"}}'

    def taken():
        found = set()
        for row in database.query(selector):
            labels = {k: v for k, v in row["metric"].items() if k not in ("job", "instance", "__name__")}
            found.add((row["metric"]["__name__"], frozenset(labels.items())))
        return {key for key in found if not key[0].startswith("scrape_") and key[0] != "up"}

    def is_same():
        served = set(series(node.page(f"?profile={profile}")))
        counts = {database.value(count + selector) for count in COUNTS}
        return taken() == served and counts == {len(served)}

    until(is_same, f"{profile}: the same series", step=0.2)


def check(page):
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")
