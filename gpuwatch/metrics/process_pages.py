"""The pages of a process that works on its node beside the agent: metrics, liveness, readiness and a landing page."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Generic, NamedTuple, TypeVar

from gpuwatch import __version__
from gpuwatch.http.message import CONTENT_TYPES, negotiate_format
from gpuwatch.http.server import Handler, HttpStats, Request, Response, text
from gpuwatch.metrics.exposition import Encoder
from gpuwatch.metrics.metric import Metric
from gpuwatch.metrics.process import SelfMetrics
from gpuwatch.metrics.selection import chosen
from gpuwatch.model.text import visible

LINKS = (("/metrics", "metrics for Prometheus"), ("/-/ready", "readiness"), ("/-/healthy", "liveness"))

T = TypeVar("T")


class ProcessPages(NamedTuple, Generic[T]):
    """What the pages show of a process' state. `unready`: why it is not ready, None: it is; `rows`: label, value."""

    name: str
    metrics: Sequence[Metric[T]]
    unready: Callable[[T], str | None]
    rows: Callable[[T], Sequence[tuple[str, str]]]

    def routes(self, state: Callable[[], T], http: Callable[[], HttpStats]) -> Mapping[str, Handler]:
        """The table that the HTTP server serves."""
        own, encoder = SelfMetrics(http), Encoder()

        def metrics(request: Request) -> Response:
            now = state()
            form = negotiate_format(request.headers.get("accept"))
            try:
                families = chosen([*own.families(0), *(row.family(now) for row in self.metrics)], request.query)
            except ValueError as error:
                return text(400, str(error))
            body = encoder.encode(families, openmetrics=form == "openmetrics")
            return Response(content_type=CONTENT_TYPES[form], body=body, headers=(("Vary", "Accept"),))

        def ready(_: Request) -> Response:
            why = self.unready(state())
            return text(200, "ready") if why is None else text(503, f"not ready: {why}")

        return {
            "/metrics": metrics,
            **dict.fromkeys(("/-/healthy", "/healthz"), lambda _: text(200, "ok")),
            **dict.fromkeys(("/-/ready", "/readyz"), ready),
            "/": lambda _: landing_page(self.name, __version__, LINKS, self.rows(state())),
        }


_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --dim: #57606a; --line: #d0d7de; --paper: #fff; --link: #0550ae }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --dim: #9198a1; --line: #3d444d; --paper: #0d1117; --link: #79b8ff }
}
body { margin: 0 auto; max-width: 44rem; padding: 3rem 1.25rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif }
h1 { margin: 0; font-size: 1.75rem } h2 { margin: 2rem 0 .5rem; font-size: 1.1rem } p { margin: 0; color: var(--dim) }
table { width: 100%; border-collapse: collapse } th, td { padding: .4rem .75rem .4rem 0; text-align: left;
  vertical-align: top; border-bottom: 1px solid var(--line) }
th { width: 12rem; color: var(--dim); font-weight: 400 }
td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere }
ul { margin: 0; padding: 0; list-style: none } li { padding: .3rem 0 } a { color: var(--link) }
"""
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{name}</title>
<style>{style}</style>
</head>
<body>
<header><h1>{name}</h1><p>version {version}</p></header>
<main>
{summary}<nav aria-labelledby="pages"><h2 id="pages">Pages</h2>
<ul>{links}</ul></nav>
</main>
</body>
</html>
"""
_SUMMARY = '<section aria-labelledby="node"><h2 id="node">Node</h2>\n<table>{rows}</table></section>\n'
_HEADERS = (
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'"),
    ("X-Content-Type-Options", "nosniff"),
)


def landing_page(
    name: str, version: str, links: Sequence[tuple[str, str]], rows: Sequence[tuple[str, str]] = ()
) -> Response:
    """The page at `/`, without a script: `links` are (path, what is there), `rows` (label, value) of its summary."""
    cells = ((escape(visible(label)), escape(visible(value))) for label, value in rows)
    table = "".join(f'<tr><th scope="row">{label}</th><td>{value}</td></tr>' for label, value in cells)
    page = _PAGE.format(
        name=escape(name),
        version=escape(version),
        style=_STYLE,
        summary=_SUMMARY.format(rows=table) if rows else "",
        links="".join(f'<li><a href="{escape(path)}">{escape(path)}</a> {escape(what)}</li>' for path, what in links),
    )
    return Response(content_type="text/html; charset=utf-8", body=page.encode(), headers=_HEADERS)
