"""The progress bar of `diagnose`, on stderr and only where a person looks at it."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gpuwatch.cli.console.session import Session

Advance = Callable[[str, int, int], None]
"""What is done now (may be empty), how much is done, of how much; a total of 0: nobody knows."""


@contextmanager
def progress(session: Session, doing: str) -> Iterator[Advance]:
    """A bar for as long as the block runs; it leaves nothing behind."""
    if session.quiet or not sys.stderr.isatty():
        yield lambda now, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(file=sys.stderr, no_color=not session.terminal.error_color)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda now, done, total: bar.update(
            task, completed=done, total=total or None, description=f"{doing}: {now}" if now else doing
        )
