"""`gpuwatch recommend -o apply`: what to type, as a shell script to read first; gpuwatch itself never runs it."""

import re
import shlex
from collections.abc import Iterable, Iterator

from gpuwatch.cli.console.document import to_yaml
from gpuwatch.cli.recommend.items import RecommendationItem
from gpuwatch.cli.recommend.text import whole_name
from gpuwatch.model.recommendation import Apply

PREFACE = """#!/bin/sh
# Made by gpuwatch recommend. Read it, keep what you want, and run that. Every part stands for itself.
set -eu
"""

END = "END-OF-FILE"


def script(items: Iterable[RecommendationItem]) -> str:
    """The commands of all, each below the words for it; files are written into the current directory."""
    parts = [f"\n{_part(item)}\n" for item in items if item.apply]
    return PREFACE + ("".join(parts) or "# There is nothing to apply.\n")


def files(item: RecommendationItem) -> list[tuple[str, Apply]]:
    """(name, what it is for) of every manifest; the same at every run."""
    parts = [part for part in item.apply if part.manifest is not None]
    kinds = [part.what for part in parts]
    return [(_name(item.id, part.what, kinds[:number].count(part.what)), part) for number, part in enumerate(parts)]


def _name(id_: str, what: str, before: int) -> str:
    """One word; `before`: so many of its kind come first."""
    more = f"-{before + 1}" if before else ""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{id_}.{what}{more}").strip("-.") + ".yaml"


def _part(item: RecommendationItem) -> str:
    names = {id(part): name for name, part in files(item)}
    lines = [
        f"# {_line(f'{whole_name(item.target)}: {item.why}')}",
        f"# confidence {item.confidence}, good until {item.expires:%Y-%m-%d %H:%M} UTC",
        f"# risk {item.risk}: {_line(item.risk_words)}",
    ]
    for each in item.apply:
        lines.append(f"# {_line(each.note)}")
        if each.command:
            lines.append(each.command)
        elif each.manifest is not None:
            lines += _here(names[id(each)], each)
    return "\n".join(lines)


def _here(name: str, part: Apply) -> Iterator[str]:
    """A file in the script, where no command carries it."""
    yield f"cat > {shlex.quote(name)} <<'{END}'"
    yield to_yaml(part.manifest)
    yield END


def _line(text: str) -> str:
    """On one line, so that nothing of it leaves the comment."""
    return " ".join(text.split())
