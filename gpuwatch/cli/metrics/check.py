"""`gpuwatch metrics check`: what a Prometheus has of gpuwatch, and what alerts and dashboards would miss."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Literal

import click
import msgspec

from gpuwatch.cli.console.document import Envelope
from gpuwatch.cli.console.options import option, output
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.console.table import Column, table
from gpuwatch.cli.console.words import Words
from gpuwatch.cli.recommend.prometheus import FleetOptions, connection
from gpuwatch.rightsizing.prometheus.api import Series

HELP = """Show what a Prometheus scrapes of gpuwatch, with which labels, and what alerts and dashboards would miss.

The exit code is 0 when nothing is missing, 3 when something is, 4 when no agent is scraped at all.

\b
Examples:
  gpuwatch metrics check --prometheus http://prometheus:9090
  gpuwatch metrics check --prometheus https://thanos --header 'X-Scope-OrgID: a' -o json
"""

Ask = Callable[[str], "list[Series]"]

PROCESSES = {
    "agent": "gpuwatch_snapshot_timestamp_seconds",
    "remediator": "gpuwatch_remediator_mode",
    "tuner": "gpuwatch_tuner_mode",
}
"""Process -> a metric that every one of its pages has."""

NEEDED = {
    "gpuwatch_gpu_health": "every alert about a GPU and the Fleet dashboard",
    "gpuwatch_gpu_info": "GpuStraggler, and the models on dashboards",
    "gpuwatch_gpu_power_watts": "power and energy on every dashboard",
    "gpuwatch_gpu_utilization_ratio": "activity and GpuAllocatedIdle, on GPUs before Hopper",
    "gpuwatch_source_up": "alerts about sources of gpuwatch that fail",
    "cluster:gpuwatch_nodes:count": "alerts: the rule file is not loaded (alerts/gpuwatch.rules.yaml)",
}
"""Metrics that every agent has, and the first record of the rules -> what reads each."""

WORKLOADS = "gpuwatch_gpu_workload_info"


class ScrapeCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One question about what is scraped. `miss`: what does not work without it; empty where nothing is missing."""

    check: str
    result: Literal["ok", "note", "missing"]
    found: str
    miss: str = ""


COLUMNS: tuple[Column[ScrapeCheck], ...] = (
    Column("CHECK", lambda c, _: c.check),
    Column(
        "RESULT", lambda c, _: c.result, style=lambda c: {"ok": "green", "note": "dim", "missing": "yellow"}[c.result]
    ),
    Column("FOUND", lambda c, w: w.text(c.found), shorten="end"),
    Column("WHAT MISSES IT", lambda c, w: w.text(c.miss), shorten="end"),
)


@click.command(help=HELP, short_help="Show what a Prometheus has of gpuwatch, and what is missing.")
@option("--prometheus", "url", metavar="URL", required=True, help="The Prometheus, Thanos or Mimir to ask.")
@option("--http-config", metavar="FILE", help="How to log in and TLS: Prometheus' http_config, as a file.")
@option("--header", metavar="NAME:VALUE", multiple=True, help="Such as X-Scope-OrgID: a; repeatable.")
@output("table", "json", "yaml")
@pass_session
@click.pass_context
def check(
    ctx: click.Context, session: Session, url: str, http_config: str | None, header: tuple[str, ...], output: str
) -> None:
    """Ask a few instant queries and judge the answers."""
    api, now = connection(FleetOptions(url, http_config=http_config, header=header)), time.time()
    with closing(api.http):
        found = tuple(scrape_checks(lambda expression: api.query(expression, now)))
    if output == "table":
        words = Words(session.terminal.glyphs, now)
        session.terminal.show(*table(COLUMNS, found, words, width=session.terminal.width))
    else:
        session.terminal.document(Envelope(kind="ScrapeCheckList", items=found), output)
    missing = [each.check for each in found if each.result == "missing"]
    ctx.exit(4 if "agent" in missing else 3 if missing else 0)


def scrape_checks(ask: Ask) -> Iterator[ScrapeCheck]:
    """All checks, those about processes first. `ask` answers an instant query; raises as PrometheusApi.query does."""
    agents = 0
    for process, family in PROCESSES.items():
        jobs = {series.metric.get("job", ""): round(series.now() or 0) for series in ask(f"count by (job) ({family})")}
        found = ", ".join(f"{count} as job {job or 'without a name'}" for job, count in sorted(jobs.items()))
        if process == "agent":
            agents = sum(jobs.values())
            miss = "" if jobs else "all: check the scrape job or PodMonitor, and the port 9400"
            yield ScrapeCheck(check=process, result="ok" if jobs else "missing", found=found, miss=miss)
            if not jobs:
                return
        else:
            miss = "" if jobs else f"alerts and panels about the {process}; none is needed where it does not run"
            yield ScrapeCheck(check=process, result="ok" if jobs else "note", found=found, miss=miss)
    for label, miss in (
        ("node", "dashboards, which take all nodes for one; what agent, remediator and tuner say is not joined"),
        ("cluster", "nothing, as long as all targets lack it: with several clusters, nodes of one name are mixed up"),
    ):
        without = _count(ask, f'count({PROCESSES["agent"]}{{{label}=""}})')
        some = without if label == "node" else without and without != agents
        result: Literal["ok", "note", "missing"] = "missing" if some else "note" if without else "ok"
        found = f"{agents - without} of {agents} agents have it"
        yield ScrapeCheck(check=f"label {label}", result=result, found=found, miss=miss if without else "")
    others = "unless on (job) (up == 1 unless on (job, instance) gpuwatch_build_info)"
    down = _count(ask, f"count(up == 0 and on (job) group by (job) ({PROCESSES['agent']}) {others})")
    yield _judged(
        "targets down", not down, f"{down} beside {agents} that answer", "every statement about those nodes is missing"
    )
    twice = _count(ask, "count(count by (cluster, uuid) (gpuwatch_gpu_info) > 1)")
    yield _judged("scraped twice", not twice, f"{twice} GPUs by two targets", "sums count those GPUs twice")
    kept = _count(ask, f'count({WORKLOADS}{{exported_pod!=""}})')
    miss = "names of workloads: alerts and dashboards show gpuwatch's own pod; set honor_labels in the scrape job"
    yield _judged("honor_labels", not kept, f"{kept} containers in exported_pod" if kept else "", miss)
    there = {series.metric.get("__name__", "") for series in ask(_NAMES)}
    for family, reader in NEEDED.items():
        yield _judged(family, family in there, "" if family in there else "no series", reader)
    pods = WORKLOADS in there
    miss = "" if pods else "names of workloads in alerts and the Workload dashboard; none is there while no GPU is held"
    yield ScrapeCheck(check=WORKLOADS, result="ok" if pods else "note", found="" if pods else "no series", miss=miss)


_NAMES = f'group by (__name__) ({{__name__=~"{"|".join((*NEEDED, WORKLOADS))}"}})'


def _judged(check: str, good: bool, found: str, miss: str) -> ScrapeCheck:
    return ScrapeCheck(check=check, result="ok" if good else "missing", found=found, miss="" if good else miss)


def _count(ask: Ask, expression: str) -> int:
    """The sum of the answer; 0 where Prometheus returns no series."""
    return round(sum(series.now() or 0.0 for series in ask(expression)))
