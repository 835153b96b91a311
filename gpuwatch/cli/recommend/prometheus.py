"""`gpuwatch recommend --from-prometheus URL`: its options, and the recommendations for a fleet by its history."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click
import msgspec

from gpuwatch.cli.console.options import Number, option
from gpuwatch.cli.console.session import Session, progress
from gpuwatch.cli.console.words import duration
from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import UsageError
from gpuwatch.rightsizing.findings.judge import recommend
from gpuwatch.rightsizing.model.recommendation import Recommendations
from gpuwatch.rightsizing.prometheus.api import PrometheusApi
from gpuwatch.rightsizing.prometheus.config import load_http_config
from gpuwatch.rightsizing.prometheus.history import FleetHistory, ReadProgress
from gpuwatch.rightsizing.prometheus.http import PrometheusHttp
from gpuwatch.rightsizing.prometheus.read_plan import HistoryOptions

Command = TypeVar("Command", bound=Callable[..., Any])


class FleetOptions(NamedTuple):
    """The options, as they were written."""

    url: str
    window: str = "14d"
    step: str = "auto"
    metrics: str = "auto"
    http_config: str | None = None
    header: tuple[str, ...] = ()
    rate: float = 10.0


def prometheus_options(command: Command) -> Command:
    """`--from-prometheus URL` and what belongs to it; the command gets parameters named as in FleetOptions, and
    `from_prometheus` for the URL.
    """
    for each in reversed(_OPTIONS):
        command = each(command)
    return command


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    option("--from-prometheus", metavar="URL", help="Judge a fleet by what this Prometheus has of it."),
    option("--window", metavar="DURATION", default="14d", help="So much of its history. Default: 14d."),
    option("--step", metavar="DURATION", default="auto", help="5m, 15m, 1h. Default: by the number of GPUs."),
    option(
        "--metrics",
        type=click.Choice(["auto", "gpuwatch", "dcgm"]),
        metavar="NAME",
        default="auto",
        help="auto, gpuwatch or dcgm: whose metrics.",
    ),
    option("--http-config", metavar="FILE", help="To log in, and TLS: Prometheus' http_config."),
    option("--header", metavar="NAME:VALUE", multiple=True, help="Such as X-Scope-OrgID: a; repeatable."),
    option(
        "--rate",
        type=Number(0.01),
        metavar="N",
        default=10.0,
        help="Queries a second at most. Default: 10.",
    ),
)


def recommend_for_fleet(
    session: Session, question: FleetOptions, namespaces: tuple[str, ...] = ()
) -> tuple[Recommendations, str]:
    """The recommendations, and the name of their source.

    Raises:
        UsageError: an option is wrong.
        GpuwatchError: Prometheus cannot be reached, refuses, or knows no GPU.
    """
    session.start_logging()
    for name in namespaces:
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
            raise UsageError(f"{name} is no namespace", "it is no DNS label", "see kubectl get namespaces")
    asked = {
        "window": _seconds("--window", question.window),
        "step": None if question.step == "auto" else _seconds("--step", question.step),
        "metrics": question.metrics,
        "namespaces": namespaces,
    }
    options, api = msgspec.convert(asked, prepared(HistoryOptions)), connection(question)
    config = session.config().rightsizing
    with progress(session, "reading history") as advance:

        def show(made: ReadProgress) -> None:
            advance(f"{made.windows} windows, {made.received / 1e6:.1f} MB", made.done, made.total)

        history = FleetHistory(api, config, options, show)
        ledger, fleet = history.read()
    for warning in api.warnings:
        session.terminal.hint(f"warning: {api.http.name}: {warning}; what it left out is not judged")
    plan = history.plan
    now = plan.end if plan else 0.0
    found = recommend(ledger.summaries(now), fleet, config, now, since=ledger.since)
    return found, f"Prometheus {api.http.name}"


def connection(question: FleetOptions) -> PrometheusApi:
    """The connection to the server. Raises UsageError: URL, header or file is wrong."""
    config = load_http_config(Path(question.http_config)) if question.http_config else None
    headers = {}
    for text in question.header:
        name, colon, value = map(str.strip, text.partition(":"))
        if not colon or not name or not value.isprintable():
            shown = name if colon else "what is there"  # a value may be a secret
            raise UsageError(
                f"cannot use {shown!r} as --header", "it has no colon, or no name", "write --header NAME:VALUE"
            )
        headers[name] = value
    return PrometheusApi(PrometheusHttp(question.url, config, headers=headers, rate=question.rate))


def _seconds(name: str, text: str) -> float:
    found = duration(text)
    if not found or found < 60:
        raise UsageError(f"{name} {text} is no duration", "it needs a unit, and a minute at least", "write 14d or 5m")
    return found
