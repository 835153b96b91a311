"""How long each query of each dashboard takes, asked as Grafana asks it."""

import gzip
import http.client
import json
import re
import statistics
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.bench.measure import cpu_seconds
from tests.bench.scale.fleet import COST_RANGE, RANGE, SCRAPE
from tests.dashboards.boards import FILES, all_annotations, all_targets, load
from tests.e2e.processes import Prometheus
from tests.promql import filled, rule_groups

SCREEN = 1920
"""Pixels of the browser's width; a graph has as many points as pixels, at most."""
AT_ONCE = 6
"""Requests that a browser has under way with one server."""
TIMEOUT = 30
NICE = (15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
"""Steps that Grafana chooses from 15 s on, its scrape interval."""
LIMITS = (17.5, 25, 45, 90, 210, 450, 750, 1050, 1500, 2700, 5400, 9000, 16200, 32400, 86400, 604800)
"""Up to which quotient of range and points it chooses each (`roundInterval`)."""


class Query(NamedTuple):
    """One request. `step` None: an instant query, at the end of the range."""

    name: str
    expr: str
    span: int
    step: int | None

    @property
    def board(self) -> str:
        return self.name.partition(" /")[0]


class Taken(NamedTuple):
    """What a query cost: seconds, CPU seconds of Prometheus; how many series it found, or why it refused."""

    query: Query
    seconds: float
    cpu: float
    series: int
    error: str = ""


def queries(node: str) -> Iterator[Query]:
    """All of all dashboards and annotations as they open, the dashboard Node on `node`."""
    for target in all_targets():
        board, panel = target.panel.board, target.panel.json
        step = None if target.instant else step_of(span_of(board), panel["gridPos"]["w"], panel.get("interval", ""))
        yield _query(str(target), target.expr, board, step, node)
    for board, annotation in all_annotations():
        step = step_of(span_of(board), 24, annotation.get("step", ""))
        yield _query(f"{board} / annotation {annotation['name']}", annotation["expr"], board, step, node)


def _query(name: str, expr: str, board: str, step: int | None, node: str) -> Query:
    span = span_of(board)
    interval = step or max(SCRAPE, step_of(span, 24))
    given = {
        **dict.fromkeys(("cluster", "node", "gpu", "kind", "namespace", "workload"), ".*"),
        **({"node": node} if board == "node" else {}),
        "price": "2.5",
        "kwh": "0.15",
        "1": "$1",  # of label_replace
        "__interval": f"{interval}s",
        "__range": f"{span}s",
        "__range_s": f"{span}",
        "__rate_interval": f"{max(interval + SCRAPE, 4 * SCRAPE)}s",
    }
    return Query(name, filled(expr, given), span, step)


def span_of(board: str) -> int:
    """Seconds of the time range with which a dashboard opens."""
    begin = next(load(file) for file in FILES if file.stem == board)["time"]["from"]
    return {"now-6h": RANGE, "now/M": COST_RANGE}[begin]


def step_of(span: int, columns: int, least: str = "") -> int:
    """Seconds between a graph's points; 24 columns are the screen's width."""
    floor = int(least[:-1]) * {"s": 1, "m": 60, "h": 3600}[least[-1]] if re.fullmatch(r"\d+[smh]", least) else SCRAPE
    wanted = span / (SCREEN * columns / 24)
    return max(floor, next(nice for nice, limit in zip(NICE, LIMITS, strict=True) if wanted < limit))


def raw(query: Query) -> Query:
    """The same without recording rules: their expressions in the places of their series. A record that is made of its
    own series, or of its own past, stays: nothing stands for it.
    """
    rules = [rule for group in rule_groups() for rule in group["rules"] if "record" in rule]
    stays = {rule["record"] for rule in rules if rule["record"] in rule["expr"]}
    text = query.expr
    while found := next((each for each in _RECORD.finditer(text) if each[1] not in stays), None):
        chosen = dict(re.findall(r'(\w+)="([^"]*)"', found[2] or ""))
        span = f"[{found[3].strip('[]')}:{SCRAPE}s]" if found[3] else ""
        text = f"{text[: found.start()]}({_written_out(found[1], chosen)}){span}{text[found.end() :]}"
    return query._replace(expr=text)


_RECORD = re.compile(r"(\w+:gpuwatch_\w+:\w+)(\{[^{}]*\})?(\[\d+\w\])?")


def _written_out(record: str, chosen: Mapping[str, str]) -> str:
    rules = [rule for group in rule_groups() for rule in group["rules"] if rule.get("record") == record]
    parts = []
    for rule in rules:
        expr, labels = re.sub(r"(?m)#.*$", "", rule["expr"]), rule.get("labels", {})
        if all(labels.get(key, value) == value for key, value in chosen.items()):
            for key, value in labels.items():
                expr = f'label_replace({expr}, "{key}", "{value}", "", "")'
            parts.append(f"({expr})")
    return " or ".join(parts)


def ask(served: Prometheus, query: Query, end: int) -> Taken:
    """Once. What the browser makes of the answer is not in it."""
    arguments = {"query": query.expr, "timeout": f"{TIMEOUT}s"}
    if query.step is None:
        path, arguments["time"] = "query", str(end)
    else:
        end = end // query.step * query.step
        path, span = "query_range", {"start": str(end - query.span), "end": str(end), "step": str(query.step)}
        arguments |= span
    connection = http.client.HTTPConnection(served.url.removeprefix("http://"), timeout=2 * TIMEOUT)
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept-Encoding": "gzip"}
    before, start = cpu_seconds(served.process.pid), time.perf_counter()
    connection.request("POST", f"/api/v1/{path}", urllib.parse.urlencode(arguments), headers)
    answer = connection.getresponse()
    body = answer.read()
    seconds, cpu = time.perf_counter() - start, cpu_seconds(served.process.pid) - before
    connection.close()
    found = json.loads(gzip.decompress(body) if answer.headers["Content-Encoding"] == "gzip" else body)
    return Taken(query, seconds, cpu, len(found.get("data", {}).get("result", ())), found.get("error", "")[:60])


def median(served: Prometheus, query: Query, end: int, times: int = 3) -> Taken:
    """The median of three, by seconds; of one where it takes long."""
    first = ask(served, query, end)
    if first.error or first.seconds > TIMEOUT / 10:
        return first
    taken = sorted([first, *(ask(served, query, end) for _ in range(times - 1))], key=lambda each: each.seconds)
    return taken[len(taken) // 2]._replace(cpu=statistics.median(each.cpu for each in taken))


def opened(served: Prometheus, board: Sequence[Query], end: int) -> tuple[float, float]:
    """Seconds, and CPU seconds, until the last of a dashboard's queries is answered, asked as a browser does."""
    before, start = cpu_seconds(served.process.pid), time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda query: ask(served, query, end), board))
    return time.perf_counter() - start, cpu_seconds(served.process.pid) - before
