"""Where text goes: data to stdout, hints to stderr; in colour, Unicode and width that the receiver can show.

No command prints by itself: what leaves here holds no control character but line ends and the colours added here.
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
from gpuwatch.cli.console.text import Text
from gpuwatch.model.text import visible, visible_lines

if TYPE_CHECKING:
    import rich.text
    from rich.console import Console


class Glyphs(NamedTuple):
    """The characters outside ASCII that screens use."""

    dash: str  # unknown, unsupported
    ellipsis: str
    times: str
    degree: str
    arrow: str
    dot: str
    sparks: str  # from nothing to full
    branch: str  # of a tree
    last_branch: str
    trunk: str


UNICODE = Glyphs("–", "…", "×", "°C", "→", "·", " ▁▂▃▄▅▆▇█", "├─", "└─", "│  ")
ASCII = Glyphs("-", "~", "x", "C", "->", "|", " ._-=+*#@", "|-", "`-", "|  ")

WIDE = 100_000

NAME = "gpuwatch"


class Terminal:
    """Decisions about the two output streams as they are now. `mode` is auto, always or never."""

    def __init__(self, mode: str = "auto", *, quiet: bool = False) -> None:
        self._mode, self._quiet = mode, quiet

    @property
    def color(self) -> bool:
        """Whether stdout gets colours."""
        return use_color(self._mode, sys.stdout)

    @property
    def error_color(self) -> bool:
        """Whether stderr gets colours."""
        return use_color(self._mode, sys.stderr)

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

    def show(self, *lines: "rich.text.Text | str") -> None:
        """Print lines to stdout in full, without trailing blanks; the caller fits them to the width.

        Command lines of gpuwatch among them come as they have to be typed here.
        """
        console = self.console()
        with console.capture() as captured:
            for line in lines:
                cleaned = Text(line) if isinstance(line, str) else line
                console.print(cleaned if cleaned.plain.isprintable() else Text(cleaned.plain), soft_wrap=True)
        shown = (line.rstrip() for line in captured.get().splitlines())
        _write(as_typed("\n".join(shown)) + "\n", color=self.color)

    def print(self, *lines: str) -> None:
        """Plain lines to stdout."""
        _write(as_typed("".join(f"{visible(line)}\n" for line in lines)))

    def document(self, document: Any, output: str) -> None:
        """An envelope to stdout; `output` is json, yaml or, for one line, ndjson."""
        from gpuwatch.cli.console.document import to_json, to_yaml

        self.page((to_yaml(document) if output == "yaml" else to_json(document, lines=output == "ndjson")) + "\n")

    def page(self, text: str) -> None:
        """A whole text with its own line ends to stdout: a schema, a page of metrics, a file."""
        _write(visible_lines(text))

    def hint(self, text: str) -> None:
        """One line for people on stderr, silent with -q."""
        if not self._quiet:
            _write(as_typed(visible(text)) + "\n", err=True, color=self.error_color)

    def error(self, text: str) -> None:
        """What ended the command, on stderr."""
        line = f"{click.style('gpuwatch: error:', fg='red')} {as_typed(visible(text))}\n"
        _write(line, err=True, color=self.error_color)

    def details(self, text: str) -> None:
        """A traceback, or the error as JSON, on stderr."""
        _write(visible_lines(text), err=True)


def _write(text: str, *, err: bool = False, color: bool = False) -> None:
    encoding = getattr(sys.stderr if err else sys.stdout, "encoding", None) or "utf-8"
    shown = text.encode(encoding, "backslashreplace").decode(encoding)  # also where the locale is ASCII
    click.echo(shown, nl=False, err=err, color=color)


def use_color(mode: str, stream: TextIO | Any) -> bool:
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
    if started.name == NAME:
        return _typed(sys.argv[0])
    single_file = os.environ.get("PEX")  # set by pex's own start-up
    return f"{Path(sys.executable).name} {_typed(single_file)}" if single_file else NAME


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
