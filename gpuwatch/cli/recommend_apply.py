"""`gpuwatch recommend -o apply`: what to type, as a shell script to read first; gpuwatch itself never runs it."""

import re
import shlex
from collections.abc import Iterable, Iterator

from gpuwatch.cli.document import to_yaml
from gpuwatch.cli.recommend_items import RecommendationItem
from gpuwatch.cli.recommend_words import whole_name
from gpuwatch.model.recommendation import Apply

PREFACE = """#!/bin/sh
# Made by gpuwatch recommend. Read it, keep what you want, and run that. Every part stands for itself.
set -eu
"""

END = "END-OF-FILE"


def script(items: Iterable[RecommendationItem]) -> str:
    """The commands of all, each below the words for it; files are written into the current directory."""
    return PREFACE + "".join(f"\n{part}\n" for item in items if item.apply for part in [_part(item)])


def file_name(item: RecommendationItem, part: Apply) -> str:
    """Of its manifest: one word, the same at every run."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{part.what}-{item.id}").strip("-.") + ".yaml"


def _part(item: RecommendationItem) -> str:
    lines = [f"# {_line(f'{whole_name(item.target)}: {item.why}')}", f"# risk {item.risk}: {_line(item.risk_words)}"]
    for each in item.apply:
        lines.append(f"# {_line(each.note)}")
        lines += _here(file_name(item, each), each)
        if each.command:
            lines.append(each.command)
    return "\n".join(lines)


def _here(name: str, part: Apply) -> Iterator[str]:
    """A file in the script, where the command does not carry it."""
    if part.manifest is not None and not part.command:
        yield f"cat > {shlex.quote(name)} <<'{END}'"
        yield to_yaml(part.manifest)
        yield END


def _line(text: str) -> str:
    """On one line, so that nothing of it leaves the comment."""
    return " ".join(text.split())
