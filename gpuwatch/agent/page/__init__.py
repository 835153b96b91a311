"""The agent's page for people at `/`: the node of the newest View, kept up to date by a script of forty lines.

`/` is complete without the script. With it the browser asks `/live` for the middle part and waits there for the next
View, so that an open page costs the agent one small body for each View, rendered once for all of them. It shows what
`/metrics` has, and neither processes, users nor serial numbers.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from gpuwatch.health.causes import WHY
from gpuwatch.http.message import Response
from gpuwatch.model.finding import Finding, Health
from gpuwatch.model.recent import Recent, RecentSample
from gpuwatch.model.snapshot import Gpu, GpuStatus
from gpuwatch.model.text import visible
from gpuwatch.model.view import View

GIB = 1 << 30
NEWS = 12
WORKLOADS = 3
UNKNOWN = "–"
HTML = "text/html; charset=utf-8"
FILES = {"/page.css": "text/css; charset=utf-8", "/page.js": "text/javascript; charset=utf-8"}
HEADERS = (
    (
        "Content-Security-Policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>gpuwatch {node}</title>
<link rel="stylesheet" href="page.css">
<script src="page.js" defer></script>
</head>
<body>
<header><h1>{node}</h1><p>gpuwatch {version}; values of <span id="age">{at}</span></p>
<noscript><p>Load the page again for newer values: its script is switched off.</p></noscript>
<p id="news" role="status"></p></header>
<main id="live">
{live}
</main>
<nav aria-labelledby="pages"><h2 id="pages">Pages</h2><ul>{links}</ul></nav>
</body>
</html>
"""
_COLUMNS = (
    "GPU",
    "Health",
    "Busy",
    "Last ten minutes",
    "Memory",
    "Power",
    "Temperature",
    "SM clock",
    "Clocks held by",
    "For",
)


def file(path: str) -> Response:
    """`/page.css` or `/page.js`."""
    body = files(__name__).joinpath(path.lstrip("/")).read_bytes()
    return Response(content_type=FILES[path], body=body, headers=HEADERS)


def page(view: View | None, recent: Recent, links: Sequence[tuple[str, str]]) -> Response:
    """All of it: `links` are (path, what is there)."""
    body = _PAGE.format(
        node=_text(view.snapshot.node or "this node") if view else "no values yet",
        version=_text(view.agent.version) if view else "",
        at=time.strftime("%H:%M:%S UTC", time.gmtime(view.snapshot.at)) if view else "no moment yet",
        live=live(view, recent),
        links="".join(f'<li><a href="{escape(path)}">{escape(path)}</a> {escape(what)}</li>' for path, what in links),
    )
    return Response(content_type=HTML, body=body.encode(), headers=HEADERS)


def live(view: View | None, recent: Recent) -> str:
    """The part that changes: one element with the moment (`data-at`) and the node's state in words (`data-summary`)."""
    if view is None:
        return '<div data-at="0" data-summary="no values yet"><p>The agent has read no GPU yet.</p></div>'
    snapshot, judgement = view.snapshot, view.judgement
    driver = snapshot.driver
    roots = [finding for finding in judgement.findings if finding.caused_by is None]
    summary = f"Node {judgement.node}" + (f": {roots[0].message}" if roots else "")
    facts = (
        f"driver {driver.version}" if driver and driver.version else "the driver does not answer",
        f"CUDA {driver.cuda}" if driver and driver.cuda else "",
        *(f"{count} × {name}" for name, count in Counter(s.identity.name or "GPU" for s in snapshot.statuses).items()),
        *(f"{each.role}: {each.mode}" + (f" ({each.summary})" if each.summary else "") for each in view.roles),
        f"repairer: {view.repairer.mode}" if view.repairer else "",
        f"ignored: {', '.join(judgement.ignored)}" if judgement.ignored else "",
    )
    parts = [
        f'<p><span class="{judgement.node}">{judgement.node}</span> '
        f'<span class="dim">{_text(", ".join(fact for fact in facts if fact))}</span></p>',
        *_findings(view, roots),
        '<section aria-labelledby="gpus"><h2 id="gpus">GPUs</h2><div class="wide"><table><thead><tr>',
        *(f'<th scope="col">{column}</th>' for column in _COLUMNS),
        "</tr></thead><tbody>",
        *(_row(view, status, recent) for status in snapshot.statuses),
        "</tbody></table></div></section>",
        *_news(view),
    ]
    return f'<div data-at="{snapshot.at!r}" data-summary="{_text(summary)}">' + "\n".join(parts) + "</div>"


def _findings(view: View, roots: Sequence[Finding]) -> Iterator[str]:
    yield '<section aria-labelledby="findings"><h2 id="findings">Findings</h2><ul>'
    for number, finding in enumerate(roots):
        effects = [each for each in view.judgement.findings if each.caused_by == finding.key]
        yield (
            f'<li><span class="{finding.severity}">{finding.severity}</span> {_text(_where(view, finding))}: '
            f"{_text(finding.message)}"
            + (f'<br><span class="dim">→ {_text(finding.action)}</span>' if finding.action else "")
        )
        if effects:
            why = WHY.get(finding.check, "they follow from it")
            yield f'<details id="effects{number}"><summary>{len(effects)} more follow: {_text(why)}</summary><ul>'
            yield from (f"<li>{_text(_where(view, each))}: {_text(each.message)}</li>" for each in effects)
            yield "</ul></details>"
        yield "</li>"
    yield ("" if roots else '<li class="dim">none</li>') + "</ul></section>"


