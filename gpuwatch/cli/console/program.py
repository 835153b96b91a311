"""How this program was started, so that every command line it prints can be copied and works."""

import os
import re
import shlex
import sys
from functools import cache
from pathlib import Path

NAME = "gpuwatch"


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
    import shutil

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
    from gpuwatch.cli.main import COMMANDS

    follows = "|".join([*(rf"{entry.name}\b(?!-)" for entry in COMMANDS), r"-{1,2}\w", r"\[OPTIONS\]"])
    return re.compile(rf"(^|\x1b\[[0-9;]*m|[^\w./-]){NAME}(?=(?: |\n *)(?:{follows}))", re.MULTILINE)
