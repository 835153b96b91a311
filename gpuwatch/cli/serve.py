"""`gpuwatch serve`: an agent's pages, made from a recording for a support case. This machine is not read for them."""

from collections.abc import Generator
from pathlib import Path

import click
import msgspec
from msgspec.structs import replace

from gpuwatch.agent.one_shot import OneShotCollector
from gpuwatch.agent.pages import API_REFUSALS, ViewSignal, routes
from gpuwatch.cli.console.options import option
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.look.source import node, parse_source
from gpuwatch.config import Config
from gpuwatch.http.server import HttpServer
from gpuwatch.metrics.page_cache import PageCache
from gpuwatch.model.errors import UsageError
from gpuwatch.model.event import EventQuery
from gpuwatch.model.recent import Recent, RecentSamples
from gpuwatch.model.view import View
from gpuwatch.process.signals import ENDS, Signals

HELP = """Show a recording in a browser, as an agent shows its node.

The recording is of `gpuwatch capture` or `nvidia-smi -q`; this machine is not read. Beyond this machine's own addresses
/api/v1 answers only with `agent.api: open`.

\b
Examples:
  gpuwatch --source capture:node7.capture serve
  gpuwatch --source capture:nvidia-smi-q.txt serve --listen 127.0.0.1:8080
"""
INTERVAL, DEADLINE = 1.0, 10.0
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class RecordingPages:
    """What the pages need of an agent, from a replayed recording. The main thread publishes, HTTP reads."""

    profiles: tuple[str, ...] = ("native",)

    def __init__(self, collector: OneShotCollector, config: Config, name: str) -> None:
        self._collector, self._name = collector, name
        self._samples = RecentSamples(INTERVAL)
        self.board, self.published = PageCache(config.metrics, node=name), ViewSignal()
        self._view: View | None = None

    def publish(self) -> None:
        """Publish the View that the replay has reached."""
        view = self._collector.view()
        view = replace(view, snapshot=replace(view.snapshot, node=self._name))
        self.board.publish(view)
        self._samples.add(view)
        self._view = view
        self.published.notify()

    def ready(self) -> str | None:
        """None: a recording is ready from the beginning."""
        return None

    def wedged(self) -> str | None:
        """None: there is no driver that could hang."""
        return None

    def view(self) -> View | None:
        """The newest View."""
        return self._view

    def recent(self) -> Recent:
        """The samples replayed so far."""
        return self._samples.recent

    def events_json(self, query: EventQuery) -> Generator[bytes]:
        """XIDs of the recording."""
        yield msgspec.json.encode(self._collector.events(query))

    def recommendations(self) -> str:
        """Why there are none: they need days of use."""
        return "a recording is too short for recommendations"


@click.command(help=HELP, short_help="Show a recording in a browser, as an agent shows its node.")
@option("--listen", metavar="ADDR:PORT", default="127.0.0.1:9400", help="Default: 127.0.0.1:9400.")
@pass_session
def serve(session: Session, listen: str) -> None:
    """Replay until SIGTERM or SIGINT."""
    source = parse_source(session.source) if session.source else None
    if source is None or source.kind != "capture":
        hint = "give --source capture:FILE, or run `gpuwatch agent` for the GPUs of this machine"
        raise UsageError("serve shows recordings only", "no recording is named", hint)
    with (
        node(source, session.config_or_defaults()) as (config, backend),
        OneShotCollector(config, backend, INTERVAL) as collector,
    ):
        collector.wait(1, DEADLINE)
        pages = RecordingPages(collector, config, Path(source.argument).name)
        pages.publish()
        is_open = config.agent.api == "open" or listen.rpartition(":")[0] in LOOPBACK
        refusals = {} if is_open else API_REFUSALS
        server = HttpServer(routes(pages), listen=listen, without_users=refusals, hosts=config.agent.hosts)
        server.start()
        signals = Signals()
        signals.catch(ENDS)
        session.show_pages(server.port, listen)
        while signals.next(INTERVAL) is None:
            pages.publish()
        server.stop()