def _where(view: View, finding: Finding) -> str:
    index = next((s.identity.index for s in view.snapshot.statuses if s.identity.uuid == finding.gpu), None)
    return finding.check if index is None else f"{finding.check} on GPU {index}"


def _row(view: View, status: GpuStatus, recent: Recent) -> str:
    """The row of one GPU; without readings where it does not answer."""
    uuid = status.identity.uuid
    gpu = next((gpu for gpu in view.snapshot.gpus if gpu.identity.uuid == uuid), None)
    health = view.judgement.gpus.get(uuid, Health.UNKNOWN)
    busy, *readings = _readings(gpu) if gpu else (_text(status.detail or status.state), *[""] * 5)
    holders = (holder for use in view.attribution.devices if use.gpu == uuid for holder in use.holders)
    names = list(dict.fromkeys(f"{holder.workload.namespace}/{holder.workload.pod}" for holder in holders))
    more = f" and {len(names) - WORKLOADS} more" if len(names) > WORKLOADS else ""
    users = ", ".join(names[:WORKLOADS]) + more or UNKNOWN
    cells = (busy, _sparkline(recent.gpus.get(uuid, ())), *readings, _text(users))
    shown = (f'<td data-of="{column}">{cell}</td>' for column, cell in zip(_COLUMNS[2:], cells, strict=True))
    return (
        f'<tr><th scope="row">{status.identity.index}</th>'
        f'<td data-of="Health"><span class="{health}">{health}</span></td>{"".join(shown)}</tr>'
    )


def _readings(gpu: Gpu) -> list[str]:
    busy, memory, held = gpu.utilization.gpu, gpu.memory, gpu.clock_events.active
    power = gpu.power.instant if gpu.power.instant is not None else gpu.power.average
    reasons = ", ".join(reason.replace("_", " ") for reason, active in held.items() if active and reason != "gpu_idle")
    used = None if memory.used is None else memory.used / GIB
    shown = None if busy is None else f'<meter max="1" value="{busy:.2f}">{busy:.0%}</meter> {busy:.0%}'
    return [
        shown or UNKNOWN,
        _number("{:.0f} of {:.0f} GiB", used, None if memory.total is None else memory.total / GIB),
        _number("{:.0f} of {:.0f} W", power, gpu.power.limit_enforced),
        _number("{:.0f} °C", gpu.temperature.gpu),
        _number("{:.0f} MHz", None if gpu.clocks.sm is None else gpu.clocks.sm / 1e6),
        _text(reasons or UNKNOWN),
    ]


def _number(form: str, value: float | None, of: float | None = None) -> str:
    """The value, with its whole `of` if known; without a value the sign for unknown."""
    form = form if of is not None else form.replace(" of {:.0f}", "")
    return UNKNOWN if value is None else form.format(value, of)


def _sparkline(samples: Sequence[RecentSample]) -> str:
    """How busy the GPU was: from the left, ten minutes ago, to the right, now."""
    points = [(sample.at, sample.utilization) for sample in samples[::2] if sample.utilization is not None]
    if len(points) < 2:
        return UNKNOWN
    start, end = points[0][0], points[-1][0]
    span = max(end - start, 1e-9)
    line = " ".join(f"{100 * (at - start) / span:.1f},{24 - 22 * value:.1f}" for at, value in points)
    mean = sum(value for _, value in points) / len(points)
    return (
        f'<svg viewBox="0 0 100 25" preserveAspectRatio="none" role="img" aria-label="{mean:.0%} busy on average over '
        f'{(end - start) / 60:.0f} minutes"><polyline points="{line}"/></svg>'
    )


def _news(view: View) -> Iterator[str]:
    """The latest XIDs and findings of this View, the newest first."""
    index = {status.identity.uuid: status.identity.index for status in view.snapshot.statuses}
    news = [
        (each.last, f"XID {each.xid} on GPU {index.get(each.uuid or '', each.pci)}, {each.count} so far")
        for each in view.xids
        if each.last is not None
    ]
    news += [
        (each.since, f"{_where(view, each)}: {each.message}")
        for each in view.judgement.findings
        if each.since is not None and each.xid is None
    ]
    yield '<section aria-labelledby="latest"><h2 id="latest">Latest</h2><ul>'
    for at, what in sorted(news, reverse=True)[:NEWS]:
        yield f'<li><time datetime="{_utc(at)}">{_utc(at)}</time> {_text(what)}</li>'
    yield ("" if news else '<li class="dim">nothing</li>') + "</ul></section>"


def _text(text: str) -> str:
    return escape(visible(text))


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
