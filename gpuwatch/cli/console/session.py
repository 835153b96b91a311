"""The global options of one command, and the configuration, terminal and logs that follow from them."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli.console.effective_config import OVERRIDES, Effective, Override, effective
from gpuwatch.cli.console.terminal import Terminal
from gpuwatch.model.errors import UsageError
from gpuwatch.model.text import visible

if TYPE_CHECKING:
    from gpuwatch.config import Config


CONFIG_FILE = Path("/etc/gpuwatch/gpuwatch.yaml")
"""Units, packages and pods have it there. A command on the same machine uses it, too, and so has the same settings."""


class Session:
    """One run of the program. Commands get it with `@pass_session`."""

    def __init__(self) -> None:
        self.config_file: str | None = None
        self.source: str | None = None
        self.nvml_library: str | None = None
        self.color = "auto"
        self.verbose = 0
        self.quiet = False
        self.json_errors = False
        self.state_dir: str | None = None

    @property
    def terminal(self) -> Terminal:
        """Where this command writes; made again at each call, because streams may be replaced."""
        return Terminal(self.color, quiet=self.quiet)

    @property
    def config_path(self) -> Path | None:
        """The configuration file: the one that is named, else this machine's if it can be read. An empty name: none."""
        if self.config_file is not None:
            return Path(self.config_file) if self.config_file else None
        return CONFIG_FILE if os.access(CONFIG_FILE, os.R_OK) else None

    def effective(self, options: Mapping[str, Any], rows: Sequence[Override] = OVERRIDES) -> Effective:
        """The configuration with the options of the running command, and where each value came from.

        Raises:
            UsageError: the file or a value is wrong; the message names the key.
        """
        path = self.config_path
        try:
            return effective(path, self.nvml_library, options, rows)
        except UsageError as error:
            if self.config_file is None and path is not None and str(path) in error.what:
                error = UsageError(error.what, error.why, f"{error.next_step}, or --config '' to do without it")
            raise error from None

    def config(self) -> "Config":
        """The configuration of this command line, without options of single commands. Raises UsageError."""
        return self.effective({"state_dir": self.state_dir}).config

    def config_or_defaults(self) -> "Config":
        """As `config`, for a command that only reads: a mistake in the machine's file does not end it, as it does not
        end a running agent.

        Raises:
            UsageError: the mistake is in a file that was named, in a variable or an option.
        """
        try:
            return self.config()
        except UsageError as error:
            if self.config_file is not None or self.config_path is None:
                raise
            self.config_file = ""
            config = self.config()
            self.terminal.hint(f"warning: {error.what}; {error.why}; continuing with the defaults")
            return config

    def start_logging(self, default: str = "WARNING") -> None:
        """Log to stderr, `default` and worse; -v, -vv and -q change it."""
        import logging

        from gpuwatch.process.log_queue import LogFormatter

        level = "ERROR" if self.quiet else ("DEBUG" if self.verbose >= 2 else "INFO" if self.verbose else default)
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.basicConfig(level=level, handlers=[handler], force=True)

    def show_pages(self, port: int | None, listen: str, web_config: str = "", heading: str = "") -> None:
        """Print `heading`, and the URLs of a role's pages, if it listens. `listen`, `web_config`: as configured."""
        from gpuwatch.http.web_config import load_web_config

        if heading:
            self.terminal.hint(heading)
        if port is not None:
            tls = load_web_config(Path(web_config)).tls_server_config if web_config else None
            url = f"{'https' if tls else 'http'}://{listen.rpartition(':')[0] or 'localhost'}:{port}"
            self.terminal.hint(f"landing page  {url}/")
            self.terminal.hint(f"metrics       {url}/metrics")

    def start_audit(self) -> None:
        """Audit lines are JSON and nothing else, on stderr as all logs are."""
        import logging

        from gpuwatch.process.log_queue import LogFormatter
        from gpuwatch.storage import audit

        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(LogFormatter("%(message)s"))
        audit.log.handlers[:] = [handler]
        audit.log.setLevel(logging.INFO)
        audit.log.propagate = False


pass_session = click.make_pass_decorator(Session, ensure=True)
"""Passes the Session to a command as its first argument."""

Advance = Callable[[str, int, int], None]
"""What is done now (may be empty), how much is done, and the total; 0: the total is not known."""


@contextmanager
def progress(session: Session, doing: str) -> Iterator[Advance]:
    """A bar for as long as the block runs; it is erased at the end."""
    if session.quiet or not sys.stderr.isatty():
        yield lambda now, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(file=sys.stderr, no_color=not session.terminal.error_color)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda now, done, total: bar.update(
            task, completed=done, total=total or None, description=visible(f"{doing}: {now}" if now else doing)
        )
