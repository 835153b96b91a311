"""Where text goes: data to stdout, hints to stderr; in colour, Unicode and width that the other end can show.

Command lines of gpuwatch in it are written as this program was started, so that they can be copied and work.
"""

import os
import re
import shlex
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import click

from gpuwatch.cli.console.commands import COMMANDS

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


class Glyphs(NamedTuple):
    """The characters outside ASCII that screens use."""

    dash: str  # unknown, unsupported
    ellipsis: str
    times: str
    degree: str
    arrow: str
    dot: str
    sparks: str  # from nothing to full


UNICODE = Glyphs("–", "…", "×", "°C", "→", "·", " ▁▂▃▄▅▆▇█")
ASCII = Glyphs("-", "~", "x", "C", "->", "|", " ._-=+*#@")

WIDE = 100_000

NAME = "gpuwatch"


class Terminal:
    """Decisions about the two output streams as they are now. `mode` is auto, always or never."""

    def __init__(self, mode: str = "auto", *, quiet: bool = False) -> None:
        self._mode, self._quiet = mode, quiet

    @property
    def color(self) -> bool:
        """Whether stdout gets colours."""
        return wants_color(self._mode, sys.stdout)

    @property
    def error_color(self) -> bool:
        """Whether stderr gets colours."""
        return wants_color(self._mode, sys.stderr)

    @property
    def glyphs(self) -> Glyphs:
        """Unicode where stdout can encode it."""
        encoding = getattr(sys.stdout, "encoding", None) or "ascii"
        try:
            "".join(UNICODE).encode(encoding)
        except (UnicodeEncodeError, LookupError):
            return ASCII
        return UNICODE

    @property
    def width(self) -> int:
        """Columns to fit into; practically endless without a terminal, so that pipes lose nothing."""
        if os.environ.get("COLUMNS", "").isdigit() or sys.stdout.isatty():
            return shutil.get_terminal_size().columns
        return WIDE

    def console(self, *, live: bool = False) -> "Console":
        """A rich console on stdout; a live one follows the size of its terminal."""
        from rich.console import Console

        return Console(
            file=sys.stdout,
            width=None if live else self.width,
            force_terminal=live or self.color,
            color_system="standard" if self.color else None,
            legacy_windows=False,
            highlight=False,
            emoji=False,
            markup=False,
        )

    def show(self, *renderables: "RenderableType") -> None:
        """Print lines to stdout as long as they are, without trailing blanks; the caller knows the width.

        Command lines of gpuwatch among them come as they have to be typed here.
        """
        console = self.console()
        with console.capture() as captured:
            for renderable in renderables:
                console.print(renderable, soft_wrap=True)
        lines = (line.rstrip() for line in captured.get().splitlines())
        click.echo(as_typed("\n".join(lines)), color=self.color)

    def hint(self, text: str) -> None:
        """One line for people on stderr, silent with -q."""
        if not self._quiet:
            click.echo(as_typed(text), err=True, color=self.error_color)


def wants_color(mode: str, stream: TextIO | Any) -> bool:
    """By --color, then NO_COLOR (no-color.org), FORCE_COLOR, TERM=dumb, then whether it is a terminal."""
    if mode != "auto":
        return mode == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return os.environ.get("TERM") != "dumb" and stream.isatty()


def program() -> str:
    """What to type for this program here: its name where PATH finds it, else its path from the working directory."""
    started = Path(sys.argv[0])
    if started.parent.name == NAME and started.name == "__main__.py":
        return f"{_typed(sys.executable)} -m {NAME}"
    return _typed(sys.argv[0]) if started.name == NAME else NAME


def as_typed(text: str) -> str:
    """`text` with each command line of gpuwatch in it as it has to be typed here; other mentions of the name stay."""
    name = program()
    return text if name == NAME else _command_line().sub(lambda found: found[1] + name, text)


def _typed(file: str) -> str:
    """The shortest way to type a program's path: its name, from the working directory, in full."""
    try:
        path = Path(os.path.abspath(file))  # not resolved: a virtual environment is known by its own links
        on_path = shutil.which(path.name)
        if on_path is not None and os.path.abspath(on_path) == str(path):
            return path.name
        inside = path.relative_to(Path.cwd())
    except FileNotFoundError:  # the working directory is gone
        return shlex.quote(file)
    except ValueError:
        return shlex.quote(str(path))
    return shlex.quote(str(inside) if len(inside.parts) > 1 else f"./{inside}")


@cache
def _command_line() -> re.Pattern[str]:
    """The name where a command or an option follows, also after a colour or before a wrapped line."""
    follows = "|".join([*(rf"{entry.name}\b(?!-)" for entry in COMMANDS), r"-{1,2}\w", r"\[OPTIONS\]"])
    return re.compile(rf"(^|\x1b\[[0-9;]*m|[^\w./-]){NAME}(?=(?: |\n *)(?:{follows}))", re.MULTILINE)
